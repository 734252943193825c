"""Budget: what a call holds before it runs."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein
from checkrein.call import NANO, Call, CallKind, ToolInfo
from checkrein.errors import BudgetExceeded, ConfigError, Denied
from checkrein.hooks import Plugin
from checkrein.verdicts import Answer, Deny, Hold, PreVerdict
from checkrein_plugins.budget import (
    MAX_OUTPUT_TOKENS,
    UNKNOWN_INPUT_USD,
    UNKNOWN_OUTPUT_USD,
    Budget,
)
from checkrein_plugins.cost import Cost

OWN = {"mine": {"input": 1, "output": 10}, "local": {"input": 0, "output": 0}}


def call(name: str = "mine", kind: CallKind = "model", **fields: Any) -> Call:
    fields.setdefault("arguments", {})
    return Call("c1", "s1", kind, name, tool=ToolInfo(name), **fields)


def says(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "parts": [{"type": "text", "content": text}]}]}


def holds(budget: Budget, a_call: Call) -> dict[str, Hold]:
    found = budget.pre_call(a_call)
    assert budget.pre_call(a_call) == found, "pre_call must be pure"
    assert isinstance(found, tuple)
    kept = [hold for hold in found if isinstance(hold, Hold)]
    assert len(kept) == len(found)
    return {hold.unit: hold for hold in kept}


def amount(budget: Budget, a_call: Call, unit: str = "usd") -> int:
    return holds(budget, a_call)[unit].amount


# Estimates


def test_a_model_call_holds_its_input_and_the_most_it_may_answer() -> None:
    budget = Budget(usd=5, prices=OWN)
    small = amount(budget, call(arguments={**says("x" * 4000), "max_tokens": 100}))
    assert 1_000_000 + 1_000_000 <= small <= 1_020_000 + 1_000_000
    unstated = amount(budget, call(arguments=says("x" * 4000)))
    assert unstated - small == (MAX_OUTPUT_TOKENS - 100) * 10_000
    labelled = amount(budget, call(arguments=says("x" * 4000), labels={"max_output_tokens": "100"}))
    assert labelled == small
    assumed = Budget(usd=5, prices=OWN, max_output_tokens=100)
    assert amount(assumed, call(arguments=says("x" * 4000))) == small
    double = amount(budget, call(arguments={**says("x" * 4000), "max_tokens": 100, "n": 2}))
    assert double - small == 1_000_000


def test_system_text_tools_and_other_scripts_count() -> None:
    budget = Budget(tokens=10**6, max_output_tokens=1)
    empty = amount(budget, call(), "tokens")
    for more in (
        {"system": "x" * 400},
        {"tools": [{"name": "t", "description": "x" * 400}]},
        says("漢" * 134),
        says("x" * 400),
    ):
        assert amount(budget, call(arguments=more), "tokens") >= empty + 100
    image = {"messages": [{"parts": [{"type": "blob", "content": b"x" * 10**7}]}]}
    assert 1000 < amount(budget, call(arguments=image), "tokens") < 10_000


def test_a_stated_estimate_is_held_as_it_is() -> None:
    budget = Budget(usd=1, tokens=1000, estimate_usd=0.45, estimate_tokens=50)
    assert amount(budget, call("no-such-model")) == 450_000_000
    assert amount(budget, call("gpt-4o"), "tokens") == 50


def test_an_unknown_model_is_never_free() -> None:
    held = amount(Budget(usd=1), call("no-such-model", arguments={"max_tokens": 1000}))
    assert held == UNKNOWN_OUTPUT_USD * 1000 * NANO / 10**6
    longer = amount(
        Budget(usd=1), call("no-such-model", arguments={**says("x" * 4000), "max_tokens": 1000})
    )
    assert longer - held >= UNKNOWN_INPUT_USD * 1000 * NANO / 10**6
    refused = Budget(usd=1, unpriced="deny").pre_call(call("no-such-model"))
    assert isinstance(refused, Deny)
    assert refused.halt
    assert "no-such-model" in refused.reason
    estimated = Budget(usd=1, unpriced="deny", estimate_usd=0.1)
    assert isinstance(estimated.pre_call(call("no-such-model")), Deny)
    assert amount(estimated, call("gpt-4o")) == 100_000_000


def test_an_explicit_zero_price_holds_nothing() -> None:
    assert amount(Budget(usd=0, prices=OWN), call("local", arguments=says("x"))) == 0


# What is counted


def test_tools_hold_their_price_and_undo_holds_nothing() -> None:
    budget = Budget(usd=1, calls=5, tool_prices={"search": 0.03, "maps_*": 0.005})
    found = holds(budget, call("search", "tool"))
    assert (found["usd"].amount, found["usd"].settle) == (30_000_000, "measured")
    assert (found["calls"].amount, found["calls"].settle) == (1, "keep")
    assert amount(budget, call("Maps-Route", "tool")) == 5_000_000
    assert set(holds(budget, call("other", "tool"))) == {"calls"}
    assert budget.pre_call(call("search", "undo")) is None
    assert set(holds(Budget(calls=5), call("gpt-4o"))) == {"calls"}
    assert Budget(tokens=5).pre_call(call("other", "tool")) is None


def test_limits_are_whole_nano_dollars_and_never_rounded_up() -> None:
    assert holds(Budget(usd=0.1), call("gpt-4o"))["usd"].limit == 100_000_000
    assert holds(Budget(usd=1e-9 / 3), call("gpt-4o"))["usd"].limit == 0
    assert holds(Budget(calls=0), call("x", "tool"))["calls"].limit == 0


def test_halt_by_default_on_money_and_tokens_only() -> None:
    found = holds(Budget(usd=1, tokens=1, calls=1), call("gpt-4o"))
    assert {unit: hold.halt for unit, hold in found.items()} == {
        "usd": True, "tokens": True, "calls": False,
    }  # fmt: skip
    for halt in (True, False):
        found = holds(Budget(usd=1, tokens=1, calls=1, halt=halt), call("gpt-4o"))
        assert {hold.halt for hold in found.values()} == {halt}


@pytest.mark.parametrize(
    ("settings", "account"),
    [
        ({}, "budget/calls/session/s1"),
        ({"per": "agent"}, "budget/calls/agent/a"),
        ({"per": "user"}, "budget/calls/user/u"),
        ({"per": "tenant"}, "budget/calls/tenant/unattributed"),
        ({"per": "task"}, "budget/calls/task/plan"),
        ({"per": "tool"}, "budget/calls/tool/search"),
        ({"per": "call"}, "budget/calls/call/c1"),
        ({"per": ["session", "tool"]}, "budget/calls/session+tool/s1/search"),
        ({"window": 3600}, "budget/calls/session@3600s/s1"),
        ({"name": "daily", "window": 86400, "per": "user"}, "daily/calls/user@86400s/u"),
    ],
)
def test_accounts(settings: dict[str, Any], account: str) -> None:
    a_call = call("search", "tool", agent="a", user="u", task="plan")
    assert holds(Budget(calls=1, **settings), a_call)["calls"].account == account


def test_combined_keys_cannot_be_made_to_meet() -> None:
    budget = Budget(calls=1, per=["tenant", "user"])
    first = holds(budget, call("t", "tool", tenant="a/b", user="c"))["calls"].account
    second = holds(budget, call("t", "tool", tenant="a", user="b/c"))["calls"].account
    assert first != second


def test_per_tool_and_per_model_count_only_those() -> None:
    assert Budget(calls=1, per="tool").pre_call(call("gpt-4o")) is None
    assert Budget(calls=1, per="model").pre_call(call("search", "tool")) is None
    assert holds(Budget(tokens=9, per="model"), call("gpt-4o"))["tokens"].account == (
        "budget/tokens/model/gpt-4o"
    )


# Bad settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "budget: state a limit: usd, tokens, calls or seconds"),
        ({"usdd": 1}, "budget: unknown key 'usdd'; allowed: usd, tokens, calls, seconds, per"),
        ({"usd": -1}, "budget.usd: must not be negative"),
        ({"usd": float("nan")}, "budget.usd: must be a finite number"),
        ({"usd": float("inf")}, "budget.usd: must be a finite number"),
        ({"usd": True}, "budget.usd"),
        ({"usd": "5"}, "budget.usd"),
        ({"usd": 1e30}, "budget.usd: must not be above"),
        ({"tokens": 1.5}, "budget.tokens"),
        ({"tokens": True}, "budget.tokens"),
        ({"tokens": -1}, "budget.tokens: must not be negative"),
        ({"calls": 10**30}, "budget.calls: must not be above"),
        ({"calls": 1, "per": "day"}, "budget.per: .*'session'"),
        ({"calls": 1, "per": []}, "budget.per"),
        ({"calls": 1, "per": ["user", "user"]}, "budget.per: a dimension stands there twice"),
        ({"calls": 1, "per": ["tool", "model"]}, "no call is of a tool and of a model"),
        ({"calls": 1, "window": 0}, "budget.window: must be above 0"),
        ({"calls": 1, "window": -5}, "budget.window: must be above 0"),
        ({"calls": 1, "window": float("nan")}, "budget.window: must be a finite"),
        ({"calls": 1, "window": "year"}, "budget.window"),
        ({"calls": 1, "halt": "yes"}, "budget.halt"),
        ({"calls": 1, "name": "a/b"}, "budget.name"),
        ({"calls": 1, "estimate_usd": 1}, "budget.estimate_usd: has no meaning without usd"),
        ({"calls": 1, "estimate_tokens": 1}, "estimate_tokens: has no meaning without tokens"),
        ({"calls": 1, "tool_prices": {"a": 1}}, "tool_prices: has no meaning without usd"),
        ({"usd": 1, "estimate_usd": 0}, "an estimate of 0 would hold nothing"),
        ({"usd": 1, "per": "tool"}, "budget.usd: per tool needs tool_prices"),
        ({"tokens": 1, "per": "tool"}, "budget.tokens: tools use none"),
        ({"usd": 1, "unpriced": "free"}, "budget.unpriced"),
        ({"usd": 1, "max_output_tokens": 0}, "budget.max_output_tokens"),
        ({"usd": 1, "prices": {"m": {"input": 1}}}, "budget.prices.*m.output"),
        ({"usd": 1, "tool_prices": {"a": float("inf")}}, "tool_prices.a"),
    ],
)
def test_bad_settings_are_refused_with_their_place(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Budget(**settings)


# Through a Rein


HOW = pytest.mark.parametrize("how", ["sync", "async"])
ANSWER = {"model": "mine", "usage": {"prompt_tokens": 400_000, "completion_tokens": 0}}
"""At $1 a million: 40 cents."""
MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "go"}]}]


def store_of(kind: str, tmp_path: Path) -> str:
    return "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/book.db"


def spent(rein: Rein, account: str) -> tuple[int, int]:
    balance = rein.store.balance(account)
    return (0, 0) if balance is None else (balance.spent, balance.held)


def ask_model(rein: Rein, fn: Any, how: str, **fields: Any) -> Any:
    """One model call in a session of its own."""
    if how == "sync":
        with rein.session(on_error="keep", **fields):
            return rein.model_call(fn, model="mine", messages=MESSAGES)

    async def run() -> Any:
        async with rein.session(on_error="keep", **fields):
            return await rein.amodel_call(fn, model="mine", messages=MESSAGES)

    return asyncio.run(run())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_an_absurd_request_is_refused_and_is_no_error(kind: str, tmp_path: Path) -> None:
    rein = Rein(plugins=[Budget(usd=1, prices=OWN)], store=store_of(kind, tmp_path))
    try:
        labels = {"max_tokens": "9" * 40}
        with rein.session(on_error="keep"), rein.options(labels=labels):
            for _ in range(2):
                with pytest.raises(BudgetExceeded):
                    rein.model_call(lambda **k: ANSWER, model="mine", messages=MESSAGES)
    finally:
        rein.close()


@HOW
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_refused_call_never_reaches_the_provider(how: str, kind: str, tmp_path: Path) -> None:
    calls: list[int] = []

    def provider(request: Any = None, **more: Any) -> Any:
        calls.append(1)
        return ANSWER

    budget = Budget(usd=1, per="agent", estimate_usd=0.45, prices=OWN)
    rein = Rein(plugins=[budget, Cost(overlay=OWN)], store=store_of(kind, tmp_path))
    try:
        for _ in range(2):
            ask_model(rein, provider, how, agent="a")
        with pytest.raises(BudgetExceeded) as refused:
            ask_model(rein, provider, how, agent="a")
        assert refused.value.halt
        assert refused.value.rule == "budget/usd"
        assert len(calls) == 2
        assert spent(rein, "budget/usd/agent/a") == (800_000_000, 0)
        ask_model(rein, provider, how, agent="b")
        assert len(calls) == 3
    finally:
        rein.close()


@HOW
def test_twenty_calls_at_once_fit_twice(how: str) -> None:
    """Budget 1.00, hold 0.45, price 0.40: two are admitted, whatever runs beside them."""
    calls: list[int] = []
    budget = Budget(usd=1, estimate_usd=0.45, prices=OWN, halt=False)
    rein = Rein(plugins=[budget, Cost(overlay=OWN)])
    try:
        with rein.session() as session:
            if how == "sync":
                together = threading.Barrier(20)

                def provider(*args: Any, **more: Any) -> Any:
                    calls.append(1)
                    admitted.wait(10)
                    return ANSWER

                admitted = threading.Event()
                results: list[Any] = []

                def one() -> None:
                    together.wait(10)
                    try:
                        results.append(rein.model_call(provider, model="mine", messages=MESSAGES))
                    except BudgetExceeded as error:
                        results.append(error)
                    if len(results) >= 18:
                        admitted.set()

                threads = [threading.Thread(target=session.bind(one)) for _ in range(20)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(30)
            else:

                async def run() -> list[Any]:
                    open_now = asyncio.Event()

                    async def aprovider(*args: Any, **more: Any) -> Any:
                        calls.append(1)
                        await open_now.wait()
                        return ANSWER

                    tasks = [
                        asyncio.create_task(
                            rein.amodel_call(aprovider, model="mine", messages=MESSAGES)
                        )
                        for _ in range(20)
                    ]
                    while sum(task.done() for task in tasks) < 18:  # noqa: ASYNC110  # as they end
                        await asyncio.sleep(0.001)
                    assert spent(rein, f"budget/usd/session/{session.id}") == (0, 900_000_000)
                    open_now.set()
                    return list(await asyncio.gather(*tasks, return_exceptions=True))

                results = asyncio.run(run())
            assert len(calls) == 2
            assert sum(isinstance(r, BudgetExceeded) for r in results) == 18
            assert spent(rein, f"budget/usd/session/{session.id}") == (800_000_000, 0)
    finally:
        rein.close()


WORKER = """
import sys
from checkrein import Rein
from checkrein.errors import BudgetExceeded
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost

