"""Soft thresholds of a Budget."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein
from checkrein.errors import ApprovalPending, BudgetExceeded, ConfigError, Denied
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost

PRICES = {"dear": {"input": 0, "output": 10}, "cheap": {"input": 0, "output": 1}}
MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "go"}]}]


def tool() -> str:
    return "done"


def model(**request: Any) -> Any:
    return {"model": request["model"], "usage": {"prompt_tokens": 0, "completion_tokens": 10_000}}


def test_a_warning_is_given_once(caplog: pytest.LogCaptureFixture) -> None:
    with Rein(plugins=[Budget(calls=4, soft=[{"at": 0.5, "do": "warn"}])]) as rein, rein.session():
        with caplog.at_level(logging.WARNING, logger="checkrein.budget"):
            for _ in range(2):
                rein.call(tool)
            assert not caplog.records
            for _ in range(2):
                rein.call(tool)
        assert len(caplog.records) == 1
        assert "more than 50%" in caplog.text


def test_a_cheaper_model_is_called_and_held_at_its_own_price() -> None:
    budget = Budget(
        usd=0.25, prices=PRICES, max_output_tokens=10_000,
        soft=[{"at": 0.7, "do": "cheaper", "model": "cheap"}],
    )  # fmt: skip
    with Rein(plugins=[budget, Cost(overlay=PRICES)]) as rein, rein.session() as session:
        for _ in range(4):
            rein.model_call(model, model="dear", messages=MESSAGES)
        names = [row.name for row in rein.store.costs().rows]
        assert names == ["dear", "cheap", "cheap", "cheap"]
        assert session.spend().nano_usd == 130_000_000


def test_halt_before_the_cap() -> None:
    with Rein(plugins=[Budget(calls=4, soft=[{"at": 0.5, "do": "halt"}])]) as rein:
        with rein.session(on_error="keep"):
            for _ in range(2):
                rein.call(tool)
            with pytest.raises(Denied) as denied:
                rein.call(tool)
        assert denied.value.halt


def test_best_effort_holds_what_is_left() -> None:
    budget = Budget(
        tokens=25_000, estimate_tokens=15_000, soft=[{"at": 1, "do": "best_effort"}], halt=False
    )
    with Rein(plugins=[budget, Cost(overlay=PRICES)]) as rein, rein.session() as session:
        for _ in range(3):
            rein.model_call(model, model="cheap", messages=MESSAGES)
        with pytest.raises(BudgetExceeded):
            rein.model_call(model, model="cheap", messages=MESSAGES)
        assert session.spend().tokens == 30_000


def test_a_person_grants_more_once_for_each_approval(tmp_path: Path) -> None:
    budget = Budget(calls=2, soft=[{"at": 1, "do": "ask", "more": 2}])
    store = f"sqlite:///{tmp_path}/more.db"
    with Rein(plugins=[budget], wait="suspend", store=store) as rein, rein.session():
        for _ in range(2):
            rein.call(tool)
        with pytest.raises(ApprovalPending) as pending:
            rein.call(tool)
        rein.approvals.approve(pending.value.token, by="ada")
        assert rein.resume(pending.value.token) == "done"
        assert rein.call(tool) == "done"
        with pytest.raises(ApprovalPending):
            rein.call(tool)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"at": 0, "do": "warn"}, r"budget.soft\[0\].at: must be above 0"),
        ({"at": float("nan"), "do": "warn"}, r"budget.soft\[0\].at"),
        ({"at": 0.5, "do": "shout"}, r"budget.soft\[0\].do"),
        ({"at": 0.5, "do": "cheaper"}, r"budget.soft\[0\].model: is needed"),
        ({"at": 0.5, "do": "warn", "more": 1}, r"budget.soft\[0\].more: has no meaning"),
        ({"at": 0.5, "do": "ask"}, r"budget.soft\[0\].more: is needed"),
        ({"at": 0.5, "do": "warn", "colour": 1}, "colour"),
    ],
)
def test_bad_steps_are_refused_with_their_place(step: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Budget(calls=1, soft=[step])


def test_every_step_in_async_code(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same five steps, awaited, on a file."""

    async def run(soft: list[Any], times: int, **limits: Any) -> tuple[int, Any]:
        """(calls that ran, what ended them)."""
        url = f"sqlite:///{tmp_path}/{soft[0]['do']}.db"
        budget = Budget(soft=soft, **limits)
        ran = 0
        with Rein(plugins=[budget, Cost(overlay=PRICES)], store=url, approvals="store") as rein:
            async with rein.session(on_error="keep", wait="suspend"):
                for _ in range(times):
                    try:
                        await rein.amodel_call(model, model="dear", messages=MESSAGES)
                    except (BudgetExceeded, Denied, ApprovalPending) as error:
                        return ran, error
                    ran += 1
            names.extend(row.name for row in rein.store.costs().rows)
        return ran, None

    names: list[str] = []
    money: dict[str, Any] = {"prices": PRICES, "max_output_tokens": 10_000}
    with caplog.at_level(logging.WARNING, logger="checkrein.budget"):
        assert asyncio.run(run([{"at": 0.5, "do": "warn"}], 3, usd=0.35, **money)) == (3, None)
    assert caplog.text.count("more than 50%") == 1
    names.clear()
    cheaper = [{"at": 0.5, "do": "cheaper", "model": "cheap"}]
    assert asyncio.run(run(cheaper, 3, usd=0.25, **money)) == (3, None)
    assert names == ["dear", "cheap", "cheap"]
    ran, error = asyncio.run(run([{"at": 0.5, "do": "halt"}], 3, usd=0.25, **money))
    assert (ran, error.halt) == (1, True)
    ran, error = asyncio.run(run([{"at": 0.5, "do": "best_effort"}], 4, usd=0.25, **money))
    assert (ran, type(error)) == (3, BudgetExceeded)
    ran, error = asyncio.run(run([{"at": 1, "do": "ask", "more": 1}], 4, usd=0.25, **money))
    assert (ran, type(error)) == (2, ApprovalPending)


@pytest.mark.parametrize("unit", ["tokens", "calls", "seconds"])
def test_steps_are_for_every_unit(unit: str) -> None:
    limits: dict[str, Any] = {unit: 100, "per": ["tenant", "agent"], "window": "day"}
    if unit == "seconds":
        limits["estimate_seconds"] = 60
    if unit == "tokens":
        limits["estimate_tokens"] = 60
    if unit == "calls":
        limits["calls"] = 1
    budget = Budget(**limits, soft=[{"at": 0.5, "do": "halt"}])
    with (
        Rein(plugins=[budget]) as rein,
        rein.session(on_error="keep", agent="a", tenant="t"),
        pytest.raises(Denied) as denied,
    ):
        rein.model_call(model, model="dear", messages=MESSAGES)
    assert denied.value.halt
    assert denied.value.rule == f"budget/{unit}/soft"
