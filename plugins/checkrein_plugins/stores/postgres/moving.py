"""Being moved: a PostgreSQL store's rows as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from checkrein.store._moving import TABLES, Row
from checkrein_plugins.stores.postgres.connections import Connection, Connections

_TEXT_KEYS = {"account", "id"}
# Against itself as well: two moves of one store do not go on at once.
_FREEZE = f"LOCK TABLE {', '.join(TABLES)} IN SHARE ROW EXCLUSIVE MODE"
_PAGE = 1000
_SEQUENCES = (
    "SELECT setval('events_seq', greatest(1, max(seq)), max(seq) IS NOT NULL) FROM events",
    *(
        f"SELECT setval(pg_get_serial_sequence('{table}', '{key}'), greatest(1, max({key})), "
        f"max({key}) IS NOT NULL) FROM {table}"
        for table, key in (("sessions", "sid"), ("records", "rid"))
    ),
)


def _columns(table: str) -> str:
    return ", ".join(f'"{column}"' for column in TABLES[table][0])


def _key(table: str) -> list[str]:
    columns, keys = TABLES[table]
    # As bytes, as in SQLite, whatever the database's collation.
    return [f'{name} COLLATE "C"' if name in _TEXT_KEYS else name for name in columns[:keys]]


class Moving:
    """The part of a PostgreSQL store that is used when it is moved from or to."""

    key: bytes
    _connections: Connections

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Nobody writes for the length of the block: writers wait, readers go on."""
        with (
            self._connections.errors(),
            self._connections.pool().connection() as connection,
            connection.transaction(),
        ):
            patience = round(self._connections.patience * 1000)
            connection.execute(f"SET LOCAL lock_timeout = {patience}")
            connection.execute(_FREEZE)
            yield

    def rows(self, table: str, after: Row = ()) -> Iterator[Row]:
        """The rows of a table by rising key, those after a key."""
        key = _key(table)
        where = f"WHERE ({', '.join(key)}) > ({', '.join(['%s'] * len(key))})" if after else ""
        with (
            self._connections.errors(),
            self._connections.pool().connection() as connection,
            connection.transaction(),
            connection.cursor(name="moving") as cursor,
        ):
            cursor.itersize = _PAGE
            # What settles have left beside the rows of accounts is added up.
            source = "balances" if table == "accounts" else table
            cursor.execute(
                f"SELECT {_columns(table)} FROM {source} {where} ORDER BY {', '.join(key)}",
                after or None,
            )
            yield from cursor

    def count(self, table: str) -> int:
        """How many rows a table has."""
        return int(self._one(f"SELECT count(*) FROM {table}")[0])

    def newest(self, table: str) -> Row:
        """The greatest key of a table; empty if it has no row."""
        return self._one(_newest(table))

    def _one(self, statement: str) -> Row:
        found: Row | None = self._connections.run(
            lambda connection: connection.execute(statement).fetchone()
        )
        return found or ()

    def moving(self) -> str:
        """The mark of a move into this store that is not finished; empty if there is none."""
        return str((*self._one("SELECT value FROM meta WHERE key = 'moving'"), "")[0])

    def begin_move(self, mark: str, key: bytes) -> None:
        """Take over the other store's key, and bear the mark until `end_move`."""

        def step(connection: Connection) -> None:
            with connection.transaction():
                connection.execute(
                    "INSERT INTO meta VALUES ('moving', %s) "
                    "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    (mark,),
                )
                connection.execute("UPDATE secrets SET value = %s WHERE key = 'key'", (key,))

        self._connections.run(step)
        self.key = key

    def put_rows(self, table: str, rows: Sequence[Row]) -> None:
        """Write rows as they are, all or none."""

        def write(connection: Connection) -> None:
            copying = f"COPY {table} ({_columns(table)}) FROM STDIN"
            with connection.cursor() as cursor, cursor.copy(copying) as copy:
                for row in rows:
                    copy.write_row(row)

        def again(connection: Connection) -> None:
            # Nobody knows whether it was written when the connection was lost.
            found = connection.execute(_newest(table)).fetchone()
            if found is None or found != rows[-1][: len(found)]:
                write(connection)

        self._connections.run(write, again)

    def end_move(self) -> None:
        """Let numbers go on where the other store's ended, and remove the mark."""

        def step(connection: Connection) -> None:
            with connection.transaction():
                for statement in _SEQUENCES:
                    connection.execute(statement)
                connection.execute("DELETE FROM meta WHERE key = 'moving'")

        self._connections.run(step)


def _newest(table: str) -> str:
    key = _key(table)
    falling = ", ".join(f"{column} DESC" for column in key)
    return f"SELECT {', '.join(key)} FROM {table} ORDER BY {falling} LIMIT 1"
