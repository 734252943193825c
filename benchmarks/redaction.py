"""What redaction finds and how fast, beside agenthandler, LangChain and Presidio's patterns.

    python3 benchmarks/redaction.py            # prints tables
    python3 benchmarks/redaction.py --write    # and puts them into docs/benchmarks.md
    python3 benchmarks/redaction.py --quick    # a few rounds, to see that it runs

Makes its own environments: one with agenthandler and LangChain, one with Presidio; checkrein runs
in both. CPU time, medians over interleaved rounds. Every text is a new one in every round, so that
nothing gains by having seen it before. The first use of an environment installs it.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import logging
import os
import random
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
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


PRIVATE: dict[str, Callable[[], str]] = {
    "e-mail": lambda: f"casey.{next(SERIAL)}@example.org",
    "phone": lambda: RNG.choice(
        (figures("212-555-####"), figures("+44 20 7946 0###"), figures("(415) 555-####"))
    ),
    "card": lambda: RNG.choice(("4111 1111 1111 1111", "5555555555554444", "378282246310005")),
    "SSN": lambda: figures("536-22-4###"),
    "IBAN": lambda: RNG.choice(("DE89370400440532013000", "GB33 BUKB 2020 1555 5555 55")),
    "IP address": lambda: RNG.choice((figures("203.0.113.1#"), figures("2001:db8::8a2e:370:7##4"))),
    "key of a maker": lambda: RNG.choice(
        (
            "sk-ant-api03-" + figures("a#" * 20),
            "ghp_" + figures("aB#" * 12),
            "AKIA" + figures("Q#Z#" * 4),
            "xoxb-" + figures("#" * 12) + "-" + figures("aZ#" * 8),
        )
    ),
    "password in a URL": lambda: figures("s3cr3t##pw"),
}
"""Values by kind, made anew each time."""
FRAMES = ("{}", "it is {}, thanks", '{{"value": "{}"}}', "note: {}\n", "<td>{}</td>", "({})")


def private() -> tuple[str, str, str]:
    """(kind, a text, the value in it)."""
    kind = RNG.choice(list(PRIVATE))
    made = PRIVATE[kind]()
    if kind == "password in a URL":
        return kind, f"postgres://app:{made}@db.example.org/app", made
    word = {"phone": "call ", "SSN": "SSN ", "card": "card "}.get(kind, "")
    return kind, RNG.choice(FRAMES).format(word + made), made


Run = Callable[[str], str]


def cut_out(spans: Iterable[tuple[int, int]], given: str) -> str:
    """`given` with spans replaced, as whoever reports spans would have it."""
    last, parts = 0, []
    for start, end in sorted(spans):
        if start >= last:
            parts += [given[last:start], "[X]"]
            last = end
        else:
            last = max(last, end)
    return "".join([*parts, given[last:]])


def langchain_detectors() -> Run:
    """All detectors that LangChain's PIIMiddleware has built in, one after the other."""
    from langchain.agents.middleware._redaction import BUILTIN_DETECTORS

    def run(given: str) -> str:
        found = [match for find in BUILTIN_DETECTORS.values() for match in find(given)]
        return cut_out(((match["start"], match["end"]) for match in found), given)

    return run


def presidio_patterns() -> Run:
    """All of Presidio's recognisers that are patterns and need no model."""
    from presidio_analyzer import PatternRecognizer, RecognizerRegistry

    logging.disable(logging.ERROR)  # it looks for a list of domains in the net, and does without
    registry = RecognizerRegistry()
    registry.load_predefined_recognizers(languages=["en"])
    recognizers = [one for one in registry.recognizers if isinstance(one, PatternRecognizer)]

    def run(given: str) -> str:
        found = [
            (result.start, result.end)
            for one in recognizers
            for result in one.analyze(given, one.supported_entities, None)
            if result.score >= 0.3  # what has no context is reported at less
        ]
        return cut_out(found, given)

    return run


