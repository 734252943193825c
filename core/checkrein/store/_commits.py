"""Commits to a SQLite file: one statement where that will do, a transaction where it will not."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkrein.errors import CheckreinError, StoreUnavailable
from checkrein.payload import Packed, Vault
from checkrein.store import (
    SAME,
    Batch,
    Committed,
    HoldRow,
    NewEvent,
    Put,
    Rollback,
    SettleRow,
    Tree,
    same_key,
)
from checkrein.store._append import EVENT, Encoded, Ends, Into, single, with_one
from checkrein.store._connections import Connections, unavailable
from checkrein.store._listeners import Listeners
from checkrein.store._rules import check_amounts, check_text
from checkrein.store._write import Prepared, discard, encode, prepare, put_of, write

_NOTHING_KNOWN = Ends()


class Commits:
    """The part of a store that writes batches. Whoever derives from it opens the file."""

    path: Path
    _connections: Connections
    _vault: Vault

    def __init__(self) -> None:
        self._listeners = Listeners()
        self._ends = Ends()

    def commit(self, batch: Batch, *, wait: bool = True) -> Committed:
        """Write one batch in one transaction."""
        session = batch.session
        if not session.isascii():
            check_text("session", session)
        if batch.holds or batch.settles:
            check_amounts(batch.holds, batch.settles)
        how = single(batch)
        if how is None:
            return self._commit(prepare(batch, self._vault), wait)
        files: list[Packed] = []
        encoded = encode(session, batch.events[0], self._vault, files)
        if not files:
            done = self._insert(
                session, encoded, batch.fence, batch.admit, batch.durable, *how, wait=wait
            )
            if done is not None:
                return done
        return self._commit(Prepared(batch, [encoded], [], "", files), wait)

    def _commit(self, prepared: Prepared, wait: bool = True) -> Committed:
        connections = self._connections
        try:
            cursor = connections.enter(wait=wait, durable=prepared.batch.durable)
            try:
                connections.begin(cursor, wait=wait)
                done = write(cursor, prepared, self._ends)
                cursor.execute("COMMIT")
                self._ends.learn(prepared.batch.session, prepared.end)
            finally:
                connections.finish(cursor)
        except sqlite3.Error as error:
            discard(prepared, self._vault)
            raise unavailable(error, str(self.path)) from error
        except CheckreinError:
            discard(prepared, self._vault)
            raise
        if self._listeners.some:
            self._listeners.tell()
        return done

    def append(
        self,
        session: str,
        kind: str,
        call: str,
        at: int,
        view: dict[str, Tree],
        part: Tree,
        attempt: int = 0,
        fence: int | None = None,
        admit: bool = False,
        durable: bool = False,
        holds: Sequence[HoldRow] = (),
        settles: Sequence[SettleRow] = (),
        puts: Sequence[Put] = (),
    ) -> Rollback:
        """Commit one event of a plain call, and its holds or settles."""
        if not session.isascii():
            check_text("session", session)
        if holds or settles:
            check_amounts(holds, settles)
        view[same_key(kind)] = part
        files: list[Packed] = []
        event = NewEvent(kind, call, at, view, SAME, attempt)
        encoded = encode(session, event, self._vault, files)
        if not files and not puts:
            how = with_one(holds, settles) if holds or settles else (EVENT, ())
            if how is not None:
                done = self._insert(session, encoded, fence, admit, durable, *how)
                if done is not None:
                    return done.rollback
        batch = Batch(session, (event,), at, fence, admit, holds, settles, puts, None, durable)
        rows = [put_of(put, at) for put in puts]
        return self._commit(Prepared(batch, [encoded], rows, "", files)).rollback

    def _insert(
        self,
        session: str,
        encoded: Encoded,
        fence: int | None,
        admit: bool,
        durable: bool,
        into: Into,
        more: tuple[Any, ...],
        *,
        wait: bool = True,
    ) -> Committed | None:
        """One statement; None where it takes a transaction to write it, or to say why not."""
        connections, ends = self._connections, self._ends
        cursor = connections.enter(wait=wait, durable=durable)
        try:
            end = ends.insert(cursor, session, encoded, fence, admit, into, more)
            if end is None:
                return None
            done = ends.wrote(session, end)
        except sqlite3.Error:
            # Another process's turn, most likely. If not, the transaction meets it again.
            return None
        finally:
            connections.finish(cursor)
        if self._listeners.some:
            self._listeners.tell()
        return done

    def commit_many(self, batches: Sequence[Batch]) -> list[Committed | Exception]:
        """Write several batches in one transaction; each stands or falls alone."""
        results: list[Committed | Exception] = []
        ready: list[tuple[int, Prepared]] = []
        for index, batch in enumerate(batches):
            try:
                ready.append((index, prepare(batch, self._vault)))
                results.append(Committed(0, 0))
            except CheckreinError as error:
                results.append(error)
        if not ready:
            return results
        try:
            self._write_group(ready, results)
        except StoreUnavailable as error:
            for index, prepared in ready:
                discard(prepared, self._vault)
                if isinstance(results[index], Committed):
                    results[index] = error
            return results
        for index, prepared in ready:
            if isinstance(results[index], Exception):
                discard(prepared, self._vault)
        if self._listeners.some:
            self._listeners.tell()
        return results

    def _write_group(
        self, ready: list[tuple[int, Prepared]], results: list[Committed | Exception]
    ) -> None:
        durable = any(item.batch.durable for _, item in ready)
        connections = self._connections
        with connections.errors():
            cursor = connections.enter(durable=durable)
            try:
                connections.begin(cursor)
                for index, prepared in ready:
                    cursor.execute("SAVEPOINT batch")
                    try:
                        # What it knows is of before the group: `Ends` learns of it after that.
                        results[index] = write(cursor, prepared, _NOTHING_KNOWN)
                    except CheckreinError as error:
                        cursor.execute("ROLLBACK TO batch")
                        results[index] = error
                    cursor.execute("RELEASE batch")
                cursor.execute("COMMIT")
                for index, prepared in ready:
                    if isinstance(results[index], Committed):
                        self._ends.learn(prepared.batch.session, prepared.end)
            finally:
                connections.finish(cursor)
