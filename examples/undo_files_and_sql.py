"""An agent changes files and rows of a database, and everything is put back as it was.

python examples/undo_files_and_sql.py

Files keep a copy of what is overwritten or deleted. Rows are changed by functions of the
application in SQLite: each reads what it takes, and its undo puts that back.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from checkrein import Rein
from checkrein_plugins import connectors


class Orders:
    """Rows of one table."""

    def __init__(self, place: Path) -> None:
        self.db = sqlite3.connect(place, isolation_level=None)
        self.db.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, state TEXT)")

    def row(self, id: int) -> list[Any]:
        """The row, or nothing."""
        return list(
            self.db.execute("SELECT id, state FROM orders WHERE id = ?", (id,)).fetchone() or ()
        )

    def add(self, state: str) -> int:
        """Insert a row; its id."""
        return int(
            self.db.execute("INSERT INTO orders (state) VALUES (?)", (state,)).lastrowid or 0
        )

    def move(self, id: int, state: str) -> None:
        """Change a row."""
        self.db.execute("UPDATE orders SET state = ? WHERE id = ?", (state, id))

    def remove(self, id: int) -> None:
        """Delete a row."""
        self.db.execute("DELETE FROM orders WHERE id = ?", (id,))

    def put_back(self, row: list[Any]) -> None:
        """Insert a row again, or give it the values that it had."""
        self.db.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", row)

    def all(self) -> list[tuple[int, str]]:
        """Every row."""
        return self.db.execute("SELECT id, state FROM orders ORDER BY id").fetchall()


def main() -> str:
    """Play it; the report in one line."""
    folder = Path(tempfile.mkdtemp())
    house = folder / "house"
    house.mkdir()
    (house / "readme.txt").write_text("old text\n")
    orders = Orders(folder / "shop.db")
    first = orders.add("open")
    rows, text = orders.all(), (house / "readme.txt").read_text()

    rein = Rein(store=f"sqlite:///{folder / 'store.db'}")
    files = rein.wrap(connectors.Files(house), connector="files", table=connectors.FILES)
    rein.declare("put_back", orders.put_back)
    rein.declare("remove_row", orders.remove)
    add = rein.tool(orders.add, name="add", undo="remove_row(result)")
    move = rein.tool(orders.move, name="move", before=orders.row, undo="put_back(before)")
    remove = rein.tool(orders.remove, name="remove", before=orders.row, undo="put_back(before)")

    try:
        with rein.session("clerk", "tidy up") as session:
            second = add("new")
            move(first, "sent")
            remove(first)
            move(second, "lost")
            files.write("readme.txt", "new text\n")
            files.mkdir("letters")
            files.write("letters/one.txt", "Dear Ann")
            files.move("readme.txt", "letters/readme.txt")
            print("in between:", orders.all(), files.list("letters"))
            raise RuntimeError("the last step failed")  # noqa: TRY301 - as a tool would
    except RuntimeError as error:
        told = next(iter(error.__notes__))
        print(told)
    rein.close()
    assert orders.all() == rows
    assert (house / "readme.txt").read_text() == text
    assert sorted(p.name for p in house.iterdir()) == [".checkrein", "readme.txt"]
    assert session.id in told
    orders.db.close()
    return told


if __name__ == "__main__":
    main()
