"""Waiting for one's turn to write a SQLite file.

SQLite's own waiting grows to 100 ms a step and starves a process beside busy ones.
"""

from __future__ import annotations

import random
import sqlite3
import time


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else holds a lock that the statement needs."""
    return name_of(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def name_of(error: sqlite3.Error) -> str:
    """SQLite's name of an error; errors of the Python module itself have none."""
    return getattr(error, "sqlite_errorname", None) or ""


def begin(on: sqlite3.Cursor | sqlite3.Connection, patience: float) -> None:
    """Open a transaction that writes, and with it shut out other processes.

    Raises `sqlite3.OperationalError` where others write for more than `patience` seconds.
    """
    deadline = 0.0
    while True:
        try:
            on.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            now = time.monotonic()
            deadline = deadline or now + patience
            if not is_busy(error) or now >= deadline:
                raise
            nap(0.0002, 0.001)
        else:
            return


def nap(least: float, most: float) -> None:
    """Sleep for a random time, so that two waiters do not wake together again and again."""
    time.sleep(random.uniform(least, most))  # noqa: S311 - no secret
