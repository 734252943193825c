"""Budgets side by side with agenthandler and agent-aegis: who holds the cap, and what it costs.

    python3 benchmarks/budget.py            # prints tables
    python3 benchmarks/budget.py --quick    # a few rounds, to see that it runs

Makes its own environment. The cap is 1.00 dollar (for agenthandler, which counts tokens, 1,000
tokens); a call costs 0.40. CPU time, medians over interleaved rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "benchmarks")]

CALLS = 20
MODEL = "gpt-4o"
MESSAGES: list[Any] = []
PRICES = {MODEL: {"input": 1, "output": 10}}
ANSWER = {"model": MODEL, "usage": {"prompt_tokens": 400_000, "completion_tokens": 0}}
"""Forty cents at the prices above."""


class Provider:
    """Answers once everybody who may come has come: all calls are under way at once."""

    def __init__(self, wait: bool) -> None:
        self.calls = 0
        self._lock = threading.Lock()
        self._open = threading.Event()
        if wait:
            threading.Timer(0.3, self._open.set).start()
        else:
            self._open.set()

    def __call__(self, **_: Any) -> dict[str, Any]:
        with self._lock:
            self.calls += 1
        self._open.wait()
        return ANSWER


def at_once(one: Callable[[], object], parallel: bool) -> None:
    """`CALLS` calls, one after another or side by side; what is refused is refused."""

    def tried() -> None:
        with contextlib.suppress(Exception):
            one()

    if not parallel:
        for _ in range(CALLS):
            tried()
        return
    with ThreadPoolExecutor(CALLS) as pool:
        for _ in range(CALLS):
            pool.submit(tried)


def ours(folder: Path, parallel: bool) -> tuple[int, float]:
    """(calls that reached the provider, dollars spent)."""
    from checkrein import Rein
    from checkrein_plugins.budget import Budget
    from checkrein_plugins.cost import Cost

    provider = Provider(parallel)
    plugins = [Budget(usd=1, prices=PRICES, estimate_usd=0.45), Cost(overlay=PRICES)]
    with (
        Rein(plugins, store=f"sqlite:///{folder / f'{parallel}.db'}") as rein,
        rein.session(on_error="keep") as session,
    ):

        def one() -> Any:
            return rein.model_call(provider, model=MODEL, messages=MESSAGES)

        at_once(session.bind(one) if parallel else one, parallel)
        return provider.calls, session.spend().usd


def agenthandler(_: Path, parallel: bool) -> tuple[int, float]:
    """As `ours`; 1,000 tokens for a dollar."""
    from agenthandler import Policy, Supervisor

    supervisor = Supervisor(Policy(token_budget=1000, max_iterations=1000, redact=[]))
    ran = 0

    async def tool() -> dict[str, int]:
        nonlocal ran
        ran += 1
        if parallel:
            await asyncio.sleep(0.05)
        return {"tokens_used": 400}

    async def go() -> None:
        if parallel:
            await asyncio.gather(
                *(supervisor.call("tool", tool) for _ in range(CALLS)), return_exceptions=True
            )
            return
        for _ in range(CALLS):
            await supervisor.call("tool", tool)

    asyncio.run(go())
    return ran, supervisor.budget().tokens_used / 1000


def aegis(_: Path, parallel: bool) -> tuple[int, float]:
    """As `ours`, asked before every call with what it will cost, and told afterwards."""
    from aegis.core.budget import BudgetAction, CostTracker, ModelPricing, TokenUsage

    pricing = ModelPricing()
    pricing.register(MODEL, 1, 10)
    # Its loop detector refuses the fifth identical call whatever is left of the budget.
    tracker = CostTracker(1.0, pricing=pricing, loop_threshold=10_000)
    provider = Provider(parallel)

    def one() -> None:
        if tracker.check_budget(0.40) == BudgetAction.HARD_LIMIT:
            return
        provider()
        tracker.record(TokenUsage(model=MODEL, input_tokens=400_000, output_tokens=0))

    at_once(one, parallel)
    return provider.calls, tracker.spent


def caps(folder: Path) -> list[str]:
    """Who holds the cap."""
    lines = [
        f"## A cap of 1.00, {CALLS} calls of 0.40: two fit", "",
        "| | calls let through, one after another | spent | side by side | spent |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for name, run in (("checkrein", ours), ("agenthandler", agenthandler), ("agent-aegis", aegis)):
        cells = [cell for parallel in (False, True) for cell in run(folder, parallel)]
        lines.append(f"| {name} | {cells[0]} | {cells[1]:.2f} | {cells[2]} | {cells[3]:.2f} |")
    return [*lines, ""]


def costs(folder: Path, rounds: int, scale: float) -> list[str]:
    """What an admission and a row of the bill cost."""
    from _bench import Case, measure, table
    from aegis.core.budget import CostTracker, TokenUsage
    from agenthandler import Policy, Supervisor

    from checkrein import Plugin, Rein
    from checkrein.verdicts import Measured
    from checkrein_plugins.budget import Budget
    from checkrein_plugins.cost import Cost

    loop = asyncio.new_event_loop()
    reins: list[Rein] = []

    def small(amount: int) -> int:
        return amount

    async def asmall(amount: int) -> dict[str, int]:
        return {"tokens_used": amount}

    def call(plugins: list[Any], store: str = "memory:") -> Callable[[int], None]:
        rein = Rein(plugins, store=store)
        reins.append(rein)

        def run(count: int) -> None:
            with rein.session(agent="bench", on_error="keep"):
                one = rein.call
                for _ in range(count):
                    one(small, 1)

        return run

    def model(plugins: list[Any], store: str) -> Callable[[int], None]:
        rein = Rein(plugins, store=store)
        reins.append(rein)

        def answer(**_: Any) -> Any:
            return {"model": MODEL, "usage": {"prompt_tokens": 10, "completion_tokens": 5}}

        def run(count: int) -> None:
            with rein.session(agent="bench", on_error="keep"):
                for _ in range(count):
                    rein.model_call(answer, model=MODEL, messages=MESSAGES)

        return run

    def peer(policy: Policy) -> Callable[[int], None]:
        def run(count: int) -> None:
            supervisor = Supervisor(policy)

            async def go() -> None:
                for _ in range(count):
                    await supervisor.call("tool", asmall, amount=1)

            loop.run_until_complete(go())

        return run

    def tracked(count: int) -> None:
        tracker = CostTracker(1e9, loop_threshold=10**9)
        usage = TokenUsage(model=MODEL, input_tokens=10, output_tokens=5)
        for _ in range(count):
            tracker.check_budget(0.01)
            tracker.record(usage)

    class Measures(Plugin):
        """What `Cost` is without a price book."""

        def __init__(self, measured: Measured | None) -> None:
            self.measured = measured

        def measure(self, call: Any, outcome: Any) -> Measured | None:
            return self.measured

    known = Measured(cost=30_000_000, state="reported", price="stated")

    def fresh(name: str) -> str:
        return f"sqlite:///{folder / name}.db"

    def n(count: int) -> int:
        return max(20, int(count * scale))

    many = 2**40
    cases = {
        "memory": Case("checkrein, a call in memory", call([]), n(3000)),
        "memory_budget": Case("... and a budget of calls", call([Budget(calls=many)]), n(3000)),
        "sqlite": Case("checkrein, a journalled call (SQLite)", call([], fresh("a")), n(500)),
        "sqlite_budget": Case(
            "... and a budget of calls", call([Budget(calls=many)], fresh("b")), n(500)
        ),
        "measure": Case(
            "checkrein, a journalled call and a measure of nothing",
            call([Measures(None)], fresh("f")),
            n(500),
        ),
        "row": Case("... and a row of the bill", call([Measures(known)], fresh("g")), n(500)),
        "model": Case(
            "checkrein, a journalled model call", model([Measures(known)], fresh("c")), n(300)
        ),
        "model_cost": Case(
            "... and its usage read and priced", model([Cost()], fresh("d")), n(300)
        ),
        "model_budget": Case(
            "... and a budget in dollars", model([Cost(), Budget(usd=10**9)], fresh("e")), n(300)
        ),
        "peer": Case("agenthandler, no token budget", peer(Policy(redact=[])), n(1000)),
        "peer_budget": Case(
            "agenthandler, token budget", peer(Policy(redact=[], token_budget=many)), n(1000)
        ),
        "aegis": Case("agent-aegis, check_budget and record alone", tracked, n(5000)),
    }
    measure(list(cases.values()), rounds)
    for rein in reins:
        rein.close()
    loop.close()
    c = cases

    def added(name: str, base: str, goal: float) -> str:
        more = sorted(a - b for a, b in zip(c[name].times, c[base].times, strict=True))
        value = more[len(more) // 2]
        return f"{value:.1f} us | {goal:g} us | {'yes' if value < goal else 'NO'} |"

    return [
        "## What it costs", "", *table(list(c.values())), "",
        "| what is added | measured | aimed at | reached |",
        "| --- | ---: | ---: | --- |",
        f"| a hold in memory | {added('memory_budget', 'memory', 4)}",
        f"| a hold on a journalled call | {added('sqlite_budget', 'sqlite', 45)}",
        f"| a row of the bill, once the price is known | {added('row', 'measure', 10)}",
        f"| reading the usage of a model call and pricing it | {added('model_cost', 'model', 25)}",
        f"| an estimate and a hold in dollars | {added('model_budget', 'model_cost', 60)}",
        "",
    ]  # fmt: skip


def main() -> None:
    """Run both sections and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it runs")
    options = parser.parse_args()
    if "CHECKREIN_BENCH" not in os.environ:
        import environments

        environment = environments.load()["benchmarks"]
        python = environments.ensure(environment)
        os.execve(  # noqa: S606 - this script again, in its own environment
            python, [str(python), *sys.argv],
            environments.child_environment(CHECKREIN_BENCH="1"),
        )  # fmt: skip
    from _bench import machine

    rounds, scale = (3, 0.1) if options.quick else (11, 1.0)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        lines = [f"> {machine()}", "", *caps(folder), *costs(folder, rounds, scale)]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