OWN = {"mine": {"input": 1, "output": 10}}
rein = Rein(
    plugins=[Budget(usd=10, per="agent", estimate_usd=0.45, prices=OWN, halt=False),
             Cost(overlay=OWN)],
    store="sqlite:///" + sys.argv[1],
)
ran = 0
with rein.session(agent="shared"):
    for _ in range(20):
        try:
            rein.model_call(
                lambda *a, **k: {"usage": {"prompt_tokens": 400_000, "completion_tokens": 0}},
                model="mine",
                messages=[{"role": "user", "parts": []}],
            )
            ran += 1
        except BudgetExceeded:
            pass
rein.close()
print(ran)
"""


def test_four_processes_share_one_cap(tmp_path: Path) -> None:
    database = tmp_path / "book.db"
    Rein(store=f"sqlite:///{database}").close()
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(database)], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        for _ in range(4)
    ]  # fmt: skip
    ran = [int(worker.communicate(timeout=120)[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    rein = Rein(store=f"sqlite:///{database}")
    try:
        booked, held = spent(rein, "budget/usd/agent/shared")
        assert held == 0
        assert booked == sum(ran) * 400_000_000
        # 10.00 at 0.40, with room for a hold of 0.45 each time: 24 fit one after another, and
        # fewer only while others hold.
        assert booked <= 10 * NANO
        assert 22 <= sum(ran) <= 24
    finally:
        rein.close()


KILLED = """
import os, signal, sys
from checkrein import Rein
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost

