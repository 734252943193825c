"""Redaction of nested values: one search over all leaves, a rebuild where something was found."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from checkrein.errors import ConfigError
from checkrein_plugins.redaction.engine import Engine
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.leaves import BINARY, KEY, Leaves
from checkrein_plugins.redaction.memory import LEAST, Memory, Recent
from checkrein_plugins.redaction.policy import PLAIN, Policy
from checkrein_plugins.redaction.rebuild import Rebuild
from checkrein_plugins.redaction.text import DEFAULT, engine_for, known, located, replaced


def _by_leaf(found: list[Finding], parts: list[str]) -> dict[int, list[Finding]]:
    """Findings in the joined text by number of the leaf, in the offsets of the leaf."""
    by_leaf: dict[int, list[Finding]] = {}
    ends = list(accumulate(map(len, parts)))
    at = end = -1
    start, here = 0, list[Finding]()
    for first, last, category, subtype in found:
        if first >= end:  # in another leaf than the one before
            at = bisect_right(ends, first, at + 1)
            at -= at % 2  # a separator belongs to the leaf in front of it
            start = ends[at - 1] if at else 0
            end = ends[at]
            here = by_leaf.setdefault(at, [])
        here.append(Finding(first - start, min(last, end) - start, category, subtype))
    return by_leaf


def redacted(
    value: Any,
    engine: Engine,
    chosen: Policy = PLAIN,
    binary: str = "refuse",
    skipped: frozenset[str] = frozenset(),
    memory: Memory | None = None,
    recent: Recent | None = None,
    missed: set[str] | None = None,
) -> tuple[Any, dict[int, list[Finding]]]:
    """Return (`value` with its findings replaced as `chosen` says, findings by leaf).

    The very `value` and no findings if it is clean. `memory` must be used with one engine and one
    `chosen` only, `recent` with one engine only. `missed` gets the names of finders that failed
    and may; None = none may.
    """
    leaves = Leaves(binary, skipped)
    leaves.add(value)
    parts = leaves.parts
    by_leaf: dict[int, list[Finding]] = {}
    new_texts: dict[int, str] = {}
    fresh = _recall(parts, memory, by_leaf, new_texts) if memory is not None else ()
    joined = "".join(parts)
    kept, passed, marks = chosen.kept, chosen.warned, chosen.marks
    if recent:
        found = recent.located(joined, engine, kept, passed, missed)
    else:
        found = located(joined, engine, kept, passed, missed)
    if found:
        here = _by_leaf(found, parts)
        for index, findings in here.items():
            by_leaf[index] = findings
            text = parts[index]
            new = replaced(text, findings, marks)
            if not passed or new != text:
                new_texts[index] = new
    if memory is not None and not missed:
        for index, digest in fresh:
            memory.put(digest, new_texts.get(index), by_leaf.get(index, []))
    if not by_leaf:
        return value, by_leaf
    if not new_texts:
        return value, {index // 2: findings for index, findings in by_leaf.items()}
    texts: list[str | None] = [None] * (len(parts) // 2)
    for index, text in new_texts.items():
        texts[index // 2] = text
    made = Rebuild(iter(texts), binary, skipped).of(value, "")
    return made, {index // 2: findings for index, findings in by_leaf.items()}


def _recall(
    parts: list[str], memory: Memory, by_leaf: dict[int, list[Finding]], known: dict[int, str]
) -> list[tuple[int, bytes]]:
    """Take long texts whose result is known out of `parts`; return the others with their digest."""
    fresh: list[tuple[int, bytes]] = []
    for index in range(0, len(parts), 2):
        text = parts[index]
        if len(text) < LEAST:
            continue
        name = parts[index - 2] if index and parts[index - 1] == KEY else ""
        digest = memory.digest(name, text)
        result = memory.get(digest)
        if result is None:
            fresh.append((index, digest))
            continue
        parts[index] = ""
        if result[0] is not None:
            known[index] = result[0]
        if result[1]:
            by_leaf[index] = result[1]
    return fresh


def redact_tree(
    value: Any, categories: Iterable[str] | None = None, *, binary: str = "refuse"
) -> Any:
    """Return `value` with every finding in it replaced; the same object if there is none.

    Types are kept, and so are all parts that hold nothing. A whole number that is a finding
    becomes its placeholder. Keys that become equal are numbered. `binary="keep"` passes bytes that
    are not UTF-8 unchecked.

    Raises:
        ConfigError: an unknown category.
        DetectorFailed: a detector failed.
        Unredactable: cyclic, too deep, not UTF-8, or a class that cannot be rebuilt; `.path`.
    """
    if binary not in BINARY:
        raise ConfigError(f"binary: {binary!r} is none of {', '.join(BINARY)}")
    engine = engine_for(DEFAULT if categories is None else known(categories))
    return redacted(value, engine, binary=binary)[0]
