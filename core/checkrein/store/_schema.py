"""The SQLite schema, its versions, and who may read which.

Events are one table, append-only but for the columns of the payload (`salt`, `data`, `place`),
which are outside the hash and can be emptied. They stand in the same row because a commit's
price is the number of pages that it touches (a table of their own: 12 us of CPU more for the
two commits of a call). Rows of `sessions` and `records` are projections, written with the
events; their integer keys are the order of creation, and so the cursors of pages. Where a
session's chain ends (`n`, `head`) stands in its row when it ends; before that it is written late,
see `_marks`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from checkrein.errors import StoreUnavailable
from checkrein.store import _marks
from checkrein.store._bill_rows import COLUMNS, SCHEMA

APPLICATION_ID = 0x63726E31
"""Marks a SQLite file as ours ("crn1")."""

_EVENT = "seq, sid, n, kind, call, attempt, at, ref, prev, hash, view, salt, data, place"
_NEW_EVENT = ", ".join(f"new.{column}" for column in _EVENT.split(", "))

# `kind` is the event's in the views below.
_COST = ", ".join(("what", *COLUMNS[1:]))
_NEW_COST = ", ".join(f"new.{column}" for column in _COST.split(", "))
_BILLED = f"INSERT INTO costs VALUES (new.seq, new.at, new.sid, {_NEW_COST});"

_VERSION_1 = (
    """CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID""",
    """CREATE TABLE sessions (
        sid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
        rollback TEXT NOT NULL, stopped INTEGER NOT NULL, owner TEXT NOT NULL,
        fence INTEGER NOT NULL, n INTEGER NOT NULL, head BLOB NOT NULL,
        created INTEGER NOT NULL, updated INTEGER NOT NULL, parent TEXT NOT NULL,
        agent TEXT NOT NULL, body TEXT NOT NULL) STRICT""",
    "CREATE INDEX sessions_state ON sessions (state)",
    "CREATE INDEX sessions_rollback ON sessions (rollback)",
    # Counts by standing are read from this alone; no other question begins with `stopped`.
    "CREATE INDEX sessions_standing ON sessions (stopped, state, rollback, owner)",
    "CREATE INDEX sessions_agent ON sessions (agent)",
    "CREATE INDEX sessions_owner ON sessions (owner) WHERE owner != ''",
    "CREATE INDEX sessions_parent ON sessions (parent) WHERE parent != ''",
    """CREATE TABLE events (
        seq INTEGER PRIMARY KEY, sid INTEGER NOT NULL, n INTEGER NOT NULL, kind TEXT NOT NULL,
        call TEXT NOT NULL, attempt INTEGER NOT NULL, at INTEGER NOT NULL, ref BLOB NOT NULL,
        prev BLOB NOT NULL, hash BLOB NOT NULL, view TEXT NOT NULL,
        salt BLOB, data BLOB, place TEXT) STRICT""",
    *_marks.TABLES,
    """CREATE UNIQUE INDEX events_single ON events (call, kind, attempt)
        WHERE kind IN ('intent', 'outcome')""",
    "CREATE INDEX events_call ON events (call) WHERE kind NOT IN ('intent', 'outcome')",
    """CREATE TABLE records (
        rid INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL,
        session TEXT NOT NULL, label TEXT NOT NULL, created INTEGER NOT NULL,
        updated INTEGER NOT NULL, body TEXT NOT NULL, UNIQUE (kind, id)) STRICT""",
    "CREATE INDEX records_kind ON records (kind)",
    "CREATE INDEX records_state ON records (kind, state)",
    "CREATE INDEX records_label ON records (kind, label) WHERE label != ''",
    "CREATE INDEX records_session ON records (session) WHERE session != ''",
    # spent: all that was ever booked. recent: what `bookings` holds, of the last `span`
    # microseconds, for accounts with a window.
    """CREATE TABLE accounts (
        account TEXT PRIMARY KEY, unit TEXT NOT NULL, spent INTEGER NOT NULL,
        held INTEGER NOT NULL, recent INTEGER NOT NULL, span INTEGER NOT NULL)
        STRICT, WITHOUT ROWID""",
    """CREATE TABLE holds (
        id TEXT PRIMARY KEY, account TEXT NOT NULL, amount INTEGER NOT NULL,
        unit TEXT NOT NULL, settle TEXT NOT NULL, call TEXT NOT NULL, session TEXT NOT NULL,
        span INTEGER NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    # To close a hold is to insert here. What counts in a window counts from the hold's time.
    "CREATE VIEW settles (id, actual) AS SELECT '', 0 WHERE 0",
    """CREATE TRIGGER settles_hold INSTEAD OF INSERT ON settles BEGIN
        UPDATE accounts SET held = held - (SELECT amount FROM holds WHERE id = new.id),
            spent = spent + new.actual,
            recent = recent + iif((SELECT span FROM holds WHERE id = new.id), new.actual, 0)
            WHERE account = (SELECT account FROM holds WHERE id = new.id);
        INSERT INTO bookings SELECT account, at, new.actual FROM holds
            WHERE id = new.id AND span AND new.actual
            ON CONFLICT (account, at) DO UPDATE SET amount = amount + excluded.amount;
        DELETE FROM holds WHERE id = new.id;
        END""",
    # To write an event and take a hold, or close one, in one statement: insert here.
    f"""CREATE VIEW takings
        ({_EVENT}, hold, account, unit, amount, room, settle, owner, session)
        AS SELECT {", ".join(["0"] * 22)} WHERE 0""",
    f"""CREATE TRIGGER takings_event INSTEAD OF INSERT ON takings BEGIN
        UPDATE accounts SET held = held + new.amount WHERE account = new.account
            AND unit = new.unit AND spent + held + new.amount <= new.room;
        SELECT RAISE(ABORT, 'no room') WHERE changes() = 0;
        INSERT INTO holds VALUES (new.hold, new.account, new.amount, new.unit, new.settle,
            new.owner, new.session, 0, new.at);
        INSERT INTO events VALUES ({_NEW_EVENT});
        END""",
    # The same for a hold with a window, which slides first (see `_write`).
    f"""CREATE VIEW slidings
        ({_EVENT}, hold, account, unit, amount, room, settle, owner, session, span)
        AS SELECT {", ".join(["0"] * 23)} WHERE 0""",
    f"""CREATE TRIGGER slidings_event INSTEAD OF INSERT ON slidings BEGIN
        UPDATE accounts SET recent = recent - (SELECT sum(b.amount) FROM bookings b
            WHERE b.account = new.account AND b.at <= new.at - max(span, new.span))
            WHERE account = new.account AND EXISTS (SELECT 1 FROM bookings b
            WHERE b.account = new.account AND b.at <= new.at - max(span, new.span));
        DELETE FROM bookings WHERE account = new.account AND at <= new.at -
            (SELECT max(span, new.span) FROM accounts WHERE account = new.account);
        UPDATE accounts SET held = held + new.amount, span = max(span, new.span)
            WHERE account = new.account AND unit = new.unit AND held + new.amount +
            CASE WHEN span <= new.span THEN recent ELSE (SELECT coalesce(sum(amount), 0)
            FROM bookings WHERE account = new.account AND at > new.at - new.span) END <= new.room;
        SELECT RAISE(ABORT, 'no room') WHERE changes() = 0;
        INSERT INTO holds VALUES (new.hold, new.account, new.amount, new.unit, new.settle,
            new.owner, new.session, new.span, new.at);
        INSERT INTO events VALUES ({_NEW_EVENT});
        END""",
    f"CREATE VIEW settlings ({_EVENT}, hold, actual) AS SELECT {', '.join(['0'] * 16)} WHERE 0",
    f"""CREATE TRIGGER settlings_event INSTEAD OF INSERT ON settlings BEGIN
        INSERT INTO events VALUES ({_NEW_EVENT});
        INSERT INTO settles VALUES (new.hold, new.actual);
        END""",
    """CREATE TABLE bookings (
        account TEXT NOT NULL, at INTEGER NOT NULL, amount INTEGER NOT NULL,
        PRIMARY KEY (account, at)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE owners (
        id TEXT PRIMARY KEY, host TEXT NOT NULL, boot TEXT NOT NULL, pid INTEGER NOT NULL,
        started TEXT NOT NULL, beat INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    *SCHEMA,
    # To write an event and what it cost, and close a hold, in one statement: insert here.
    f"""CREATE VIEW costings ({_EVENT}, {_COST})
        AS SELECT {", ".join(["0"] * (14 + len(COLUMNS)))} WHERE 0""",
    f"""CREATE TRIGGER costings_event INSTEAD OF INSERT ON costings BEGIN
        INSERT INTO events VALUES ({_NEW_EVENT});
        {_BILLED}
        END""",
    f"""CREATE VIEW payings ({_EVENT}, {_COST}, hold, actual)
        AS SELECT {", ".join(["0"] * (16 + len(COLUMNS)))} WHERE 0""",
    f"""CREATE TRIGGER payings_event INSTEAD OF INSERT ON payings BEGIN
        INSERT INTO events VALUES ({_NEW_EVENT});
        {_BILLED}
        INSERT INTO settles VALUES (new.hold, new.actual);
        END""",
)

MIGRATIONS: Sequence[Sequence[str]] = (_VERSION_1,)
"""`MIGRATIONS[v]` makes version v + 1 out of version v; version 0 is an empty file."""

PAGE_SIZE = 2048
"""Bytes of a page. A commit's price is its pages, and most of its rows are small: with 4,096
the two commits of a call take 10 us more. Payloads of 20 KB cost the same to 10% more."""

MIN_READER = 1
"""The oldest version of this schema whose code may use a file of the present one."""


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the file to the present schema, in one transaction; do nothing if it is there.

    Raises `StoreUnavailable` for another program's file and for one from a newer version
    that does not admit this one.
    """
    try:
        # One snapshot: another process may be making the file right now.
        connection.execute("BEGIN")
        usable = _usable(connection, path)
        connection.execute("COMMIT")
        if usable:
            return
        connection.execute("BEGIN IMMEDIATE")
        # Somebody else may have done it while we waited for the lock.
        if not _usable(connection, path):
            for statements in MIGRATIONS[_version(connection) :]:
                for statement in statements:
                    connection.execute(statement)
            connection.execute(
                "INSERT INTO meta VALUES ('min_reader', ?) "
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (str(MIN_READER),),
            )
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _usable(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file has the present schema or one that admits us; False: older."""
    version = _version(connection)
    ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    if not ours:
        if version or connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
            raise StoreUnavailable(
                f"{path} is another program's database: name a file of its own for checkrein"
            )
        return False
    if version > len(MIGRATIONS):
        row = connection.execute("SELECT value FROM meta WHERE key = 'min_reader'").fetchone()
        if row is None or not row[0].isdecimal() or int(row[0]) > len(MIGRATIONS):
            raise StoreUnavailable(
                f"{path} was written by a newer checkrein (schema {version}, this one knows "
                f"{len(MIGRATIONS)}): upgrade checkrein here, or use another file"
            )
    return version >= len(MIGRATIONS)