rein = Rein(plugins=[Budget(usd=1, per="agent", estimate_usd=0.45), Cost()],
            store="sqlite:///" + sys.argv[1])
with rein.session(agent="shared"):
    rein.model_call(lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL), model="mine",
                    messages=[{"role": "user", "parts": []}])
"""


def test_a_killed_process_is_charged_its_hold(tmp_path: Path) -> None:
    database = tmp_path / "book.db"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(database)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == -signal.SIGKILL
    rein = Rein(
        plugins=[Budget(usd=1, per="agent", estimate_usd=0.45, prices=OWN), Cost(overlay=OWN)],
        store=f"sqlite:///{database}",
    )
    try:
        rein.recover()
        booked, held = spent(rein, "budget/usd/agent/shared")
        assert booked + held == 450_000_000
        ask_model(rein, lambda *a, **k: ANSWER, "sync", agent="shared")
        with pytest.raises(BudgetExceeded):
            ask_model(rein, lambda *a, **k: ANSWER, "sync", agent="shared")
    finally:
        rein.close()


@HOW
def test_what_fails_is_charged_and_leaves_no_hold(how: str) -> None:
    def broken(*args: Any, **more: Any) -> Any:
        raise ConnectionError("reset by peer")

    rein = Rein(plugins=[Budget(usd=10, per="agent", estimate_usd=0.45), Cost()])
    try:
        with pytest.raises(ConnectionError):
            ask_model(rein, broken, how, agent="a")
        assert spent(rein, "budget/usd/agent/a") == (450_000_000, 0)
        with pytest.raises(asyncio.CancelledError):
            ask_model(rein, raising(asyncio.CancelledError()), how, agent="b")
        assert spent(rein, "budget/usd/agent/b") == (450_000_000, 0)
    finally:
        rein.close()


def raising(error: BaseException) -> Any:
    def function(*args: Any, **more: Any) -> Any:
        raise error

    return function


@HOW
def test_an_unknown_model_is_charged_what_it_held(how: str) -> None:
    answer = {"model": "nobody-knows", "usage": {"prompt_tokens": 5, "completion_tokens": 5}}
    rein = Rein(plugins=[Budget(usd=10, per="agent"), Cost()])
    try:
        ask_model(rein, lambda *a, **k: answer, how, agent="a")
        booked, held = spent(rein, "budget/usd/agent/a")
        assert held == 0
        assert booked >= MAX_OUTPUT_TOKENS * UNKNOWN_OUTPUT_USD * NANO / 10**6
    finally:
        rein.close()


@HOW
def test_tokens_settle_at_what_was_used(how: str) -> None:
    rein = Rein(plugins=[Budget(tokens=500_000, per="agent"), Cost()])
    try:
        ask_model(rein, lambda *a, **k: ANSWER, how, agent="a")
        assert spent(rein, "budget/tokens/agent/a") == (400_000, 0)
    finally:
        rein.close()


@HOW
def test_a_denied_call_and_an_answered_one_take_nothing(how: str) -> None:
    class Other(Plugin):
        verdict: Any = Deny("no")

        def pre_call(self, call: Call) -> PreVerdict:
            return self.verdict  # type: ignore[no-any-return]

    other = Other()
    for order in ((0, 1), (1, 0)):
        plugins = [Budget(calls=1, per="agent"), other]
        rein = Rein(plugins=[plugins[i] for i in order])
        try:
            other.verdict = Deny("no")
            with pytest.raises(Denied):
                ask_model(rein, lambda *a, **k: ANSWER, how, agent="a")
            other.verdict = Answer("cached")
            assert ask_model(rein, lambda *a, **k: ANSWER, how, agent="a") == "cached"
            assert spent(rein, "budget/calls/agent/a") == (0, 0)
        finally:
            rein.close()


@HOW
@pytest.mark.parametrize("limit", [0, 2])
def test_four_parallel_calls_under_a_limit_of_two(how: str, limit: int) -> None:
    done: list[int] = []
    rein = Rein(plugins=[Budget(calls=limit)])
    try:
        with rein.session(on_error="keep") as session:
            if how == "sync":

                def tool(n: int) -> int:
                    done.append(n)
                    return n

                with ThreadPoolExecutor(4) as pool:
                    futures = [pool.submit(session.bind(rein.call), tool, n) for n in range(4)]
                    errors = [future.exception() for future in futures]
            else:

                async def atool(n: int) -> int:
                    done.append(n)
                    await asyncio.sleep(0)
                    return n

                async def run() -> list[Any]:
                    return await asyncio.gather(
                        *(rein.acall(atool, n) for n in range(4)), return_exceptions=True
                    )

                errors = [r if isinstance(r, BaseException) else None for r in asyncio.run(run())]
            refused = [e for e in errors if isinstance(e, BudgetExceeded)]
            assert len(done) == limit
            assert len(refused) == 4 - limit
            assert not any(e.halt for e in refused)
            assert spent(rein, f"budget/calls/session/{session.id}") == (limit, 0)
    finally:
        rein.close()


def test_two_budgets_over_one_account_are_refused_at_the_start() -> None:
    for first, second in (({"usd": 1}, {"usd": 5}), ({"usd": 1}, {"usd": 5, "calls": 1})):
        with pytest.raises(ConfigError, match="give one of them another name"):
            Rein(plugins=[Budget(**first), Budget(**second)])
    Rein(plugins=[Budget(usd=1), Budget(usd=5, name="other")]).close()
    Rein(plugins=[Budget(usd=1), Budget(usd=5, per="user"), Budget(usd=2, window=60)]).close()


def test_all_of_several_budgets_must_have_room() -> None:
    rein = Rein(plugins=[Budget(calls=2, per="user"), Budget(calls=3, per="tenant")])
    try:
        ran: list[str] = []

        def note(user: str) -> None:
            ran.append(user)

        for user in ("u1", "u1", "u1", "u2", "u2", "u2"):
            with (
                contextlib.suppress(BudgetExceeded),
                rein.session(user=user, tenant="t", on_error="keep"),
            ):
                rein.call(note, user)
        assert ran == ["u1", "u1", "u2"]
        assert spent(rein, "budget/calls/tenant/t") == (3, 0)
        assert spent(rein, "budget/calls/user/u2") == (1, 0)
    finally:
        rein.close()


def test_a_window_slides() -> None:
    now = [10**12]
    rein = Rein(plugins=[Budget(calls=2, per="agent", window=60)], clock=lambda: now[0])
    try:

        def go() -> bool:
            with rein.session(agent="a", on_error="keep"):
                try:
                    rein.call(lambda: None)
                except BudgetExceeded:
                    return False
                return True

        assert [go(), go(), go()] == [True, True, False]
        now[0] += 59_000_000
        assert not go()
        now[0] += 2_000_000
        assert [go(), go(), go()] == [True, True, False]
    finally:
        rein.close()


# Runs and calendars


@HOW
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_sub_agent_spends_its_parents_money(how: str, kind: str, tmp_path: Path) -> None:
    budget = Budget(usd=1, estimate_usd=0.45, prices=OWN)
    rein = Rein(plugins=[budget, Cost(overlay=OWN)], store=store_of(kind, tmp_path))
    calls: list[int] = []

    def provider(**request: Any) -> Any:
        calls.append(1)
        return ANSWER

    try:
        with rein.session(agent="parent", on_error="keep") as run:
            for agent in ("first", "second"):
                ask_model(rein, provider, how, agent=agent)
            with pytest.raises(BudgetExceeded):
                ask_model(rein, provider, how, agent="third")
            assert spent(rein, f"budget/usd/session/{run.id}") == (800_000_000, 0)
            assert run.spend().nano_usd == 800_000_000
        assert len(calls) == 2
    finally:
        rein.close()


@pytest.mark.parametrize(
    ("period", "zone", "times"),
    [
        ("day", "UTC", ["2026-03-01T23:59:59.999999+00:00", "2026-03-02T00:00:00+00:00"]),
        ("day", "Europe/Berlin", ["2026-03-01T22:59:59+00:00", "2026-03-01T23:00:00+00:00"]),
        ("month", "Asia/Kolkata", ["2026-03-31T18:29:59+00:00", "2026-03-31T18:30:00+00:00"]),
        # The hour from two to three comes twice.
        ("hour", "Europe/Berlin", ["2026-10-25T00:30:00+00:00", "2026-10-25T01:30:00+00:00"]),
    ],
)
def test_a_period_of_the_calendar_begins_anew(period: Any, zone: str, times: list[str]) -> None:
    before, after = (int(datetime.fromisoformat(t).timestamp() * 1e6) for t in times)
    now = [before]
    budget = Budget(calls=1, window=period, timezone=zone, per="user")
    with Rein(plugins=[budget], clock=lambda: now[0]) as rein, rein.session(user="u"):
        rein.call(str, 1)
        with pytest.raises(BudgetExceeded):
            rein.call(str, 1)
        now[0] = after
        rein.call(str, 1)
        assert len(rein.store.balances(f"budget/calls/user@{period}/")) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": "week"}, "budget.window"),
        ({"window": "day", "timezone": "Mars/Base"}, "budget.timezone: .*time zone"),
        ({"timezone": "Europe/Berlin"}, "budget.timezone: has a meaning with window"),
    ],
)
def test_bad_calendars_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Budget(calls=1, **settings)


def test_the_example_of_a_shared_cap() -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / "shared_cap.py"
    spec = importlib.util.spec_from_file_location("shared_cap", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.main() == (6, 2)
