"""Rows of a database by SQLAlchemy, changed so that it can be taken back.

    db = rein.wrap(Database(engine), connector="sqlalchemy")
    db.update("orders", {"state": "paid"}, {"id": 7})

What a statement changes is read and changed in one transaction, together with the call's id
(`token`): so a probe knows for certain whether the call took effect, and no undo runs twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from checkrein.call import Absent, Call, Present
from checkrein.codec import decode, dumps, encode, loads
from checkrein.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table  # pyright: ignore[reportMissingImports]  # not in every environment
    from sqlalchemy.sql.elements import ColumnElement  # pyright: ignore[reportMissingImports]  # not in every environment

KEYS = "checkrein_keys"
"""Table of the keys of calls and undos that took effect, with what undoes them."""

Rows = list[dict[str, Any]]


class Database:
    """Changes rows of tables with a primary key; `where` are columns and the values they have.

    `max_rows`: a statement that would change more is refused. Raises `ConfigError` for tables and
    columns that are not there, and where there is no primary key: such a change has no inverse.
    """

    def __init__(self, engine: Engine, *, max_rows: int = 10_000) -> None:
        import sqlalchemy as sa  # pyright: ignore[reportMissingImports]  # not in every environment

        self._sa = sa
        self.engine = engine
        self.max_rows = max_rows
        self._meta = sa.MetaData()
        self._keys = sa.Table(
            KEYS, sa.MetaData(), sa.Column("key", sa.String(200), primary_key=True),
            sa.Column("undo", sa.Text),
        )  # fmt: skip
        self._keys.create(engine, checkfirst=True)

    # -- reading

    def select(self, table: str, where: Mapping[str, Any] | None = None) -> Rows:
        """Rows of a table."""
        with self.engine.connect() as connection:
            return self._rows(connection, self.table(table), where)

    # -- changing; each gives {"rows": how many, "undo": what puts it back}

    def insert(self, table: str, values: dict[str, Any], token: str = "") -> dict[str, Any]:
        """Insert a row."""
        return self.insert_many(table, [values], token)

    def insert_many(self, table: str, rows: Rows, token: str = "") -> dict[str, Any]:
        """Insert rows."""
        found = self.table(table)
        with self._changing(token) as (connection, done):
            made = [self._insert(connection, found, row) for row in rows]
            done.update(rows=len(made), keys=made, undo=_plan(table, gone=made))
        return done

    def update(
        self, table: str, values: dict[str, Any], where: dict[str, Any], token: str = ""
    ) -> dict[str, Any]:
        """Change rows."""
        found = self.table(table)
        with self._changing(token) as (connection, done):
            old = self._rows(connection, found, where)
            connection.execute(found.update().where(*self._where(found, where)).values(**values))
            # A primary key that was changed is found under its new value.
            now = [self._id(found, {**row, **values}) for row in old]
            done.update(rows=len(old), undo=_plan(table, gone=now, back=old))
        return done

    def update_key(
        self, table: str, id: Any, values: dict[str, Any], token: str = ""
    ) -> dict[str, Any]:
        """Change the row with a primary key of one column."""
        return self.update(table, values, {self._one(table): id}, token)

    def delete(self, table: str, where: dict[str, Any], token: str = "") -> dict[str, Any]:
        """Delete rows."""
        found = self.table(table)
        with self._changing(token) as (connection, done):
            old = self._rows(connection, found, where)
            connection.execute(found.delete().where(*self._where(found, where)))
            done.update(rows=len(old), undo=_plan(table, back=old))
        return done

    def delete_key(self, table: str, id: Any, token: str = "") -> dict[str, Any]:
        """Delete the row with a primary key of one column."""
        return self.delete(table, {self._one(table): id}, token)

    def upsert(self, table: str, values: dict[str, Any], token: str = "") -> dict[str, Any]:
        """Insert a row, or change the one that has its primary key."""
        found = self.table(table)
        with self._changing(token) as (connection, done):
            where = self._id(found, values)
            old = self._rows(connection, found, where)
            rest = {k: v for k, v in values.items() if k not in where}
            if not old:
                self._insert(connection, found, values)
            elif rest:
                statement = found.update().where(*self._where(found, where))
                connection.execute(statement.values(**rest))
            done.update(rows=1, undo=_plan(table, gone=[where], back=old))
        return done

    def increment(
        self, table: str, column: str, by: int, where: dict[str, Any], token: str = ""
    ) -> dict[str, Any]:
        """Add to a column of rows. Its inverse subtracts: what others added meanwhile stays."""
        found = self.table(table)
        with self._changing(token) as (connection, done):
            old = self._rows(connection, found, where)
            target = self._column(found, column)
            statement = found.update().where(*self._where(found, where))
            connection.execute(statement.values({target: target + by}))
            ids = [self._id(found, row) for row in old]
            done.update(rows=len(old), undo={**_plan(table), "less": [column, by, ids]})
        return done

    def truncate(self, table: str, token: str = "") -> dict[str, Any]:
        """Delete all rows of a table."""
        return self.delete(table, {}, token)

    def rename_table(self, table: str, to: str, token: str = "") -> dict[str, Any]:
        """Rename a table."""
        self.table(table)
        return self._rename(table, to, token)

    def execute(self, sql: str, parameters: dict[str, Any] | None = None, token: str = "") -> int:
        """Any statement, as text: nothing is known of its inverse."""
        with self._changing(token) as (connection, _):
            return int(connection.execute(self._sa.text(sql), parameters or {}).rowcount)

    # -- the inverse

    def take_back(self, undo: dict[str, Any], token: str = "") -> None:
        """Put back what a change has taken, and take what it has put. Once for a key."""
        if undo.get("name"):
            self._rename(undo["table"], undo["name"], token)
            return
        found = self.table(undo["table"])
        with self._changing(token) as (connection, _):
            for where in undo.get("gone", ()):
                connection.execute(found.delete().where(*self._where(found, where)))
            for row in undo.get("back", ()):
                connection.execute(found.insert().values(**row))
            if undo.get("less"):
                column, by, ids = undo["less"]
                target = self._column(found, column)
                for where in ids:
                    statement = found.update().where(*self._where(found, where))
                    connection.execute(statement.values({target: target - by}))

    def took_effect(self, key: str) -> dict[str, Any] | None:
        """What a call or an undo with this key gave, if it was committed."""
        with self.engine.connect() as connection:
            statement = self._sa.select(self._keys.c.undo).where(self._keys.c.key == key)
            row = connection.execute(statement).first()
        return None if row is None else decode(loads(row[0] or "{}"), {})

    # -- parts

    def table(self, name: str) -> Table:
        """A table, as the database has it. Raises `ConfigError`."""
        from sqlalchemy.exc import (  # pyright: ignore[reportMissingImports]  # as above
            NoSuchTableError,
        )

        sa = self._sa
        known = self._meta.tables.get(name)
        if known is None:
            try:
                known = sa.Table(name, self._meta, autoload_with=self.engine)
            except NoSuchTableError:
                raise ConfigError(f"database: there is no table {name!r}") from None
        if not known.primary_key.columns:
            raise ConfigError(
                f"database: table {name!r} has no primary key: nothing finds its rows"
            )
        return known

    @contextmanager
    def _changing(self, token: str) -> Iterator[tuple[Connection, dict[str, Any]]]:
        """A transaction; what it gives is committed with the call's key."""
        done: dict[str, Any] = {}
        with self.engine.begin() as connection:
            if token:
                connection.execute(self._keys.insert().values(key=token))
            yield connection, done
            if token and done:
                statement = self._keys.update().where(self._keys.c.key == token)
                connection.execute(statement.values(undo=dumps(encode(done, "undo"))))

    def _column(self, table: Table, name: str) -> Any:
        if name not in table.c:
            raise ConfigError(f"database: table {table.name!r} has no column {name!r}")
        return table.c[name]

    def _where(
        self, table: Table, where: Mapping[str, Any] | None
    ) -> Sequence[ColumnElement[bool]]:
        return [self._column(table, name) == value for name, value in (where or {}).items()]

    def _rows(self, connection: Connection, table: Table, where: Mapping[str, Any] | None) -> Rows:
        statement = self._sa.select(table).where(*self._where(table, where))
        found = connection.execute(statement.limit(self.max_rows + 1)).mappings().all()
        if len(found) > self.max_rows:
            raise ConfigError(
                f"database: more than {self.max_rows} rows of {table.name}: nothing was changed"
            )
        # Names that the database gave are texts of SQLAlchemy's own kind.
        return [{str(name): value for name, value in row.items()} for row in found]

    def _insert(self, connection: Connection, table: Table, row: dict[str, Any]) -> dict[str, Any]:
        done = connection.execute(table.insert().values(**row))
        names = _primary(table)
        return dict(zip(names, done.inserted_primary_key or (), strict=True))

    def _id(self, table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
        names = _primary(table)
        missing = [name for name in names if name not in row]
        if missing:
            raise ConfigError(f"database: {table.name} needs its primary key {missing[0]!r}")
        return {name: row[name] for name in names}

    def _one(self, table: str) -> str:
        names = _primary(self.table(table))
        if len(names) != 1:
            raise ConfigError(f"database: the primary key of {table} has {len(names)} columns")
        return names[0]

    def _rename(self, table: str, to: str, token: str) -> dict[str, Any]:
        quote = self.engine.dialect.identifier_preparer.quote
        with self._changing(token) as (connection, done):
            connection.execute(self._sa.text(f"ALTER TABLE {quote(table)} RENAME TO {quote(to)}"))
            done.update(rows=0, undo={**_plan(to), "name": table})
        self._meta.clear()
        return done


def _primary(table: Table) -> list[str]:
    return [str(column.name) for column in table.primary_key.columns]


def _plan(table: str, gone: Rows | None = None, back: Rows | None = None) -> dict[str, Any]:
    return {"table": table, "gone": gone or [], "back": back or []}


def in_place(database: Database, call: Call) -> Present | Absent:
    """Whether a call's change is in place now: its key is there, and its undo's is not."""
    given = database.took_effect(call.id)
    if given is None or database.took_effect(f"{call.id}.undo") is not None:
        return Absent()
    return Present(given)
