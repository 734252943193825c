"""What supervision costs, side by side with agenthandler and LangChain's middlewares.

    python3 benchmarks/overhead.py            # prints tables and ratios
    python3 benchmarks/overhead.py --write    # and puts them into docs/benchmarks.md
    python3 benchmarks/overhead.py --quick    # a few rounds, to see that it runs

Makes its own environment. CPU time, medians over interleaved rounds, ratios of the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "benchmarks")]

PROSE = (
    "The customer wrote that the parcel arrived late and that the lamp inside was broken. "
    "We looked at the order, found the complaint justified, and agreed on a refund. "
)
FINDINGS = (
    "Write to casey.doyle@example.org or call 212-555-0142 about card 4111 1111 1111 1111, "
    "number 536-22-8145, from 192.0.2.17. "
)


def payload(text: str, size: int = 1024) -> str:
    """An argument of `size` characters: prose, and `text` before it.

    One flat string, because the peer looks at nothing else.
    """
    return text + (PROSE * 8)[: size - len(text)]


async def tool_async(body: str) -> str:
    """As `tool`."""
    return body


def tool(body: str) -> str:
    """A tool with one long text."""
    return body


def small(to: str, amount: int, note: str) -> int:  # noqa: ARG001 - a tool has parameters
    """A tool with a few short arguments."""
    return amount


async def small_async(to: str, amount: int, note: str) -> int:  # noqa: ARG001 - as `small`
    """As `small`."""
    return amount


def calls(folder: Path, rounds: int, scale: float) -> list[str]:
    """Supervised calls beside agenthandler's, in the same shapes."""
    from _bench import Case, measure, ratio, table
    from agenthandler import Policy, SqliteStore, Supervisor
    from agenthandler.session import SessionManager

    from checkrein import Plugin, Rein
    from checkrein_plugins.budget import Budget
    from checkrein_plugins.cost import Cost
    from checkrein_plugins.guardrails import Scope
    from checkrein_plugins.redaction import Redaction

    loop = asyncio.new_event_loop()

    def peer(make: Callable[[], Any], fn: Any, kwargs: dict[str, Any]) -> Callable[[int], None]:
        def run(n: int) -> None:
            supervisor = make()

            async def go() -> None:
                for _ in range(n):
                    result = await supervisor.call("tool", fn, **kwargs)
                    assert result.succeeded, result

            loop.run_until_complete(go())

        return run

    reins: list[Rein] = []

    def ours(rein: Rein, fn: Any, *args: Any) -> Callable[[int], None]:
        reins.append(rein)

        def run(n: int) -> None:
            with rein.session(agent="bench", on_error="keep"):
                call = rein.call
                for _ in range(n):
                    call(fn, *args)

        return run

    class Nothing(Plugin):
        def pre_call(self, call: Any) -> None:
            return None

        def post_call(self, call: Any, outcome: Any) -> None:
            return None

    def builtins() -> list[Plugin]:
        return [
            Redaction(),
            Scope(rules=[{"tool": "tool", "arguments": {"body": {"block": ["DROP TABLE"]}}}]),
            Budget(calls=100_000_000, per="session"),
            Cost(),
        ]

    def fresh(name: str) -> str:
        return f"sqlite:///{folder / name}.db"

    def peer_sqlite() -> Any:
        manager = SessionManager(SqliteStore(str(folder / f"peer-{time.time_ns()}.db")))
        session = manager.start("bench", {"max_iterations": 1_000_000, "redact": []})
        return manager.get_supervisor(session)

    arguments = {"to": "a", "amount": 1, "note": "x"}
    clean, dirty = payload(""), payload(FINDINGS)
    plain_policy = Policy(redact=[])
    full_policy = Policy(redact=None)

    def n(count: int) -> int:
        return max(20, int(count * scale))

    def nothing(count: int) -> None:
        for _ in range(count):
            small("a", 1, "x")

    cases = {
        "plain": Case("plain function call", nothing, n(20000)),
        "peer": Case(
            "agenthandler, no redaction",
            peer(lambda: Supervisor(plain_policy), small_async, arguments), n(1500),
        ),
        "bare": Case("checkrein, no plugins", ours(Rein(), small, "a", 1, "x"), n(1500)),
        "five": Case(
            "checkrein, five no-op plugins",
            ours(Rein([Nothing() for _ in range(5)]), small, "a", 1, "x"), n(1500),
        ),
        "peer_clean": Case(
            "agenthandler, redaction both ways, 1 KB clean",
            peer(lambda: Supervisor(full_policy), tool_async, {"body": clean}), n(300),
        ),
        "clean": Case(
            "checkrein, four built-ins, 1 KB clean", ours(Rein(builtins()), tool, clean), n(300)
        ),
        "peer_dirty": Case(
            "agenthandler, redaction both ways, 1 KB with five findings",
            peer(lambda: Supervisor(full_policy), tool_async, {"body": dirty}), n(300),
        ),
        "dirty": Case(
            "checkrein, four built-ins, 1 KB with five findings",
            ours(Rein(builtins()), tool, dirty), n(300),
        ),
        "peer_sqlite": Case(
            "agenthandler, SqliteStore session",
            peer(peer_sqlite, small_async, arguments), n(150),
        ),
        "sqlite": Case(
            "checkrein, SQLite journal, two commits",
            ours(Rein(store=fresh("bare")), small, "a", 1, "x"), n(500),
        ),
        "budget": Case(
            "checkrein, SQLite journal and one budget",
            ours(
                Rein([Budget(calls=100_000_000, per="agent")], store=fresh("budget")),
                small, "a", 1, "x",
            ),
            n(500),
        ),
    }  # fmt: skip
    measure(list(cases.values()), rounds)
    for rein in reins:
        rein.close()
    loop.close()
    c = cases
    return [
        "## One call",
        "",
        *table(list(c.values())),
        "",
        "| times cheaper than agenthandler | measured | aimed at | reached |",
        "| --- | ---: | ---: | --- |",
        ratio("bare call, memory", c["peer"], c["bare"], 5),
        ratio("four built-ins, 1 KB clean", c["peer_clean"], c["clean"], 6),
        ratio("four built-ins, 1 KB, five findings", c["peer_dirty"], c["dirty"], 3),
        ratio("SQLite journal", c["peer_sqlite"], c["sqlite"], 12),
        ratio("SQLite journal and one budget", c["peer_sqlite"], c["budget"], 8),
        "",
    ]