def systems() -> dict[str, Run]:
    """Whoever is installed in this environment."""
    from checkrein_plugins.redaction import redact

    found: dict[str, Run] = {"checkrein": redact}
    if os.environ["CHECKREIN_BENCH"] == "nlp":
        return {**found, "Presidio's patterns": presidio_patterns()}
    from agenthandler.redact import Redactor

    redactor = Redactor()
    return {
        **found,
        "agenthandler": lambda given: str(redactor.redact(given).text),
        "LangChain": langchain_detectors(),
    }


def speed(runs: dict[str, Run], every: int, rounds: int, size: int) -> dict[str, float]:
    """MB per CPU second, the median over interleaved rounds of fresh texts."""
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for index in range(rounds + 1):
        for name, run in runs.items():
            amount = size if name in ("checkrein", "agenthandler") else size // 4
            given = [text(4000, every) for _ in range(max(1, amount // 4000))]
            begun = time.process_time()
            for item in given:
                run(item)
            if index:
                speeds[name].append(sum(map(len, given)) / 1e6 / (time.process_time() - begun))
    return {name: sorted(found)[len(found) // 2] for name, found in speeds.items()}


def quality(runs: dict[str, Run], count: int) -> dict[str, dict[str, float]]:
    """By system: the share of values of each kind that is gone, and what changes where nothing is.

    `harmless`: findings in 100 KB of prose, logs, payloads and code without anything private.
    """
    samples = [private() for _ in range(count)]
    clean = [harmless() for _ in range(count)]
    told: dict[str, dict[str, float]] = {}
    for name, run in runs.items():
        kinds: dict[str, list[bool]] = {}
        for kind, given, made in samples:
            kinds.setdefault(kind, []).append(made not in run(given))
        told[name] = {kind: 100 * sum(found) / len(found) for kind, found in sorted(kinds.items())}
        changed = sum(run(given) != given for given in clean)
        told[name]["harmless"] = changed / sum(map(len, clean)) * 100_000
    return told


def nested(rounds: int, count: int) -> dict[str, float]:
    """CPU microseconds for 1 KB in a nested argument, medians."""
    from _bench import Case, measure
    from agenthandler.redact import Redactor

    from checkrein_plugins.redaction import redact_tree

    cases = []
    for found in (0, 5):
        arguments = [tree(found) for _ in range(count)]
        flats = [flat(argument) for argument in arguments]
        peer = Redactor()
        cases += [
            Case(f"checkrein {found}", _each(redact_tree, arguments), len(arguments)),
            Case(f"agenthandler {found}", _each(peer.redact_dict, flats), len(flats)),
        ]
    measure(cases, rounds)
    return {case.name: case.median for case in cases}


def child(rounds: int, scale: float) -> dict[str, Any]:
    """Everything that is measured in one environment."""
    begun = time.process_time()
    from checkrein_plugins.redaction import redact

    redact("first of all")
    cold = time.process_time() - begun
    runs = systems()
    size = int(400_000 * scale)
    result: dict[str, Any] = {
        "clean": speed(runs, 0, rounds, size),
        "mixed": speed(runs, 200, rounds, size),
        "quality": quality(runs, int(1500 * scale)),
        "hostile": {
            name: {peer: _limited(run, make(int((1 << 20) * scale))) for peer, run in runs.items()}
            for name, make in HOSTILE.items()
        },
    }
    if os.environ["CHECKREIN_BENCH"] != "nlp":
        from _bench import machine

        result |= {"nested": nested(rounds, int(2000 * scale)), "machine": machine(), "cold": cold}
    return result


def report(one: dict[str, Any], other: dict[str, Any], size: int) -> list[str]:
    """The page's section."""
    names = [*one["clean"], *(name for name in other["clean"] if name != "checkrein")]
    head = ["| | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]

    def row(title: str, key: str, pick: Callable[[Any], str], inner: str = "") -> str:
        values = []
        for name in names:
            source = one if name in one["clean"] else other
            found = source[key][inner] if inner else source[key]
            values.append(pick(found[name]))
        return f"| {title} | " + " | ".join(values) + " |"

    clean, mixed, both = one["clean"], one["mixed"], one["nested"]
    times = [
        ("MB/s of text without findings", clean["checkrein"], 30.0, ">="),
        ("MB/s of mixed text", mixed["checkrein"], 10.0, ">="),
        ("times agenthandler, clean text", clean["checkrein"] / clean["agenthandler"], 10.0, ">="),
        ("times agenthandler, mixed text", mixed["checkrein"] / mixed["agenthandler"], 10.0, ">="),
        ("us for 1 KB in a nested argument, clean", both["checkrein 0"], 10.0, "<"),
        ("us for the same with five findings", both["checkrein 5"], 60.0, "<"),
        ("s for the first call, imports with it", one["cold"], 0.5, "<"),
    ]
    kinds = sorted(set(one["quality"]["checkrein"]) - {"harmless"})
    return [
        "## Redaction", "",
        (
            "`python3 benchmarks/redaction.py --write`: checkrein beside agenthandler, the "
            "detectors of LangChain's PIIMiddleware and Presidio's patterns. CPU time, medians."
        ), "",
        f"> {one['machine']}", "",
        *head,
        row("MB/s, text without findings", "clean", lambda v: f"{v:.2f}"),
        row("MB/s, a value in 200 characters", "mixed", lambda v: f"{v:.2f}"),
        *(
            f"| {kind}, % masked | "
            + " | ".join(
                f"{(one if name in one['clean'] else other)['quality'][name][kind]:.0f}"
                for name in names
            )
            + " |"
            for kind in kinds
        ),
        "| harmless lines changed, per 100 KB | "
        + " | ".join(
            f"{(one if name in one['clean'] else other)['quality'][name]['harmless']:.1f}"
            for name in names
        )
        + " |",
        *(
            row(f"{size:,} characters of {name}", "hostile", str, name) for name in HOSTILE
        ), "",
        "| | measured | aimed at | reached |", "| --- | ---: | ---: | --- |",
        *(
            f"| {what} | {value:.1f} | {sign} {goal:g} | "
            f"{'yes' if (value >= goal if sign == '>=' else value < goal) else 'NO'} |"
            for what, value, goal, sign in times
        ), "",
        (
            f"agenthandler needs {both['agenthandler 0']:.0f} us for the 1 KB, flat, and "
            f"{both['agenthandler 5']:.0f} us with five findings."
        ),
    ]  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it runs")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args()
    rounds, scale = (3, 0.1) if options.quick else (11, 1.0)
    if "CHECKREIN_BENCH" in os.environ:
        print(json.dumps(child(rounds, scale)))
        return
    import environments

    told = []
    for name in ("benchmarks", "nlp"):
        print(f"measuring in the environment {name} ...", file=sys.stderr, flush=True)
        python = environments.ensure(environments.load()[name])
        done = subprocess.run(
            [str(python), *sys.argv], check=True, stdout=subprocess.PIPE, text=True,
            env=environments.child_environment(CHECKREIN_BENCH=name),
        )  # fmt: skip
        told.append(json.loads(done.stdout.splitlines()[-1]))
    lines = report(told[0], told[1], int((1 << 20) * scale))
    print("\n".join(lines))
    if options.write:
        page = ROOT / "docs" / "benchmarks.md"
        before, _, rest = page.read_text(encoding="utf-8").partition(f"\n{lines[0]}\n")
        following = rest.find("\n## ")
        after = rest[following:] if following >= 0 else ""
        section = "\n".join(lines)
        page.write_text(f"{before.rstrip()}\n\n{section}\n{after}", encoding="utf-8")


def _each(run: Callable[[Any], Any], items: list[Any]) -> Callable[[int], None]:
    def repeat(count: int) -> None:
        for item in items[:count]:
            run(item)

    return repeat


def _limited(run: Run, given: str, limit: int = 5) -> str:
    """CPU seconds that `run` takes, in a process that is stopped after `limit`."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        begun = time.process_time()
        run(given)
        os.write(write, f"{time.process_time() - begun:.2f} s".encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return told or f"over {limit} s"


if __name__ == "__main__":
    main()
