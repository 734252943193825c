"""Rows by SQLAlchemy, over a real SQLite file."""

from __future__ import annotations

import datetime as dt
import decimal
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

import sqlalchemy as sa

from checkrein import Rein, errors
from checkrein_plugins import connectors
from checkrein_plugins.connectors import Database


def database(tmp_path: Path) -> tuple[Database, Callable[[], dict[int, Any]]]:
    # Without a pool: nothing stays open behind a test.
    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db", poolclass=sa.NullPool)
    meta = sa.MetaData()
    orders = sa.Table(
        "orders", meta, sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("state", sa.String(20)), sa.Column("total", sa.Numeric(10, 2)),
        sa.Column("due", sa.Date),
    )  # fmt: skip
    sa.Table("notes", meta, sa.Column("text", sa.String(20)))
    meta.create_all(engine)
    due = dt.date(2026, 1, 2)
    with engine.begin() as connection:
        for id in (1, 2, 3):
            row = {"id": id, "state": "open", "total": decimal.Decimal(f"{id}.50"), "due": due}
            connection.execute(orders.insert().values(**row))

    def rows() -> dict[int, Any]:
        with engine.connect() as connection:
            return {row[0]: tuple(row[1:]) for row in connection.execute(sa.select(orders))}

    return Database(engine), rows


def test_every_change_is_taken_back(go: Any, rein: Rein, tmp_path: Path) -> None:
    db, rows = database(tmp_path)
    before = rows()
    shop = rein.wrap(db, connector="sqlalchemy", table=connectors.SQLALCHEMY)
    with rein.session() as session:
        assert len(shop.select("orders", {"state": "open"})) == 3
        shop.insert("orders", {"id": 9, "state": "new", "total": decimal.Decimal(7)})
        shop.insert_many("orders", [{"state": "a"}, {"state": "b"}])
        shop.update("orders", {"state": "paid"}, {"state": "open"})
        shop.update("orders", {"id": 20}, {"id": 2})
        shop.update_key("orders", 3, {"total": decimal.Decimal("0.10")})
        shop.upsert("orders", {"id": 3, "state": "sent"})
        shop.upsert("orders", {"id": 30, "state": "made"})
        shop.increment("orders", "total", 5, {"id": 1})
        shop.delete_key("orders", 3)
        shop.delete("orders", {"state": "paid"})
        shop.truncate("orders")
        shop.rename_table("orders", "old_orders")
    report = go.run(rein, "rollback", session.id)
    assert report.complete, report.summary()
    assert len(report.actions) == 12 and rows() == before


def test_what_has_no_inverse_is_refused_or_told(rein: Rein, tmp_path: Path) -> None:
    db, rows = database(tmp_path)
    db.max_rows = 2
    shop = rein.wrap(db, connector="sqlalchemy", table=connectors.SQLALCHEMY)
    before = rows()
    with rein.session() as session:
        for act, told in (
            (lambda: shop.delete("orders", {}), "more than 2 rows"),
            (lambda: shop.insert("notes", {"text": "x"}), "no primary key"),
            (lambda: shop.update("nope", {"x": 1}, {}), "no table"),
            (lambda: shop.delete("orders", {"nope": 1}), "no column"),
        ):
            with pytest.raises(errors.ConfigError, match=told):
                act()
        assert rows() == before
        shop.execute("UPDATE orders SET state = :s WHERE id = 1", {"s": "x"})
    report = session.rollback()
    assert report is not None
    found = [(a.name.rpartition(".")[2], a.status) for a in report.actions]
    # The four that were refused are known to have done nothing: they were one transaction each.
    assert found == [("execute", "not_undoable")] + [
        (n, "absent") for n in ("delete", "update", "insert", "delete")
    ]


KILLED = """
import os, signal, sys
import sqlalchemy as sa
from checkrein import Rein
from checkrein_plugins import connectors

rein = Rein(store=sys.argv[1])
db = connectors.Database(sa.create_engine(sys.argv[2]))
shop = rein.wrap(db, connector="sqlalchemy", table=connectors.SQLALCHEMY)
commit = sa.engine.base.Connection._commit_impl
falls = {"before": False, "after": True}[sys.argv[3]]

def kill(self):
    if falls:
        commit(self)
    os.kill(os.getpid(), signal.SIGKILL)

with rein.session():
    shop.update("orders", {"state": "paid"}, {"id": 1})
    sa.engine.base.Connection._commit_impl = kill
    shop.update("orders", {"state": "paid"}, {"id": 2})
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_the_commit_is_no_doubt(child: Any, tmp_path: Path, when: str) -> None:
    db, rows = database(tmp_path)
    before = rows()
    store = f"sqlite:///{tmp_path}/s.db"
    process = child(KILLED, store, f"sqlite:///{tmp_path}/shop.db", when)
    assert process.wait() == -signal.SIGKILL, process.stderr.read()
    assert [row[0] for row in rows().values()] == [
        "paid", "paid" if when == "after" else "open", "open",
    ]  # fmt: skip
    with Rein(store=store) as rein:
        rein.wrap(db, connector="sqlalchemy", table=connectors.SQLALCHEMY)
        report = rein.recover()
        assert report.complete and rows() == before