def _worker(url: str, count: int, queue: Any) -> None:
    from checkrein import Rein

    rein = Rein(store=url)
    waits: list[float] = []
    with rein.session(agent="worker"):
        for _ in range(count):
            begun = time.perf_counter()
            rein.call(small, "a", 1, "x")
            waits.append(time.perf_counter() - begun)
    rein.close()
    queue.put(waits)


def throughput(folder: Path, scale: float) -> list[str]:
    """Eight processes on one SQLite file."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    count = max(50, int(2500 * scale))
    url = f"sqlite:///{folder / 'shared.db'}"
    from checkrein import Rein

    Rein(store=url).close()
    workers = [context.Process(target=_worker, args=(url, count, queue)) for _ in range(8)]
    for worker in workers:
        worker.start()
    # The slowest start does not count: calls are timed inside the processes.
    all_waits = [queue.get() for _ in workers]
    for worker in workers:
        worker.join()
    waits = sorted(w for part in all_waits for w in part)
    longest = max(sum(part) for part in all_waits)
    rate = len(waits) / longest
    p999 = waits[min(len(waits) - 1, int(len(waits) * 0.999))] * 1000
    return [
        "## Eight processes on one SQLite file",
        "",
        (
            f"{len(waits)} calls, {rate:,.0f} calls/s in total (aimed at 3,000), "
            f"p50 {waits[len(waits) // 2] * 1000:.2f} ms, p99.9 {p999:.1f} ms (aimed at 250 ms)."
        ),
        "",
    ]


def langchain(rounds: int, scale: float) -> list[str]:
    """A LangChain agent turn: bare, with LangChain's own middlewares, with ours."""
    from _bench import Case, measure, table
    from langchain.agents import create_agent
    from langchain.agents.middleware import (
        HumanInTheLoopMiddleware,
        ModelCallLimitMiddleware,
        PIIMiddleware,
        ToolCallLimitMiddleware,
    )
    from langchain_core.messages import AIMessage, ToolCall
    from langchain_core.tools import tool as as_tool
    from langgraph.checkpoint.memory import InMemorySaver

    from checkrein import Rein
    from checkrein_integrations.langchain import CheckreinMiddleware
    from checkrein_integrations.testing.langchain import ScriptedChatModel
    from checkrein_plugins.budget import Budget
    from checkrein_plugins.guardrails import Scope
    from checkrein_plugins.redaction import Redaction

    @as_tool
    def pay(amount: int, to: str) -> str:
        """Pay somebody."""
        return f"paid {amount} to {to}"

    def script() -> list[Any]:
        call = ToolCall(name="pay", args={"amount": 5, "to": "casey@example.org"}, id="c1")
        return [AIMessage("", tool_calls=[call]), AIMessage("done, casey@example.org was paid")]

    def turn(middleware: Callable[[], list[Any]]) -> Callable[[int], None]:
        def run(n: int) -> None:
            made = middleware()
            for index in range(n):
                model = ScriptedChatModel(script=script())
                agent = create_agent(model, [pay], middleware=made, checkpointer=InMemorySaver())
                begun = time.process_time()
                agent.invoke(
                    {"messages": [("user", "refund casey@example.org please")]},
                    {"configurable": {"thread_id": f"{time.time_ns()}-{index}"}},
                )
                spent.append(time.process_time() - begun)

        return run

    spent: list[float] = []
    rein = Rein(
        [
            Redaction(),
            Scope(rules=[{"tool": "pay", "arguments": {"amount": {"ask_above": 100}}}]),
            Budget(calls=100_000_000, per="agent"),
        ]
    )

    def large(request: Any) -> bool:
        return bool(request.tool_call["args"]["amount"] > 100)

    def theirs() -> list[Any]:
        return [
            PIIMiddleware("email", apply_to_output=True, apply_to_tool_results=True),
            PIIMiddleware("credit_card", apply_to_output=True, apply_to_tool_results=True),
            PIIMiddleware("ip", apply_to_output=True, apply_to_tool_results=True),
            ModelCallLimitMiddleware(run_limit=50),
            ToolCallLimitMiddleware(run_limit=50),
            HumanInTheLoopMiddleware(
                interrupt_on={"pay": {"allowed_decisions": ["approve"], "when": large}}
            ),
        ]

    cases = [
        Case("bare agent", turn(list), max(5, int(40 * scale))),
        Case("LangChain's PII, call limits, approval", turn(theirs), max(5, int(40 * scale))),
        Case("CheckreinMiddleware: redaction, scope, budget",
             turn(lambda: [CheckreinMiddleware(rein)]), max(5, int(40 * scale))),
    ]  # fmt: skip

    # Building the agent is not part of a turn: only what `invoke` used counts.
    def only_turns(case: Case) -> Callable[[int], None]:
        return case.run

    for case in cases:
        case.run = only_turns(case)
    import statistics

    for case in cases:
        case.run(3)
    for _ in range(rounds):
        for case in cases:
            spent.clear()
            case.run(case.n)
            case.times.append(statistics.median(spent) * 1e6)
    rein.close()
    bare, lang, own = cases
    added = statistics.median(
        (o - b) / (t - b) for o, t, b in zip(own.times, lang.times, bare.times, strict=True)
    )
    del measure
    return [
        "## A LangChain agent turn (two model calls, one tool call, with a checkpointer)",
        "",
        *table(cases),
        "",
        f"What we add is {added:.2f} of what LangChain's own middlewares add (aimed at 0.5).",
        "",
    ]


