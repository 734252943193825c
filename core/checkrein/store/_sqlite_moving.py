"""Being moved: a SQLite store's rows as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from checkrein._files import write_file
from checkrein.payload import ROW_LIMIT, Packed, Vault
from checkrein.store import _marks
from checkrein.store._connections import Connections
from checkrein.store._moving import TABLES, Row
from checkrein.store._turns import begin

_MOVING = "SELECT value FROM meta WHERE key = 'moving'"
PATIENCE = 5.0
"""Seconds that the end of other writers' transactions is waited for."""


class Moving:
    """The part of a SQLite store that is used when it is moved from or to."""

    key: bytes
    path: Path
    _connections: Connections
    _vault: Vault
    _files: Path
    _key_file: Path

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Nobody writes for the length of the block. Readers go on."""
        with self._connections.errors(), closing(self._connections.open()) as connection:
            while True:
                begin(connection, PATIENCE)
                if not _marks.late(connection):
                    break
                # The ends of chains are to stand in the rows of their sessions.
                _marks.mark(connection)
                connection.execute("COMMIT")
            yield

    def rows(self, table: str, after: Row = ()) -> Iterator[Row]:
        """The rows of a table by rising key, those after a key; payloads of files among them."""
        columns, keys = TABLES[table]
        key = ", ".join(columns[:keys])
        where = f"WHERE ({key}) > ({', '.join('?' * keys)})" if after else ""
        with self._connections.reading() as connection:
            cursor = connection.execute(
                f"SELECT {', '.join(columns)} FROM {table} {where} ORDER BY {key}", after
            )
            for row in cursor:
                yield self._from_file(row) if table == "events" and row[-1] == "file" else row

    def _from_file(self, row: Row) -> Row:
        ref, salt, data = row[-7], row[-3], row[-2]
        kept = self._vault.stored(Packed(ref.hex(), salt, data, "file"))
        return (*row[:-2], kept, "row")

    def _to_file(self, row: Row) -> Row:
        ref, data = row[-7].hex(), row[-2]
        write_file(self._files, ref, data)
        return (*row[:-2], ref.encode(), "file")

    def count(self, table: str) -> int:
        """How many rows a table has."""
        return int(self._one(f"SELECT count(*) FROM {table}")[0])

    def newest(self, table: str) -> Row:
        """The greatest key of a table; empty if it has no row."""
        columns, keys = TABLES[table]
        key = columns[:keys]
        falling = ", ".join(f"{column} DESC" for column in key)
        return self._one(f"SELECT {', '.join(key)} FROM {table} ORDER BY {falling} LIMIT 1")

    def _one(self, statement: str) -> Row:
        with self._connections.reading() as connection:
            found: Row | None = connection.execute(statement).fetchone()
        return found or ()

    def moving(self) -> str:
        """The mark of a move into this store that is not finished; empty if there is none."""
        return str((*self._one(_MOVING), "")[0])

    def begin_move(self, mark: str, key: bytes) -> None:
        """Take over the other store's key, and bear the mark until `end_move`."""
        with self._connections.writing(durable=True) as cursor:
            cursor.execute("INSERT OR REPLACE INTO meta VALUES ('moving', ?)", (mark,))
        # After the mark: killed in between, nobody uses the store with the wrong key.
        write_file(self._key_file.parent, self._key_file.name, key)
        self.key = key

    def put_rows(self, table: str, rows: Sequence[Row]) -> None:
        """Write rows as they are, all or none; long payloads go into files."""
        if table == "events":
            rows = [
                self._to_file(row) if row[-1] == "row" and len(row[-2]) > ROW_LIMIT else row
                for row in rows
            ]
        columns, _ = TABLES[table]
        marks = ", ".join("?" * len(columns))
        with self._connections.writing(durable=True) as cursor:
            cursor.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)

    def end_move(self) -> None:
        """Mark all events, and remove the mark."""
        with self._connections.writing(durable=True) as cursor:
            _marks.mark_moved(cursor)
            cursor.execute("DELETE FROM meta WHERE key = 'moving'")
