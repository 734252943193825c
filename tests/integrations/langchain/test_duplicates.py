"""A model that plans the same call again, with a new call id."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from checkrein import Rein
from checkrein_integrations.langchain import CheckreinMiddleware
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call
from checkrein_plugins.approvers import CallableApprover
from checkrein_plugins.guardrails import IdempotencyGuard

paid: list[int] = []


@tool
def pay(amount: int, order: str) -> str:
    """Pay."""
    paid.append(amount)
    if order == "lost":
        raise TimeoutError("the reply was lost")
    return "paid"


@pytest.mark.parametrize("order", ["o1", "lost"])
@pytest.mark.parametrize("answer", [True, False])
def test_a_call_planned_again_is_put_to_a_person(mode, order, answer) -> None:
    paid.clear()
    asked: list[str] = []

    def decide(made: Any, request: Any) -> bool:
        asked.append(request.reason)
        return answer

    model = ScriptedChatModel(
        script=[
            ai("", call("pay", "first", amount=5, order=order)),
            ai("", call("pay", "second", amount=5, order=order)),
            ai("done"),
        ]
    )
    plugins = [IdempotencyGuard(), CallableApprover(decide)]
    with Rein(plugins=plugins, store="memory:", on_error="keep") as rein:
        agent = create_agent(model, [pay], middleware=[CheckreinMiddleware(rein)])
        given: Any = {"messages": [("user", "go")]}
        try:
            if mode == "sync":
                agent.invoke(given)
            else:
                asyncio.run(agent.ainvoke(given))
        except TimeoutError:
            # A tool that raises ends the run: the model gets no second turn to ask again.
            assert order == "lost"
            assert paid == [5]
            return
    assert len(paid) == (2 if answer else 1)
    assert len(asked) == 1 and "possible duplicate of" in asked[0]