def startup() -> list[str]:
    """What an import and a `--help` cost."""
    base = (
        "import resource; used = resource.getrusage(resource.RUSAGE_SELF); "
        "print(used.ru_utime + used.ru_stime)"
    )
    code = f"import checkrein; {base}"
    # As an installed program has it: compiled once, whatever this machine's settings are.
    compiled = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def cpu(text: str) -> float:
        runs = [
            float(subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                                 check=True, env=compiled).stdout)
            for _ in range(10)
        ]  # fmt: skip
        return sorted(runs[1:])[4]

    program = str(Path(sys.executable).with_name("checkrein"))
    helps: list[float] = []
    for _ in range(8):
        begun = time.perf_counter()
        subprocess.run([program, "--help"], capture_output=True, check=True, env=compiled)
        helps.append(time.perf_counter() - begun)
    loaded = (cpu(code) - cpu(base)) * 1000
    return [
        "## Starting",
        "",
        (
            f"`import checkrein`: {loaded:.0f} ms CPU over a bare interpreter (aimed at 100). "
            f"`checkrein --help`: {sorted(helps[1:])[3] * 1000:.0f} ms (aimed at 300)."
        ),
        "",
    ]


def memory(folder: Path, scale: float) -> list[str]:
    """Whether finished calls of a session stay in memory (SQLite store)."""
    from checkrein import Rein

    rein = Rein(store=f"sqlite:///{folder / 'memory.db'}")
    sizes: list[int] = []
    with rein.session(agent="long"):
        for _ in range(4):
            for _ in range(max(200, int(5000 * scale))):
                rein.call(small, "a", 1, "x")
            sizes.append(_resident())
    rein.close()
    return [
        "## Memory",
        "",
        (
            f"Resident size after each quarter of {4 * max(200, int(5000 * scale))} calls in one "
            f"session: {', '.join(f'{s / 1024:.1f}' for s in sizes)} MB."
        ),
        "",
    ]


