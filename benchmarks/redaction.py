"""How fast text is redacted, side by side with agenthandler and LangChain's detectors.

    python3 benchmarks/redaction.py            # prints tables
    python3 benchmarks/redaction.py --quick    # a few rounds, to see that it runs

Makes its own environment. CPU time, medians over interleaved rounds. Every text is a new one in
every round, so that nothing gains by having seen it before.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import os
import random
import resource
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "benchmarks")]

SENTENCES = (
    "The customer wrote that the parcel arrived late and that the lamp inside was broken. ",
    "We looked at the order, found the complaint justified, and agreed on a refund. ",
    "Please have a look at the attached report before the meeting on Thursday. ",
    "Nobody in the team had seen this before, so we asked the vendor for advice. ",
)
RNG = random.Random(time.time_ns())  # noqa: S311 - texts to measure with, no secrets
SERIAL = itertools.count()


def figures(pattern: str) -> str:
    """`pattern` with every # replaced by a figure."""
    return "".join(str(RNG.randrange(10)) if char == "#" else char for char in pattern)


def value() -> str:
    """Something private."""
    return RNG.choice(
        (
            f"mail casey.{next(SERIAL)}@example.org",
            figures("call 212-555-####"),
            "card 4111 1111 1111 1111",
            figures("SSN 536-22-4###"),
            figures("from 192.0.2.1#"),
            "key sk-ant-api03-" + figures("a#" * 20),
        )
    )


def harmless() -> str:
    """A line of prose, a log or a payload without anything private."""
    return RNG.choice(
        (
            RNG.choice(SENTENCES),
            figures("2026-03-1# 09:2#:5# INFO worker-# done in ####ms\n"),
            f'{{"id": "{uuid.UUID(int=RNG.getrandbits(128))}", "ok": true, "n": {next(SERIAL)}}}\n',
            f"commit {RNG.getrandbits(160):040x}\n",
            "def total(self, rows):\n    return sum(row.price for row in rows)\n",
        )
    )


def text(size: int, every: int = 0) -> str:
    """`size` characters; with `every`, about one private value per so many."""
    parts: list[str] = []
    length = since = 0
    while length < size:
        part = harmless()
        if every and since >= every:
            part, since = f"{value()} ", 0
        parts.append(part)
        length += len(part)
        since += len(part)
    return "".join(parts)[:size]


def tree(found: int) -> dict[str, Any]:
    """About 1 KB in a nested argument, with `found` private values in it."""
    values = [value() for _ in range(found)] + [""] * 5
    return {
        "customer": {"name": f"Acme {next(SERIAL)}", "notes": [text(200), f"see {values[0]}"]},
        "request": {"body": f"{text(300)} {values[1]} {values[2]} {text(250)}", "urgent": True},
        "log": ({"line": f"{values[3]} {text(150)}"}, f"then {values[4]} "),
    }


def flat(argument: dict[str, Any]) -> dict[str, str]:
    """The strings of `tree`, as agenthandler and LangChain need them."""
    customer, request, log = argument["customer"], argument["request"], argument["log"]
    texts = [customer["name"], *customer["notes"], request["body"], log[0]["line"], log[1]]
    return {f"text{index}": item for index, item in enumerate(texts)}


HOSTILE: dict[str, Callable[[int], str]] = {
    "a.a.a.": lambda n: "a." * (n // 2),
    "1-1-1-": lambda n: "1-" * (n // 2),
    "one word": lambda n: "a" * n,
    "eyJ...": lambda n: "eyJaaaaaaa." * (n // 11),
    "PEM headers": lambda n: "-----BEGIN PRIVATE KEY-----\n" * (n // 28),
    "Base64": lambda n: base64.b64encode(RNG.randbytes(n * 3 // 4)).decode(),
    "figures": lambda n: "".join(RNG.choices("0123456789 -.", k=n)),
}


def langchain_detectors() -> Callable[[str], Any]:
    """All detectors that LangChain's PIIMiddleware has built in, one after the other."""
    from langchain.agents.middleware._redaction import BUILTIN_DETECTORS

    def run(given: str) -> list[Any]:
        return [find(given) for find in BUILTIN_DETECTORS.values()]

    return run


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it runs")
    options = parser.parse_args()
    if "CHECKREIN_BENCH" not in os.environ:
        import environments

        python = environments.ensure(environments.load()["benchmarks"])
        os.execve(  # noqa: S606 - this script again, in its own environment
            python, [str(python), *sys.argv],
            environments.child_environment(CHECKREIN_BENCH="1"),
        )  # fmt: skip
    from _bench import Case, machine, measure, table
    from agenthandler.redact import Redactor

    from checkrein_plugins.redaction import redact, redact_tree

    begun = time.process_time()
    redact("first of all")
    cold = time.process_time() - begun
    peer, detectors = Redactor(), langchain_detectors()
    everybody: list[tuple[str, Callable[[str], Any]]] = [
        ("checkrein", redact), ("agenthandler", peer.redact), ("LangChain", detectors),
    ]  # fmt: skip
    rounds, scale = (3, 0.1) if options.quick else (11, 1.0)

    print(f"# Redaction\n\n> {machine()}\n\nFirst call: {cold * 1000:.0f} ms of CPU.\n")
    for title, every in (("without", 0), ("with about one value in 200 characters", 200)):
        print(f"## Text {title}\n\n| | MB per CPU second |\n| --- | ---: |")
        size = int(400_000 * scale)
        for name, run in everybody:
            speeds = []
            for index in range(rounds + 1):
                given = [text(4000, every) for _ in range(size // 4000)]
                begun = time.process_time()
                for item in given:
                    run(item)
                if index:
                    speeds.append(sum(map(len, given)) / 1e6 / (time.process_time() - begun))
            print(f"| {name} | {sorted(speeds)[len(speeds) // 2]:.1f} |")
        print()
    cases = []
    for found in (0, 5):
        arguments = [tree(found) for _ in range(int(2000 * scale))]
        flats = [flat(argument) for argument in arguments]
        cases += [
            Case(f"checkrein, {found} findings", _each(redact_tree, arguments), len(arguments)),
            Case(f"agenthandler, {found} findings", _each(peer.redact_dict, flats), len(flats)),
        ]
    measure(cases, rounds)
    print("## 1 KB in a nested argument\n")
    print("\n".join(table(cases)), "\n")
    size = int((1 << 20) * scale)
    print(f"## Hostile texts of {size:,} characters\n\n| | checkrein | agenthandler | LangChain |")
    print("| --- | ---: | ---: | ---: |")
    for name, make in HOSTILE.items():
        seconds = [_limited(run, make(size)) for _, run in everybody]
        print(f"| {name} | {' | '.join(seconds)} |")


def _each(run: Callable[[Any], Any], items: list[Any]) -> Callable[[int], None]:
    def repeat(count: int) -> None:
        for item in items[:count]:
            run(item)

    return repeat


def _limited(run: Callable[[str], Any], given: str, limit: int = 10) -> str:
    """CPU seconds that `run` takes, in a process that is stopped after `limit`."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        begun = time.process_time()
        run(given)
        os.write(write, f"{time.process_time() - begun:.2f} s".encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told or f"over {limit} s"


if __name__ == "__main__":
    main()
