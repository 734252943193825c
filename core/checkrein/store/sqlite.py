"""The store in a SQLite file: several processes and threads, kills survived.

Beside `NAME.db` lie SQLite's `-wal` and `-shm`, `NAME.db.key` (32 random bytes), with
`encrypt=True` `NAME.db.seal`, and `NAME.db.payloads/` for payloads above 64 KB.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from checkrein.errors import PayloadUnreadable
from checkrein.keys import seal_key, store_key
from checkrein.payload import Packed, Vault, unpack_view
from checkrein.store import (
    Balance,
    Erased,
    Event,
    OpenHold,
    OwnerRow,
    Page,
    Record,
    SessionRow,
    Standing,
    StoreOptions,
    Tree,
    _audit,
    _forget,
    _read,
    same_key,
)
from checkrein.store._address import beside, checked, path_of
from checkrein.store._bill import Bill
from checkrein.store._commits import Commits
from checkrein.store._connections import Connections
from checkrein.store._moving import check_whole
from checkrein.store._rules import chain_body, chain_hash, claim_conflict, micros
from checkrein.store._sqlite_moving import Moving
from checkrein.store._standing import count_standings, read_standings
from checkrein.store._write import read_balance

BUSY_TIMEOUT = 5.0
"""Seconds that a commit waits for other writers."""

_log = logging.getLogger("checkrein.store")


class SqliteStore(Commits, Bill, Moving):
    """Implements `checkrein.store.Store` over one SQLite file.

    `options.extra` may hold `busy_timeout` (seconds) and `max_pages` (largest size of the file,
    in pages of 2 KB). Raises `ConfigError` for a wrong address or option and
    `StoreUnavailable` where the file cannot be used.
    """

    blocking = True

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        options = options or StoreOptions()
        self.url = url
        self.path = path = path_of(url)
        extra = checked(options.extra)
        super().__init__()
        self._connections = Connections(
            path,
            power=options.durability == "power",
            busy_timeout=extra.get("busy_timeout", BUSY_TIMEOUT),
            max_pages=extra.get("max_pages"),
        )
        try:
            if not options.moving:
                check_whole(self, str(path))
            self._key_file = beside(path, ".key")
            self.key = store_key(self._key_file)
            seal = seal_key(beside(path, ".seal")) if options.encrypt else None
            self._files = beside(path, ".payloads")
            self._vault = Vault(self._files, max_bytes=options.max_payload, seal_key=seal)
        except BaseException:
            self._connections.close()
            raise

    # -- writing ---------------------------------------------------------------------------

    def _change(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """One statement in a transaction of its own; returns its rows."""
        with self._connections.writing() as cursor:
            return cursor.execute(statement, values).fetchall()

    # -- reading ---------------------------------------------------------------------------

    def session(self, id: str) -> SessionRow | None:
        """One session, or None."""
        with self._connections.reading() as connection:
            return _read.read_session(connection, id)

    def sessions(
        self,
        *,
        state: str | None = None,
        rollback: str | None = None,
        owner: str | None = None,
        parent: str | None = None,
        agent: str | None = None,
        prefix: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Sessions, newest first."""
        wanted = {
            "state": state,
            "rollback": rollback,
            "owner": owner,
            "parent": parent,
            "agent": agent,
        }
        with self._connections.reading() as connection:
            return _read.read_sessions(connection, wanted, prefix, after, limit)

    def standings(
        self, *, at: int, agent: str | None = None, after: str | None = None, limit: int = 100
    ) -> Page:
        """Sessions and what their records say of them, newest first."""
        with self._connections.reading() as connection:
            return read_standings(connection, at, agent, after, limit)

    def standing_counts(self, *, at: int, agent: str | None = None) -> list[tuple[Standing, int]]:
        """How many sessions there are of each standing."""
        with self._connections.reading() as connection:
            return count_standings(connection, at, agent)

    def events(
        self,
        *,
        session: str | None = None,
        call: str | None = None,
        kinds: Sequence[str] | None = None,
        after: int = 0,
        before: int | None = None,
        reverse: bool = False,
        limit: int = 1000,
    ) -> list[Event]:
        """Events in the order of `seq`."""
        with self._connections.reading() as connection:
            return _read.read_events(
                connection,
                session=session,
                call=call,
                kinds=kinds,
                after=after,
                before=before,
                reverse=reverse,
                limit=limit,
            )

    def payload(self, seq: int) -> Tree | Erased | None:
        """The exact payload of an event."""
        with self._connections.reading() as connection:
            row = connection.execute(_read.PAYLOAD, (seq,)).fetchone()
        if row is None or not row[0]:
            return None
        ref, salt, data, place, kind, view, session, n, call, attempt, at, prev, digest = row
        body = chain_body(session, kind, call, view)
        if chain_hash(prev, seq, n, attempt, at, ref, body) != digest:
            # What is undone or resumed with it must be what was written.
            raise PayloadUnreadable(
                f"event {seq} of session {session} and its hash do not match: it was altered or "
                "damaged, and its payload is not used; restore the store from a backup"
            )
        if place == "view":
            key = same_key(kind)
            return {key: unpack_view(ref.hex(), view)[key]}
        return self._vault.unpack(Packed(ref.hex(), salt or b"", data or b"", place or "row"))

    def erase(self, seqs: Iterable[int]) -> int:
        """Erase payloads: their bytes are overwritten, large ones lose their file."""
        erased = 0
        with self._connections.writing(durable=True) as cursor:
            # Freed bytes are overwritten. Not on the other writers' path: it costs 4%.
            cursor.execute("PRAGMA secure_delete = ON")
            for seq in seqs:
                row = cursor.execute(
                    "SELECT ref, salt, data, place FROM events WHERE seq = ? "
                    "AND place IS NOT NULL AND (place != 'omitted' OR salt != x'')",
                    (seq,),
                ).fetchone()
                if row is None:
                    continue
                ref, salt, data, place = row
                # Before the row: killed in between, the file is gone and the row still says
                # that there is something to erase.
                self._vault.erase(Packed(ref.hex(), salt or b"", data or b"", place))
                cursor.execute(
                    "UPDATE events SET salt = x'', data = x'', place = 'omitted' WHERE seq = ?",
                    (seq,),
                )
                erased += 1
        if erased:
            self._empty_log()
        return erased

    def _empty_log(self) -> None:
        """The write-ahead log still holds the old bytes of what was erased."""
        with self._connections.errors():
            emptied = self._connections.truncate_log()
        if not emptied:
            _log.warning(
                "%s: what was erased is still in its -wal file, because somebody reads it; "
                "it goes with the next checkpoints",
                self.path,
            )

    def forget(self, session: str, *, at: int) -> bool:
        """Delete a session's events, payloads and records."""
        with self._connections.writing(durable=True) as cursor:
            cursor.execute("PRAGMA secure_delete = ON")
            files = _forget.forget(cursor, session, at)
        for packed in files or ():
            self._vault.erase(packed)
        if files is not None:
            self._empty_log()
        return files is not None

    def sweep(self) -> int:
        """Remove files of payloads that no event names any more."""
        with self._connections.reading() as connection:
            named = _forget.file_refs(connection)
        return self._vault.sweep(named.__contains__)

    def record(self, kind: str, id: str) -> Record | None:
        """One record, or None."""
        with self._connections.reading() as connection:
            return _read.read_record(connection, kind, id)

    def records(
        self,
        kind: str,
        *,
        state: str | None = None,
        session: str | None = None,
        label: str | None = None,
        prefix: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Records of one kind, oldest first."""
        wanted = {"state": state, "session": session, "label": label}
        with self._connections.reading() as connection:
            return _read.read_records(connection, kind, wanted, prefix, after, limit)

    def balance(
        self, account: str, *, at: int | None = None, window: float | None = None
    ) -> Balance | None:
        """An account; with `window`, what counts at `at` (by default now)."""
        now = time.time_ns() // 1000 if at is None else at
        with self._connections.reading() as connection:
            row = read_balance(
                connection.cursor(), account, now, 0 if window is None else micros(window)
            )
        if row is None:
            return None
        unit, spent, held = row
        return Balance(account, unit, spent, held)  # type: ignore[arg-type]  # stored from a Unit

    def balances(self, prefix: str = "", limit: int = 1000) -> list[Balance]:
        """Accounts whose name begins with `prefix`, by name."""
        with self._connections.reading() as connection:
            rows = connection.execute(
                "SELECT account, unit, spent, held FROM accounts "
                "WHERE account >= ? AND account < ? ORDER BY account LIMIT ?",
                (prefix, prefix + chr(0x10FFFF), limit),
            ).fetchall()
        return [Balance(*row) for row in rows]

    def holds(
        self, *, session: str | None = None, call: str | None = None, account: str | None = None
    ) -> list[OpenHold]:
        """Holds that are not settled, oldest first."""
        with self._connections.reading() as connection:
            return _read.read_holds(
                connection, {"session": session, "call": call, "account": account}
            )

    # -- ownership -------------------------------------------------------------------------

    def beat(self, owner: OwnerRow) -> None:
        """Write a process's lease."""
        self._change(
            "INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?, ?)",
            (owner.id, owner.host, owner.boot, owner.pid, owner.started, owner.beat),
        )

    def owner(self, id: str) -> OwnerRow | None:
        """A process's lease, or None."""
        with self._connections.reading() as connection:
            row = connection.execute(
                "SELECT id, host, boot, pid, started, beat FROM owners WHERE id = ?", (id,)
            ).fetchone()
        return None if row is None else OwnerRow(*row)

    def owners(self) -> list[OwnerRow]:
        """All leases."""
        with self._connections.reading() as connection:
            rows = connection.execute(
                "SELECT id, host, boot, pid, started, beat FROM owners ORDER BY id"
            ).fetchall()
        return [OwnerRow(*row) for row in rows]

    def drop_owner(self, id: str) -> None:
        """Remove a process's lease."""
        self._change("DELETE FROM owners WHERE id = ?", (id,))

    def claim(self, session: str, owner: str, *, expect: int, at: int) -> int:
        """Become the owner of a session whose fence is `expect`; returns the new fence."""
        rows = self._change(
            "UPDATE sessions SET owner = ?, fence = fence + 1, updated = max(updated, ?) "
            "WHERE id = ? AND fence = ? RETURNING fence",
            (owner, at, session, expect),
        )
        if not rows:
            raise claim_conflict(session, expect)
        return int(rows[0][0])

    # -- the whole -------------------------------------------------------------------------

    def changed(self, topic: str = "", after: int = -1) -> int:
        """A number that differs from an earlier one after any commit. About 9 us."""
        return self._connections.version()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every commit of this process; returns how to stop that."""
        return self._listeners.add(callback)

    def verify(self, session: str) -> Event | None:
        """The first bad event of a session, payloads included; None if all is well."""
        with self._connections.reading() as connection:
            return _audit.verify_session(connection, session, self._files)

    def rebuild(self, *, repair: bool = False) -> list[str]:
        """Compare chain heads and account totals with what they come from."""
        with self._connections.reading() as connection:
            found = _audit.check_file(connection)
            if not repair:
                connection.execute("BEGIN")
                return found + _audit.rebuild(connection, repair=False)
        with self._connections.writing() as cursor:
            return found + _audit.rebuild(cursor.connection, repair=True)

    def close(self) -> None:
        """Close the file. Can be repeated."""
        self._connections.close()
