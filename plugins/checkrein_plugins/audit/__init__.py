"""Audit: every event goes to whoever keeps records, as it is committed.

    Audit(file="audit.jsonl")            # complete: goes on where the file ends, also after a kill
    Audit(to=ship, metadata_only=True)   # a function; without arguments, results and texts
    Audit(stdout=True, otlp="http://collector:4318")

The journal stays the record; these are copies of it, made after the commit, on threads of their
own: no call waits for them. `file` misses nothing and repeats nothing. The others get the events
of this process while it lives; what they cannot take in time is dropped, counted and logged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Never

from pydantic import StrictBool

from checkrein import export
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein_plugins._config import (
    Count,
    Name,
    Settings,
    Text,
    read,
    refuse_twins,
    refuse_unknown,
)
from checkrein_plugins.audit.file import Follower
from checkrein_plugins.audit.queue import Queue

if TYPE_CHECKING:
    from checkrein.rein import Rein
    from checkrein.store import Event

QUEUE = 10_000
"""Events that wait for a sink at most."""


class _Settings(Settings):
    file: Text | None = None
    stdout: StrictBool = False
    otlp: Text | None = None
    metadata_only: StrictBool = False
    queue: Count = QUEUE
    name: Name = "audit"


class Audit(Plugin):
    """Copies of the audit log, for sinks.

    `file`: JSON lines, one for every event of the store, by any process. `stdout`: JSON lines of
    this process's events. `otlp`: the address of a collector that takes log records over HTTP
    (extra `otel`). `to`: functions that take one row (see `checkrein.export`); they run on a
    thread of their own. `metadata_only`: rows without arguments, results, reasons and texts.
    `queue`: events that wait for a sink at most; what comes after is dropped and counted.

    Raises `ConfigError` for what cannot be used: no sink, a file of another store, no SDK.
    """

    def __init__(
        self,
        *,
        file: str | None = None,
        stdout: bool = False,
        otlp: str | None = None,
        to: Callable[[dict[str, Any]], Any] | Sequence[Callable[[dict[str, Any]], Any]] = (),
        metadata_only: bool = False,
        queue: int = QUEUE,
        name: str = "audit",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "audit", ("to", *_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "file": file, "stdout": stdout, "otlp": otlp, "metadata_only": metadata_only,
                "queue": queue, "name": name,
            },
            "audit",
        )  # fmt: skip
        self.name = settings.name
        self._bare = settings.metadata_only
        self._follower = None if settings.file is None else Follower(settings.file, bare=self._bare)
        functions = [to] if callable(to) else list(to)
        for index, function in enumerate(functions):
            if not callable(function):
                raise ConfigError(f"audit.to[{index}]: a function that takes one row")
        if settings.stdout:
            functions.append(_print)
        self._queues = [Queue(function, settings.queue) for function in functions]
        if settings.otlp is not None:
            from checkrein_plugins.audit.otlp import Sender

            self._queues.append(Queue(Sender(settings.otlp), settings.queue))
        if self._follower is None and not self._queues:
            raise ConfigError("audit: name a sink: file, stdout, otlp or to")

    @property
    def dropped(self) -> int:
        """Events that a sink did not take in time, or refused, since the start."""
        return sum(queue.dropped for queue in self._queues)

    def start(self, rein: Rein) -> None:
        """Begin to copy. Raises `ConfigError` for a file that belongs to another store."""
        refuse_twins(rein, self)
        if self._follower is not None:
            self._follower.start(rein.store)
        for queue in self._queues:
            queue.start()

    def on_event(self, event: Event) -> None:
        """Hand an event on."""
        if self._queues:
            row = export.row(event, metadata_only=self._bare)
            for queue in self._queues:
                queue.put(row)

    def close(self) -> None:
        """Write what is still waiting."""
        if self._follower is not None:
            self._follower.close()
        for queue in self._queues:
            queue.close()


def _print(row: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()
