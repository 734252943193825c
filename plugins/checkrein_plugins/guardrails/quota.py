"""ResourceQuota: no further call once a session has used up time, CPU, memory or its lanes."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Never

from pydantic import Field, StrictBool, StrictInt

from checkrein._locks import Lock
from checkrein.call import Call
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Deny, Hold, PreVerdict
from checkrein_plugins._config import (
    Name,
    Seconds,
    Settings,
    read,
    refuse_twins,
    refuse_unknown,
)

if TYPE_CHECKING:
    from checkrein.rein import Rein

SAMPLE = 0.05
"""Seconds for which a reading of the memory is used again: one costs 10 us."""

SESSIONS = 4096
"""Sessions of which the beginning is remembered."""


class _Settings(Settings):
    cpu: Seconds | None = None
    memory_mb: Seconds | None = None
    wall: Seconds | None = None
    parallel: Annotated[StrictInt, Field(ge=1)] | None = None
    halt: StrictBool = True
    name: Name = "quota"


class ResourceQuota(Plugin):
    """Refuses calls of a session that has used up what it may use.

    `wall`: seconds since the session began, over restarts. `cpu`: seconds of CPU that this
    process and its ended children used since it first saw the session; sessions that run side by
    side in one process are not told apart. `memory_mb`: what the process holds in memory now.
    `parallel`: calls of the session that may run at once; a further one waits. All are looked at
    before a call: a call that runs is ended by `Timeout` only. `halt`: end the run (default).

    Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        cpu: float | None = None,
        memory_mb: float | None = None,
        wall: float | None = None,
        parallel: int | None = None,
        halt: bool = True,
        name: str = "quota",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "quota", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "cpu": cpu,
                "memory_mb": memory_mb,
                "wall": wall,
                "parallel": parallel,
                "halt": halt,
                "name": name,
            },
            "quota",
        )
        if (cpu, memory_mb, wall, parallel) == (None, None, None, None):
            raise ConfigError("quota: state a limit: cpu, memory_mb, wall or parallel")
        self.name = settings.name
        self._cpu = settings.cpu
        self._memory = settings.memory_mb
        self._wall = settings.wall
        self._parallel = settings.parallel
        self._halt = settings.halt
        self._begun: OrderedDict[str, tuple[int, float, int]] = OrderedDict()
        """By session: microseconds when it began, CPU seconds when first seen, process."""
        self._lock = Lock()
        self._sampled = (0.0, 0.0)
        self._rein: Rein | None = None

    def start(self, rein: Rein) -> None:
        """Refuse a second one of this name; its clock and sessions are the Rein's."""
        refuse_twins(rein, self)
        self._rein = rein

    def pre_call(self, call: Call) -> PreVerdict:
        """Deny where something is used up; hold a lane."""
        if call.kind == "undo":
            return None
        if self._wall is not None or self._cpu is not None:
            began, cpu, _ = self._beginning(call.session)
            if self._wall is not None and self._now() - began >= self._wall * 1_000_000:
                return self._deny("wall", f"the session is older than {self._wall:g} s")
            if self._cpu is not None and cpu_used() - cpu >= self._cpu:
                return self._deny("cpu", f"the session has used {self._cpu:g} s of CPU")
        if self._memory is not None and self._megabytes() >= self._memory:
            return self._deny("memory", f"the process holds {self._memory:g} MB of memory")
        if self._parallel is not None:
            return Hold(
                f"{self.name}/parallel/{call.session}",
                1,
                "calls",
                self._parallel,
                settle="release",
                rule=f"{self.name}/parallel",
                on_refused="wait",
                reason=f"{self._parallel} calls of the session run at once already",
                code="rate_limited",
            )
        return None

    def _deny(self, what: str, reason: str) -> Deny:
        return Deny(f"{reason}; that is its quota", rule=f"{self.name}/{what}", halt=self._halt)

    def _now(self) -> int:
        return time.time_ns() // 1000 if self._rein is None else self._rein.clock()

    def _beginning(self, session: str) -> tuple[int, float, int]:
        """When the session began; the CPU since this process knows it."""
        pid = os.getpid()
        known = self._begun.get(session)
        if known is not None and known[2] == pid:
            return known
        with self._lock:
            row = self._rein.store.session(session) if self._rein is not None else None
            found = (row.created if row is not None else self._now(), cpu_used(), pid)
            if len(self._begun) >= SESSIONS:
                self._begun.popitem(last=False)
            self._begun[session] = found
        return found

    def _megabytes(self) -> float:
        at, size = self._sampled
        now = time.monotonic()
        if now - at >= SAMPLE:
            size = memory()
            self._sampled = (now, size)
        return size


def cpu_used() -> float:
    """Seconds of CPU of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def memory() -> float:
    """Megabytes that this process holds; where the system does not tell, its peak."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # Bytes on macOS, kilobytes elsewhere.
        return peak / (1_000_000 if sys.platform == "darwin" else 1000)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1_000_000
