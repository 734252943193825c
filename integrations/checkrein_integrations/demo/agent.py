"""The agent of the refund desk: LangChain's `create_agent` under `CheckreinMiddleware`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from checkrein_integrations.demo.desk import AGENT, Desk
from checkrein_integrations.langchain import CheckreinMiddleware
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call

PRICED_AS = "gpt-4o"
"""Whose prices the scripted model is billed at."""
INPUT_TOKENS, OUTPUT_TOKENS = 900, 60
"""What each of the scripted model's answers reports as used."""
PROMPT = (
    "You work at a refund desk. For each order you are told to refund, in this order: "
    "look_up_order, pay_refund with the whole price, record_refund, send_mail with one "
    "sentence, close_case. One tool call at a time. If a tool refuses, stop and say so."
)


class Scripted(ScriptedChatModel):
    """A scripted model whose steps may be functions of the messages so far."""

    def _next(self, messages: list[BaseMessage], kwargs: dict[str, Any]) -> AIMessage:
        if self.script and callable(self.script[0]):
            self.script[0] = self.script[0](messages)
        return super()._next(messages, kwargs)


def _step(name: str, **arguments: Any) -> Callable[[Sequence[BaseMessage]], AIMessage]:
    """Ask for a tool call, or stop if the last one was refused."""

    def step(messages: Sequence[BaseMessage]) -> AIMessage:
        last = messages[-1]
        if isinstance(last, ToolMessage) and last.status == "error":
            return ai("I could not refund this order: the last step was refused.")
        return ai("", call(name, **arguments))

    return step


def scripted(steps: Sequence[Any], priced_as: str = PRICED_AS) -> Scripted:
    """A scripted model that is billed like a real one."""
    return Scripted(
        script=list(steps),
        model_name=priced_as,
        input_tokens=INPUT_TOKENS,
        output_tokens=OUTPUT_TOKENS,
    )


def refund_steps(order: str, amount: float) -> list[Any]:
    """What a good clerk does about one order."""
    return [
        _step("look_up_order", order=order),
        _step("pay_refund", order=order, amount=amount),
        _step("record_refund", order=order, amount=amount),
        _step("send_mail", order=order, text=f"We refunded ${amount:.2f} for order {order}."),
        _step("close_case", order=order),
    ]


class Heard(BaseCallbackHandler):
    """Records what reaches the model, whichever model it is."""

    raise_error = True

    def __init__(self) -> None:
        self.requests: list[list[BaseMessage]] = []

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any
    ) -> None:
        """One request."""
        self.requests += messages

    def text(self) -> str:
        """Everything that the model was sent."""
        return "\n".join(m.model_dump_json() for request in self.requests for m in request)

    def result_of(self, tool: str) -> str:
        """A tool's result as the model saw it."""
        for request in self.requests:
            for message in request:
                if isinstance(message, ToolMessage) and message.name == tool:
                    return str(message.content)
        return ""

    def question(self) -> str:
        """The user's message as the model saw it."""
        return next((str(m.content) for r in self.requests for m in r if m.type == "human"), "")


def run(desk: Desk, *, model: Any, question: str, heard: Heard) -> str:
    """Let the agent work inside the open session; its last words.

    Raises whatever ends the run.
    """
    agent = create_agent(
        model,
        desk.tools,
        system_prompt=PROMPT,
        middleware=[CheckreinMiddleware(desk.rein)],
        name=AGENT,
    )
    state = agent.invoke(
        {"messages": [{"role": "user", "content": question}]},
        {"callbacks": [heard], "recursion_limit": 200},
    )
    return str(state["messages"][-1].content)
