"""`checkrein store`: the store as a whole."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Annotated

import typer

from checkrein.cli._output import Out, counted
from checkrein.cli._place import Place, command, existing
from checkrein.errors import ConfigError
from checkrein.store import StoreOptions, open_store
from checkrein.store._address import beside, path_of
from checkrein.store._moving import move

OFTEN = 2.0
"""Seconds between two lines that say how far a migration has come."""

store = typer.Typer(
    rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False,
    help="Move a store: from SQLite to PostgreSQL, and back.",
)  # fmt: skip


@store.callback()
def _group() -> None:
    """Move a store: from SQLite to PostgreSQL, and back."""


@command
def migrate(
    *,
    place: Place,
    out: Out,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The store that there is.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="A new one, or a half migrated.")],
) -> int:
    """Move a store into another: from SQLite to PostgreSQL, or back. Can be run again after a kill.

    Everything comes along, also the store's key, and is compared and verified in the end. The
    source stays as it is. End whatever uses it before, and let the applications name the new one
    after.
    """
    if place.store is not None:
        raise ConfigError("store migrate: name the two stores as FROM and TO, without --store")
    if source == target:
        raise ConfigError("store migrate: FROM and TO are the same store")
    told = _Progress(out)
    with (
        closing(open_store(existing(source))) as old,
        closing(open_store(_new(target), StoreOptions(moving=True))) as new,
    ):
        done = move(old, new, time.time_ns() // 1000, told.tell)
        shown = (old.url, new.url)
    out.document(
        {
            "from": shown[0], "to": shown[1], "sessions": done.sessions, "rows": done.rows,
            "resumed": done.resumed,
        }
    )  # fmt: skip
    out.line(
        f"{counted(done.sessions, 'session')} moved to {shown[1]}: every row compared, every "
        "chain verified"
    )
    if source.startswith("sqlite:") and beside(path_of(source), ".seal").exists():
        out.note(
            "payloads are sealed: give the key in the source's .seal file as CHECKREIN_KEY "
            "wherever the new store is used"
        )
    return 0


def _new(url: str) -> str:
    if url.partition(":")[0] == "memory":
        raise ConfigError("store migrate: memory: ends with its own process; name another store")
    return url


class _Progress:
    """Says how far it is, now and then."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._last = time.monotonic()

    def tell(self, step: str, done: int, total: int) -> None:
        if time.monotonic() - self._last >= OFTEN:
            self._last = time.monotonic()
            self._out.note(f"{step}: {done} of {total}")


store.command("migrate")(migrate)
