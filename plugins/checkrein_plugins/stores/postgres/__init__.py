"""The store in PostgreSQL: for many hosts that share budgets, approvals, limits and undo.

    Rein(store="postgresql://checkrein@db.example.org/agents")          # extra `postgres`

Everything lies in one schema of the database (`?schema=NAME`, default `checkrein`), which is made
at first use. A batch is one round trip: the server's own function writes it, in one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from checkrein.errors import CheckreinError, ConfigError, PayloadUnreadable, StoreBusy
from checkrein.keys import key_in
from checkrein.payload import Packed, Vault, unpack_view
from checkrein.store import (
    SAME,
    Balance,
    Batch,
    Committed,
    Erased,
    Event,
    HoldRow,
    NewEvent,
    OpenHold,
    OwnerRow,
    Page,
    Put,
    Record,
    Rollback,
    SessionRow,
    SettleRow,
    Standing,
    StoreOptions,
    Total,
    Tree,
    same_key,
)
from checkrein.store._listeners import Listeners
from checkrein.store._moving import check_whole
from checkrein.store._rules import chain_body, chain_hash, claim_conflict, micros
from checkrein_plugins.stores.postgres import bill, reading, whole, writing
from checkrein_plugins.stores.postgres.address import address_of
from checkrein_plugins.stores.postgres.connections import (
    PATIENCE,
    Connection,
    Connections,
    migrate,
    secret,
)
from checkrein_plugins.stores.postgres.listening import Ear
from checkrein_plugins.stores.postgres.moving import Moving

_OWNER = "SELECT id, host, boot, pid, started, beat FROM owners"


class PostgresStore(Moving):
    """Implements `checkrein.store.Store` over one schema of a PostgreSQL database.

    `options.extra` may hold `patience` (seconds that a call waits for the server). Raises
    `ConfigError` for a wrong address and `StoreUnavailable` where the server cannot be used.
    """

    blocking = True

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        options = options or StoreOptions()
        address = address_of(url)
        self.url = address.shown
        seal = None
        if options.encrypt:
            seal = key_in("CHECKREIN_KEY")
            if seal is None:
                raise ConfigError(
                    "encrypt=True with a PostgreSQL store needs CHECKREIN_KEY, the same on every "
                    "host: a key beside the data would seal nothing"
                )
        self._vault = Vault(
            None, max_bytes=options.max_payload, seal_key=seal, key_source="CHECKREIN_KEY"
        )
        self._listeners = Listeners()
        self._connections = Connections(
            address, patience=float(options.extra.get("patience", PATIENCE))
        )
        try:
            migrate(self._connections)
            if not options.moving:
                check_whole(self, address.shown)
            self.key = secret(self._connections)
        except BaseException:
            self._connections.close()
            raise

    # -- writing ---------------------------------------------------------------------------

    def commit(self, batch: Batch, *, wait: bool = True) -> Committed:
        """Write one batch: one round trip."""
        if not wait:
            # The server is over a network: there is no saying how long it takes.
            raise StoreBusy(f"store {self.url}: a commit has to wait for the server")
        given = writing.arguments(batch, self._vault)
        done = self._connections.run(
            lambda connection: writing.commit(connection, batch, given),
            lambda connection: writing.commit_again(connection, batch, given),
        )
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
        """`commit` of the intent or outcome of a plain call."""
        view[same_key(kind)] = part
        event = NewEvent(kind, call, at, view, SAME, attempt)
        batch = Batch(session, (event,), at, fence, admit, holds, settles, puts, durable=durable)
        return self.commit(batch).rollback

    def commit_many(self, batches: Sequence[Batch]) -> list[Committed | Exception]:
        """Write several batches, each on its own."""
        done: list[Committed | Exception] = []
        for batch in batches:
            try:
                done.append(self.commit(batch))
            except CheckreinError as error:
                done.append(error)
        return done

    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        def step(connection: Connection) -> list[Any]:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description is not None else []

        return self._connections.run(step)

    # -- reading ---------------------------------------------------------------------------

    def session(self, id: str) -> SessionRow | None:
        """One session, or None."""
        return self._connections.run(lambda connection: reading.read_session(connection, id))

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
            "state": state, "rollback": rollback, "owner": owner, "parent": parent, "agent": agent
        }  # fmt: skip
        return self._connections.run(
            lambda connection: reading.read_sessions(connection, wanted, prefix, after, limit)
        )

    def standings(
        self, *, at: int, agent: str | None = None, after: str | None = None, limit: int = 100
    ) -> Page:
        """Sessions and what their records say of them, newest first."""
        return self._connections.run(
            lambda connection: reading.read_standings(connection, at, agent, after, limit)
        )

    def standing_counts(self, *, at: int, agent: str | None = None) -> list[tuple[Standing, int]]:
        """How many sessions there are of each standing."""
        return self._connections.run(
            lambda connection: reading.count_standings(connection, at, agent)
        )

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
        return self._connections.run(
            lambda connection: reading.read_events(
                connection,
                session=session,
                call=call,
                kinds=kinds,
                after=after,
                before=before,
                reverse=reverse,
                limit=limit,
            )
        )

    def payload(self, seq: int) -> Tree | Erased | None:
        """The exact payload of an event."""
        rows = self._all(reading.PAYLOAD, (seq,))
        if not rows or not rows[0][0]:
            return None
        ref, salt, data, place, kind, view, session, n, call, attempt, at, prev, digest = rows[0]
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
        """Erase payloads. The server keeps old bytes until it is vacuumed."""
        rows = self._all(
            "UPDATE events SET salt = '', data = '', place = 'omitted' WHERE seq = ANY (%s) "
            "AND place IS NOT NULL AND (place != 'omitted' OR salt != '') RETURNING seq",
            (list(seqs),),
        )
        return len(rows)

    def forget(self, session: str, *, at: int) -> bool:
        """Delete a session's events, payloads and records."""
        return self._connections.run(lambda connection: whole.forget(connection, session, at))

    def sweep(self) -> int:
        """Payloads lie in rows: no file is left behind."""
        return 0

    def record(self, kind: str, id: str) -> Record | None:
        """One record, or None."""
        return self._connections.run(lambda connection: reading.read_record(connection, kind, id))

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
        return self._connections.run(
            lambda connection: reading.read_records(connection, kind, wanted, prefix, after, limit)
        )

    def balance(
        self, account: str, *, at: int | None = None, window: float | None = None
    ) -> Balance | None:
        """An account; with `window`, what counts at `at` (by default now)."""
        now = time.time_ns() // 1000 if at is None else at
        span = 0 if window is None else micros(window)
        row = self._connections.run(
            lambda connection: reading.read_balance(connection, account, now, span)
        )
        return None if row is None else Balance(account, *row)  # type: ignore[arg-type]  # a Unit

    def balances(self, prefix: str = "", limit: int = 1000) -> list[Balance]:
        """Accounts whose name begins with `prefix`, by name."""
        rows = self._all(
            "SELECT account, unit, spent, held FROM balances WHERE starts_with(account, %s) "
            'ORDER BY account COLLATE "C" LIMIT %s',
            (prefix, limit),
        )
        return [Balance(*row) for row in rows]

    def holds(
        self, *, session: str | None = None, call: str | None = None, account: str | None = None
    ) -> list[OpenHold]:
        """Holds that are not settled, oldest first."""
        return self._connections.run(
            lambda connection: reading.read_holds(
                connection, {"session": session, "call": call, "account": account}
            )
        )

    def costs(
        self,
        *,
        session: str | None = None,
        since: int | None = None,
        until: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Rows of the bill, oldest first."""
        return self._connections.run(
            lambda connection: bill.read_costs(connection, session, since, until, after, limit)
        )

    def totals(
        self,
        by: str = "",
        *,
        since: int | None = None,
        until: int | None = None,
        where: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Total]:
        """The bill added up by one dimension."""
        return self._connections.run(
            lambda connection: bill.read_totals(connection, by, since, until, where, limit)
        )

    # -- ownership -------------------------------------------------------------------------

    def beat(self, owner: OwnerRow) -> None:
        """Write a process's lease."""
        self._all(
            "INSERT INTO owners VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET "
            "host = excluded.host, boot = excluded.boot, pid = excluded.pid, "
            "started = excluded.started, beat = excluded.beat",
            (owner.id, owner.host, owner.boot, owner.pid, owner.started, owner.beat),
        )

    def owner(self, id: str) -> OwnerRow | None:
        """A process's lease, or None."""
        rows = self._all(f"{_OWNER} WHERE id = %s", (id,))
        return OwnerRow(*rows[0]) if rows else None

    def owners(self) -> list[OwnerRow]:
        """All leases."""
        return [OwnerRow(*row) for row in self._all(f'{_OWNER} ORDER BY id COLLATE "C"')]

    def drop_owner(self, id: str) -> None:
        """Remove a process's lease."""
        self._all("DELETE FROM owners WHERE id = %s", (id,))

    def claim(self, session: str, owner: str, *, expect: int, at: int) -> int:
        """Become the owner of a session whose fence is `expect`; returns the new fence."""
        rows = self._all(
            "UPDATE sessions SET owner = %s, fence = fence + 1, updated = greatest(updated, %s) "
            "WHERE id = %s AND fence = %s RETURNING fence",
            (owner, at, session, expect),
        )
        if not rows:
            raise claim_conflict(session, expect)
        return int(rows[0][0])

    # -- the whole -------------------------------------------------------------------------

    def changed(self, topic: str = "", after: int = -1) -> int:
        """A number that differs from an earlier one after any commit: one round trip."""
        # Whatever is committed changes what the server takes for running or past.
        return int(self._all("SELECT hashtextextended(pg_current_snapshot()::text, 0)")[0][0])

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every commit of this process; returns how to stop that."""
        return self._listeners.add(callback)

    def ear(self) -> Ear:
        """Hears of what other processes commit, while somebody waits."""
        return Ear(self._connections.address)

    def verify(self, session: str) -> Event | None:
        """The first bad event of a session, payloads included; None if all is well."""
        return self._connections.run(lambda connection: whole.verify_session(connection, session))

    def rebuild(self, *, repair: bool = False) -> list[str]:
        """Compare chain heads and account totals with what they come from."""
        return self._connections.run(lambda connection: whole.rebuild(connection, repair=repair))

    def close(self) -> None:
        """Close the connections. Can be repeated."""
        self._connections.close()