def _resident() -> int:
    """Kilobytes that this process has in memory now."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize() // 1024


APART = "\n# Measured apart\n"
"""What follows it on the page comes from other benchmarks, and stays."""


def main() -> None:
    """Run all sections; print, and write on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it runs")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--only", action="append", default=[], metavar="SECTION",
                        help="calls, throughput, langchain, startup, memory")  # fmt: skip
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
        sections: dict[str, Callable[[], list[str]]] = {
            "calls": lambda: calls(folder, rounds, scale),
            "throughput": lambda: throughput(folder, scale),
            "langchain": lambda: langchain(rounds, scale),
            "startup": startup,
            "memory": lambda: memory(folder, scale),
        }
        lines = [
            "# Benchmarks", "",
            (
                "Made by `python3 benchmarks/overhead.py --write`, which makes its own environment "
                "(`python3 benchmarks/redaction.py` measures redaction alone, "
                "`python3 benchmarks/adapters.py` the adapters, `benchmarks/budget.py` and "
                "`benchmarks/totals.py` budgets and the bill), on:"
            ), "",
            f"> {machine()}", "",
            (
                f"CPU time unless it says otherwise; medians over {rounds} interleaved rounds; "
                "ratios are medians of the rounds' ratios."
            ), "",
        ]  # fmt: skip
        for name, section in sections.items():
            if not options.only or name in options.only:
                print(f"measuring {name} ...", file=sys.stderr, flush=True)
                lines += section()
    text = "\n".join(lines).rstrip() + "\n"
    print(text)
    if options.write:
        page = ROOT / "docs" / "benchmarks.md"
        _, mark, apart = page.read_text(encoding="utf-8").partition(APART)
        page.write_text(f"{text}{mark}{apart}", encoding="utf-8")


if __name__ == "__main__":
    main()
