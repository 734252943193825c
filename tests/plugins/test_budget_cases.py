"""Faults of other budgets, each as it was reported, and what happens here instead.

D10, D15, D22 to D25 and D36 are cases from issue threads of agent frameworks and gateways;
those named after a tool were seen in it. Where a case needs a framework, it is beside that
framework's tests (D10: CrewAI's `test_model_calls`; D15: the conformance scenario `model_fails`;
D36: `test_model_stream` and the Agents SDK's `test_own_loop`).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein
from checkrein.call import NANO, Call, Usage
from checkrein.errors import BudgetExceeded, Denied
from checkrein.hooks import Plugin
from checkrein.verdicts import Deny, PreVerdict
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost, PriceBook

HOW = pytest.mark.parametrize("how", ["sync", "async"])
STORE = pytest.mark.parametrize("store", ["memory:", "sqlite"])
MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "go"}]}]
PRICES = {"mine": {"input": 1, "output": 10}}


def url_of(store: str, folder: Path) -> str:
    return store if store == "memory:" else f"sqlite:///{folder}/s.db"


def adds_up(rein: Rein) -> None:
    """What is enforced is the ledger plus the live holds, and the bill says the same."""
    for balance in rein.store.balances():
        live = sum(hold.amount for hold in rein.store.holds(account=balance.account))
        assert balance.held == live
    assert rein.store.rebuild() == []
    rows = rein.store.costs(limit=1000).rows
    for by in ("session", "agent", "task", "user", "tenant"):
        totals = rein.store.totals(by)
        assert sum(t.cost for t in totals) == sum(row.cost or 0 for row in rows)
        assert sum(t.tokens for t in totals) == sum(row.tokens for row in rows)


def side_by_side(how: str, count: int, rein: Rein, one: Callable[[], Any]) -> list[Any]:
    """`count` calls at once, in threads or in tasks; what each gave or raised."""
    if how == "sync":
        gate = threading.Barrier(count)

        def tried() -> Any:
            gate.wait()
            try:
                return one()
            except Exception as error:
                return error

        bound = rein.current_session().bind(tried)
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(lambda _: bound(), range(count)))

    async def main() -> list[Any]:
        return await asyncio.gather(*(one() for _ in range(count)), return_exceptions=True)

    return asyncio.run(main())


# D10


@HOW
@STORE
@pytest.mark.parametrize("streamed", [False, True])
def test_d10_parallel_tasks_are_not_charged_each_others_tokens(
    how: str, store: str, streamed: bool, tmp_path: Path
) -> None:
    """Tasks A (50 tokens) and B (30) at the same time, and their manager (20)."""
    tokens = {"A": 50, "B": 30, "manager": 20}
    both = threading.Barrier(2)

    def chunks(task: str) -> list[Any]:
        usage = {"prompt_tokens": tokens[task], "completion_tokens": 0}
        return [{"choices": [{"delta": {"content": task}}]}, {"choices": [], "usage": usage}]

    with Rein(plugins=[Cost(overlay=PRICES)], store=url_of(store, tmp_path)) as rein:

        def provider(task: str) -> Callable[..., Any]:
            def answer(**_: Any) -> Any:
                if task != "manager" and how == "sync":
                    both.wait(10)
                return iter(chunks(task)) if streamed else chunks(task)[1]

            return answer

        def run(task: str) -> None:
            with rein.session(agent="one agent", task=task):
                if streamed:
                    list(rein.model_stream(provider(task), model="mine", messages=MESSAGES))
                else:
                    rein.model_call(provider(task), model="mine", messages=MESSAGES)

        async def arun(task: str) -> None:
            async with rein.session(agent="one agent", task=task):
                await asyncio.sleep(0)
                if streamed:
                    stream = rein.amodel_stream(provider(task), model="mine", messages=MESSAGES)
                    async for _ in stream:
                        await asyncio.sleep(0)
                else:
                    await rein.amodel_call(provider(task), model="mine", messages=MESSAGES)

        if how == "sync":
            with rein.session(task="manager"):
                run("manager")
                with ThreadPoolExecutor(2) as pool:
                    list(pool.map(rein.current_session().bind(run), ("A", "B")))
        else:

            async def crew() -> None:
                async with rein.session(task="manager"):
                    await arun("manager")
                    await asyncio.gather(arun("A"), arun("B"))

            asyncio.run(crew())
        assert {t.key: t.tokens for t in rein.store.totals("task")} == tokens
        (whole,) = rein.store.totals()
        assert whole.tokens == 100
        adds_up(rein)


# D15


@HOW
@pytest.mark.parametrize("streamed", [False, True])
def test_d15_tokens_that_are_paid_for_stay_when_a_later_call_fails(
    how: str, streamed: bool
) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    plugins = [Budget(usd=1, prices=PRICES, estimate_usd=0.25), Cost(overlay=PRICES)]
    with Rein(plugins=plugins) as rein:
        answers: list[Any] = [usage, usage, ConnectionError("down")]

        def provider(**_: Any) -> Any:
            turn = answers.pop(0)
            if isinstance(turn, Exception):
                raise turn
            return iter([{"choices": [], "usage": turn}]) if streamed else {"usage": turn}

        async def turn() -> None:
            if streamed:
                async for _ in rein.amodel_stream(provider, model="mine", messages=MESSAGES):
                    pass
            else:
                await rein.amodel_call(provider, model="mine", messages=MESSAGES)

        def agent() -> None:
            for _ in range(3):
                if how == "async":
                    asyncio.run(turn())
                elif streamed:
                    list(rein.model_stream(provider, model="mine", messages=MESSAGES))
                else:
                    rein.model_call(provider, model="mine", messages=MESSAGES)

        session = rein.session()
        with pytest.raises(ConnectionError), session:
            agent()
        spend = session.spend()  # also after it failed
        assert (spend.tokens, spend.calls, spend.estimated) == (30, 3, 1)
        assert spend.nano_usd == 2 * (10 + 50) * 1000 + 250_000_000
        balance = rein.store.balance(f"budget/usd/session/{session.id}")
        assert balance is not None
        assert (balance.spent, balance.held) == (spend.nano_usd, 0)
        adds_up(rein)


# D22


WORKER = """
import os, sys, time
from pathlib import Path
from checkrein import Rein
from checkrein.errors import BudgetExceeded
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost

store, folder = sys.argv[1], Path(sys.argv[2])
prices = {"mine": {"input": 1, "output": 0}}
rein = Rein([Budget(usd=1, per="user", estimate_usd=0.45, prices=prices, halt=False),
             Cost(overlay=prices)], store=store)

def provider(**_):
    os.write(1, b"ran\\n")
    while not (folder / "go").exists():
        time.sleep(0.005)
    return {"usage": {"prompt_tokens": 400_000, "completion_tokens": 0}}

import threading
def one():
    with rein.session(user="ann", on_error="keep"):
        try:
            rein.model_call(provider, model="mine", messages=[])
        except BudgetExceeded:
            os.write(1, b"refused\\n")
threads = [threading.Thread(target=one) for _ in range(5)]
for t in threads: t.start()
for t in threads: t.join()
rein.close()
"""


def test_d22_twenty_calls_of_four_processes_at_once_fit_twice(tmp_path: Path) -> None:
    """Threads and tasks of one process: `test_twenty_calls_at_once_fit_twice`."""
    store = f"sqlite:///{tmp_path}/s.db"
    Rein(store=store).close()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, store, str(tmp_path)],
                         stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(4)
    ]  # fmt: skip
    said: list[str] = []

    def listen(worker: subprocess.Popen[str]) -> None:
        assert worker.stdout is not None
        said.extend(line.strip() for line in worker.stdout)
        worker.stdout.close()

    listeners = [threading.Thread(target=listen, args=(worker,)) for worker in workers]
    for listener in listeners:
        listener.start()
    deadline = time.monotonic() + 60
    while len(said) < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    with Rein(store=store) as rein:
        balance = rein.store.balance("budget/usd/user/ann")
        assert balance is not None
        assert (balance.spent, balance.held) == (0, 900_000_000), "reserved, not yet settled"
    (tmp_path / "go").touch()
    for worker, listener in zip(workers, listeners, strict=True):
        listener.join(30)
        assert worker.wait(30) == 0
    assert sorted(said) == ["ran"] * 2 + ["refused"] * 18
    with Rein(store=store) as rein:
        balance = rein.store.balance("budget/usd/user/ann")
        assert balance is not None
        assert (balance.spent, balance.held) == (800_000_000, 0)
        adds_up(rein)


# D23 (a killed process: `test_a_killed_process_is_charged_its_hold`, `test_budget_kills`)


class Refuses(Plugin):
    def pre_call(self, call: Call) -> PreVerdict:
        return Deny("no") if call.labels.get("refuse") else None


@HOW
@STORE
@pytest.mark.parametrize("road", ["error", "cancel", "deny", "abandon"])
def test_d23_no_road_leaves_a_hold(how: str, store: str, road: str, tmp_path: Path) -> None:
    plugins = [Budget(usd=1, prices=PRICES, estimate_usd=0.25), Cost(overlay=PRICES), Refuses()]
    with Rein(plugins=plugins, store=url_of(store, tmp_path)) as rein:
        session = rein.session(on_error="keep")

        def broken(**_: Any) -> Any:
            raise KeyboardInterrupt if road == "cancel" else ConnectionError

        def stream(**_: Any) -> Any:
            yield from [{"choices": [{"delta": {"content": "text " * 10}}]}] * 100

        async def slow(**_: Any) -> Any:
            await asyncio.sleep(30)

        async def later() -> None:
            if road == "cancel":
                task = asyncio.ensure_future(
                    rein.amodel_call(slow, model="mine", messages=MESSAGES)
                )
                await asyncio.sleep(0.02)
                task.cancel()
                await task
            elif road == "abandon":
                async with rein.amodel_stream(stream, model="mine", messages=MESSAGES) as chunks:
                    async for _ in chunks:
                        return
            else:
                await rein.amodel_call(broken, model="mine", messages=MESSAGES)

        def now() -> None:
            if road == "abandon":
                next(rein.model_stream(stream, model="mine", messages=MESSAGES))
            else:
                rein.model_call(broken, model="mine", messages=MESSAGES)

        with session, rein.options(labels={"refuse": "yes"} if road == "deny" else {}):
            try:
                if how == "sync":
                    now()
                else:
                    asyncio.run(later())
            except (ConnectionError, KeyboardInterrupt, asyncio.CancelledError, Denied):
                pass
        balance = rein.store.balance(f"budget/usd/session/{session.id}")
        if road == "deny":
            assert balance is None, "nothing was taken"
        else:
            assert balance is not None
            assert balance.held == 0
            (row,) = rein.store.costs().rows
            assert (row.cost, row.state) == (balance.spent, "estimated")
            if road == "abandon":
                assert 0 < balance.spent < 250_000_000, "as far as it came"
            else:
                assert balance.spent == 250_000_000, "it may have been served"
        adds_up(rein)


# D24


@HOW
@pytest.mark.parametrize(
    ("model", "response"),
    [
        ("nobody-knows", {"usage": {"prompt_tokens": 10, "completion_tokens": 5}}),
        ("mine", {"text": "no usage"}),
        ("mine", {"usage": {"prompt_tokens": -1, "completion_tokens": 5}}),
    ],
)
def test_d24_success_without_a_price_or_usage_is_not_free(
    how: str, model: str, response: Any, caplog: pytest.LogCaptureFixture
) -> None:
    plugins = [Budget(usd=1, prices=PRICES, estimate_usd=0.25), Cost(overlay=PRICES)]
    with Rein(plugins=plugins) as rein, rein.session() as session:
        for _ in range(2):
            if how == "sync":
                rein.model_call(lambda **_: response, model=model, messages=MESSAGES)
            else:
                asyncio.run(rein.amodel_call(lambda **_: response, model=model, messages=MESSAGES))
        rows = rein.store.costs().rows
        assert [(row.cost, row.state) for row in rows] == [(250_000_000, "unpriced")] * 2
        assert session.spend().nano_usd == 500_000_000
        adds_up(rein)
    warnings = [r for r in caplog.records if r.name == "checkrein.cost"]
    assert len(warnings) == 1, "once for each model"


def test_d24_unpriced_models_can_be_refused_and_a_zero_stays_zero() -> None:
    ran: list[int] = []
    free = {"local": {"input": 0, "output": 0}}
    with (
        Rein(plugins=[Budget(usd=1, unpriced="deny", prices=free)]) as rein,
        rein.session(on_error="keep"),
        pytest.raises(Denied, match="no price is known"),
    ):
        rein.model_call(lambda **_: ran.append(1), model="nobody", messages=MESSAGES)
    assert not ran
    with Rein(plugins=[Budget(usd=0, prices=free), Cost(overlay=free)]) as rein, rein.session():
        usage = {"usage": {"prompt_tokens": 10**6, "completion_tokens": 10**6}}
        rein.model_call(lambda **_: usage, model="local", messages=MESSAGES)
        (row,) = rein.store.costs().rows
        assert (row.cost, row.state, row.tokens) == (0, "reported", 2 * 10**6)


def test_d24_without_a_cached_rate_cached_tokens_cost_the_full_one() -> None:
    price = PriceBook(PRICES).find("mine")
    assert price is not None
    assert price.cost(Usage(1000, 0, cache_read_tokens=900))[0] == 1_000_000


# D25


@pytest.mark.parametrize(
    ("response", "dollars", "state"),
    [
        # Anthropic's style: written beside the input.
        ({"input_tokens": 3, "cache_creation_input_tokens": 12304, "cache_read_input_tokens": 0,
          "output_tokens": 550}, (3 * 3 + 12304 * 3.75 + 550 * 15) / 1e6, "reported"),
        # OpenAI's style: read and written inside the prompt, of which ten tokens are left.
        ({"prompt_tokens": 98805, "completion_tokens": 0, "prompt_tokens_details": {
            "cached_tokens": 66360, "cache_write_tokens": 32435}},
         (10 * 3 + 66360 * 0.3 + 32435 * 3.75) / 1e6, "reported"),
        # More was read than there was.
        ({"prompt_tokens": 100, "completion_tokens": 0, "prompt_tokens_details": {
            "cached_tokens": 500}}, 500 * 0.3 / 1e6, "estimated"),
    ],
)  # fmt: skip
def test_d25_cached_tokens_are_priced_once(response: Any, dollars: float, state: str) -> None:
    prices = {"mine": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}}
    with Rein(plugins=[Cost(overlay=prices)]) as rein, rein.session():
        rein.model_call(lambda **_: {"usage": response}, model="mine", messages=MESSAGES)
        (row,) = rein.store.costs().rows
    assert row.state == state
    assert row.cost == round(dollars * 1e9)


# Seen in agenthandler


@HOW
def test_a_token_budget_of_100_lets_two_of_twenty_calls_of_50_through(how: str) -> None:
    """There all twenty ran at once, and further ones after it was spent."""
    ran: list[int] = []
    with (
        Rein(plugins=[Budget(tokens=100, estimate_tokens=50, halt=False)]) as rein,
        rein.session(on_error="keep"),
    ):

        def answer(**_: Any) -> Any:
            ran.append(1)
            return {"usage": {"prompt_tokens": 50, "completion_tokens": 0}}

        def one() -> Any:
            call = rein.model_call if how == "sync" else rein.amodel_call
            return call(answer, model="mine", messages=MESSAGES, usage=used)

        def used(_: Any) -> Usage:
            return Usage(50)

        found = side_by_side(how, 20, rein, one)
        assert sum(isinstance(e, BudgetExceeded) for e in found) == 18
        with pytest.raises(BudgetExceeded):
            rein.model_call(answer, model="mine", messages=MESSAGES)
    assert len(ran) == 2


@HOW
def test_calls_are_counted_without_being_told(how: str) -> None:
    """There `max_iterations` counted only what the loop itself reported."""
    with Rein(plugins=[Budget(calls=2)]) as rein, rein.session(on_error="keep"):

        def one() -> Any:
            return rein.call(len, "x") if how == "sync" else rein.acall(len, "x")

        found = side_by_side(how, 10, rein, one)
    assert sum(value == 1 for value in found) == 2


@HOW
@pytest.mark.parametrize("reported", [{"tokens": "5"}, {"tokens": -5}, {"tokens": 1.5}, {}, None])
def test_usage_of_a_tool_that_is_none_breaks_nothing(how: str, reported: Any) -> None:
    """There a text where a number was expected raised out of a call that never raises."""
    with (
        Rein(plugins=[Budget(tokens=1000, estimate_tokens=300)]) as rein,
        rein.session() as session,
    ):

        @rein.tool(effect="read", usage=lambda result: Usage(result["tokens"]))
        def tool() -> Any:
            return reported

        assert (rein.call(tool) if how == "sync" else asyncio.run(rein.acall(tool))) == reported
        balance = rein.store.balance(f"budget/tokens/session/{session.id}")
    assert balance is not None
    assert (balance.spent, balance.held) == (300, 0), "charged at its hold"


@pytest.mark.parametrize("name", ["gpt-4o-2024-08-06", "openai/gpt-4o", "gpt-5-mini"])
def test_names_of_a_model_have_its_price(name: str) -> None:
    """There they cost nothing; in agent-aegis gpt-5-mini cost what an unknown model does."""
    price, plain = PriceBook().find(name), PriceBook().find(name.rpartition("/")[2])
    assert price is not None
    assert plain is not None
    assert price.bound(10**6, 0) == plain.bound(10**6, 0) != 0
    unknown = PriceBook().find("gpt-4o")
    assert unknown is not None
    if name == "gpt-5-mini":
        assert price.bound(10**6, 0) != unknown.bound(10**6, 0)


@HOW
def test_each_tool_is_charged_its_own_price(how: str) -> None:
    """There a price was charged to the tool that failed next."""
    prices = {"dear": 0.5, "cheap": 0.01}
    plugins = [Budget(usd=1, tool_prices=prices), Cost(tool_prices=prices)]
    with Rein(plugins=plugins) as rein, rein.session(on_error="keep"):

        @rein.tool(effect="read")
        def dear() -> None: ...

        @rein.tool(effect="read")
        def cheap() -> None:
            raise ValueError

        for tool in (dear, cheap):
            try:
                rein.call(tool) if how == "sync" else asyncio.run(rein.acall(tool))
            except ValueError:
                continue
        assert {t.key: t.cost for t in rein.store.totals("tool")} == {
            "dear": NANO // 2, "cheap": NANO // 100
        }  # fmt: skip
        adds_up(rein)


@HOW
def test_five_calls_a_minute_over_eight_threads(how: str) -> None:
    """There up to ten passed: check and count were two steps."""
    with Rein(plugins=[Budget(calls=5, window=60)]) as rein, rein.session(on_error="keep"):

        def one() -> Any:
            return rein.call(len, "x") if how == "sync" else rein.acall(len, "x")

        found = side_by_side(how, 24, rein, one)
    assert sum(value == 1 for value in found) == 5


# Seen in the Agent Governance Toolkit, agent-aegis and LangChain's middlewares


@HOW
def test_a_cap_of_five_is_five(how: str) -> None:
    """There the sixth ran."""
    with Rein(plugins=[Budget(calls=5)]) as rein, rein.session(on_error="keep"):
        ran = 0
        for _ in range(8):
            try:
                rein.call(len, "x") if how == "sync" else asyncio.run(rein.acall(len, "x"))
            except BudgetExceeded:
                continue
            ran += 1
    assert ran == 5


@HOW
def test_fifty_calls_of_a_tenth_fit_ten_times_in_a_dollar(how: str) -> None:
    """There, with a check before each call, fifty ran and five dollars were spent."""
    usage = {"usage": {"prompt_tokens": 100_000, "completion_tokens": 0}}
    plugins = [Budget(usd=1, estimate_usd=0.1, prices=PRICES), Cost(overlay=PRICES)]
    with Rein(plugins=plugins) as rein, rein.session(on_error="keep") as session:

        def one() -> Any:
            call = rein.model_call if how == "sync" else rein.amodel_call
            return call(lambda **_: usage, model="mine", messages=MESSAGES)

        found = side_by_side(how, 50, rein, one)
        assert session.spend().nano_usd == NANO
    assert sum(value is usage for value in found) == 10


@HOW
def test_identical_calls_are_no_overspending(how: str) -> None:
    """There the fifth identical model call was refused at a ten-thousandth of the budget."""
    usage = {"usage": {"prompt_tokens": 1, "completion_tokens": 0}}
    plugins = [Budget(usd=100, prices=PRICES), Cost(overlay=PRICES)]
    with Rein(plugins=plugins) as rein, rein.session():
        for _ in range(10):
            if how == "sync":
                rein.model_call(lambda **_: usage, model="mine", messages=MESSAGES)
            else:
                asyncio.run(rein.amodel_call(lambda **_: usage, model="mine", messages=MESSAGES))


@HOW
def test_a_limit_of_one_user_holds_over_ten_runs_at_once(how: str) -> None:
    """There `thread_limit=2` let ten concurrent runs of one thread through."""
    with Rein(plugins=[Budget(calls=2, per="user")]) as rein:

        def run() -> Any:
            with rein.session(user="ann", on_error="keep"):
                return rein.call(len, "x")

        async def arun() -> Any:
            async with rein.session(user="ann", on_error="keep"):
                await asyncio.sleep(0)
                return await rein.acall(len, "x")

        found = side_by_side(how, 10, rein, run if how == "sync" else arun)
    assert sum(value == 1 for value in found) == 2
