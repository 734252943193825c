"""The tables of the bill, and how a row of it is written."""

from __future__ import annotations

from typing import Any

from checkrein.store import CostRow

SUMMED = (
    "cost", "tokens", "input", "output", "cache_read", "cache_write", "reasoning", "audio", "saved"
)  # fmt: skip
KEPT = ("calls", *SUMMED, "estimated", "unpriced")
"""What is added up."""

SCHEMA = (
    """CREATE TABLE costs (
        seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, sid INTEGER NOT NULL, kind TEXT NOT NULL,
        name TEXT NOT NULL, agent TEXT NOT NULL, task TEXT NOT NULL, user TEXT NOT NULL,
        tenant TEXT NOT NULL, role TEXT NOT NULL, state TEXT NOT NULL, cost INTEGER,
        tokens INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL,
        cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL, reasoning INTEGER NOT NULL,
        audio INTEGER NOT NULL, saved INTEGER NOT NULL, source TEXT NOT NULL) STRICT""",
    f"""CREATE TABLE rollups (
        dimension TEXT NOT NULL, level INTEGER NOT NULL, bucket INTEGER NOT NULL,
        value TEXT NOT NULL, {", ".join(f"{c} INTEGER NOT NULL" for c in KEPT)},
        PRIMARY KEY (dimension, level, bucket, value)) STRICT, WITHOUT ROWID""",
    "INSERT INTO meta VALUES ('folded', '0')",
)
COLUMNS = (
    "kind", "name", "agent", "task", "user", "tenant", "role", "state", "cost", "tokens", "input",
    "output", "cache_read", "cache_write", "reasoning", "audio", "saved", "source",
)  # fmt: skip
INSERT = f"INSERT INTO costs VALUES (?, ?, ?{', ?' * len(COLUMNS)})"
"""Values: number and time of the event, its session's row, then `bill_values`."""


def bill_values(row: CostRow) -> tuple[Any, ...]:
    """A row without its number, session and time: those are the event's."""
    return (
        row.kind, row.name, row.agent, row.task, row.user, row.tenant, row.role, row.state,
        row.cost, row.tokens, row.input, row.output, row.cache_read, row.cache_write,
        row.reasoning, row.audio, row.saved, row.source,
    )  # fmt: skip
