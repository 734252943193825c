"""What looking costs: spans, verifying chains, anchors, exports, the HTML report.

    python3 benchmarks/telemetry.py [CALLS]     # 100,000 by default

Needs the extras `otel` and `crypto`. CPU time; medians over interleaved rounds for spans.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / part) for part in ("benchmarks", "core", "plugins", "integrations")]

from _bench import Case, machine, measure, table  # noqa: E402 - found by the lines above
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.trace import use_span  # noqa: E402

from checkrein import Call, Outcome, Rein, anchors, export  # noqa: E402
from checkrein.call import ToolInfo  # noqa: E402
from checkrein.html_report import html_report  # noqa: E402
from checkrein.replay import Replay  # noqa: E402
from checkrein.telemetry import Telemetry, use  # noqa: E402

NO_SDK_GOAL, SDK_GOAL = 1.5, 1.15
VERIFY_GOAL = 250_000
REPORTED = 10_000


def main() -> None:
    """Measure and print."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    print(f"> {machine()}\n")
    spans()
    with tempfile.TemporaryDirectory() as folder:
        store(f"sqlite:///{folder}/r.db", calls)
    page()


def spans() -> None:
    """One call's span: ours, and a bare one with the same attributes and events."""
    call = Call("c-1", "s-1", "tool", "charge", {"order": 1}, ToolInfo("charge"), agent="desk")
    outcome = Outcome("done", "ok")
    provider = TracerProvider()
    tracer = provider.get_tracer("bare")
    idle, live = Telemetry(), Telemetry(provider)
    kept = live.call(call)
    live.verdict(kept, "budget", "hold")
    live.finish(kept, outcome, None)
    begun = {k: kept.attributes[k] for k in kept.attributes if not k.startswith("checkrein.e")}
    begun = {k: v for k, v in begun.items() if k not in ("checkrein.source", "checkrein.attempts")}
    ended = {k: v for k, v in kept.attributes.items() if k not in begun}
    about = dict(kept.events[0].attributes)

    def none() -> None:
        span = idle.call(call)
        idle.verdict(span, "budget", "hold")
        idle.finish(span, outcome, None)

    def bare() -> None:
        span = tracer.start_span("execute_tool charge", attributes=begun)
        with use_span(
            span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        ):
            span.add_event("checkrein.verdict", about)
        for name, value in ended.items():
            span.set_attribute(name, value)
        span.end()

    def ours() -> None:
        span = live.call(call)
        with use(span):
            live.verdict(span, "budget", "hold")
        live.finish(span, outcome, None)

    cases = [
        Case("a span without an SDK", times(none), 50_000),
        Case("bare SDK span, same attributes and event", times(bare), 5_000),
        Case("checkrein's span", times(ours), 5_000),
    ]
    measure(cases, 11)
    print("\n".join(table(cases)))
    ratio = statistics.median(a / b for a, b in zip(cases[2].times, cases[1].times, strict=True))
    print(f"\nwithout an SDK {cases[0].median:.2f} us (aimed at {NO_SDK_GOAL}); ")
    print(f"with one {ratio:.2f} of the bare span (aimed at {SDK_GOAL})\n")


def store(url: str, calls: int) -> None:
    """Chains, anchors and exports of a SQLite store."""
    rein = Rein(store=url)

    @rein.tool(name="charge")
    def charge(order: int, note: str) -> dict[str, object]:  # noqa: ARG001 - one that is recorded
        return {"order": order, "paid": True}

    per = 2_500
    for _ in range(max(1, calls // per)):
        with rein.session(agent="desk"):
            for order in range(per):
                charge(order, "a note of some length")
    rows = rein.store.events(reverse=True, limit=1)[0].seq
    print("| what | rows | CPU | rows/s |\n| --- | ---: | ---: | ---: |")

    def verify() -> None:
        after = None
        while True:
            found = rein.store.sessions(after=after, limit=500)
            assert all(rein.store.verify(row.id) is None for row in found.rows)
            after = found.next
            if after is None:
                return

    rate = told("verify every chain", rows, verify)
    signer = anchors.Signer(bytes(32))
    told("anchor all of it", rows, lambda: signer.anchor(rein.store, rein.clock))
    told("check the anchors", rows, lambda: anchors.check(rein.store, signer.public_key))
    before = memory()
    told("export", rows, lambda: sum(1 for _ in export.rows(rein.store)))
    print(f"\nverify: {rate:,.0f} rows/s (aimed at {VERIFY_GOAL:,}); ", end="")
    print(f"the export added {memory() - before:.0f} MB to the largest memory\n")
    rein.close()


def told(name: str, rows: int, step: Callable[[], object]) -> float:
    """Run once, print a row, return rows per second of CPU."""
    begun = time.process_time()
    step()
    seconds = time.process_time() - begun
    print(f"| {name} | {rows:,} | {seconds:.2f} s | {rows / seconds:,.0f} |")
    return rows / seconds


def page() -> None:
    """The HTML report of a long session."""
    with Rein(store="memory:") as rein:

        @rein.tool(name="charge")
        def charge(order: int, note: str) -> dict[str, object]:  # noqa: ARG001 - one that is recorded
            return {"order": order, "paid": True}

        with rein.session(agent="desk") as session:
            for order in range(REPORTED):
                charge(order, "a note of some length")
        begun = time.process_time()
        text = html_report(Replay(session))
        seconds = time.process_time() - begun
    size = len(text.encode()) / 1e6
    print(f"report of {REPORTED:,} calls: {seconds:.2f} s, {size:.1f} MB (at most 5)")


def memory() -> float:
    """Largest resident memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def times(step: Callable[[], object]) -> Callable[[int], None]:
    """`step()`, n times."""

    def run(count: int) -> None:
        for _ in range(count):
            step()

    return run


if __name__ == "__main__":
    main()
