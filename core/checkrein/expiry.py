"""How long something stays open: counted, not read off a clock that somebody may set.

An end is kept twice: on the Rein's clock, and on the machine's steady clock, which counts from
its start. Processes of the same boot go by the steady one, so that neither a step of the wall
clock nor a time zone makes a wait shorter or longer. After a restart, on another machine, and
where the Rein was given a clock of its own, the Rein's clock is what there is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkrein import owner

if TYPE_CHECKING:
    from checkrein.rein import Rein

_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""Counts on while the machine sleeps, where the system has such a clock."""


def steady() -> int:
    """Microseconds on a clock that all processes of this boot share and nobody sets."""
    return 0 if _CLOCK is None else time.clock_gettime_ns(_CLOCK) // 1000


@cache
def _era() -> str:
    """What has to be the same for two readings of `steady` to be compared; empty: unknown."""
    if _CLOCK is None or not owner.boot():
        return ""
    try:
        # Containers may have steady clocks of their own.
        return f"{owner.boot()} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return owner.boot()


def ends(rein: Rein, seconds: float, key: str = "expires") -> dict[str, Any]:
    """Fields of a row that say when something ends that begins now and lasts `seconds`."""
    span = round(seconds * 1e6)
    found: dict[str, Any] = {key: rein.clock() + span}
    if rein.clock is rein.real_clock and _era():
        found[f"{key}_steady"] = [_era(), steady() + span]
    return found


def left(rein: Rein, body: Mapping[str, Any], key: str = "expires") -> float:
    """Seconds until the end that `ends` wrote; 0 or less: it is over."""
    kept = body.get(f"{key}_steady")
    if kept and rein.clock is rein.real_clock and kept[0] == _era():
        return float(kept[1] - steady()) / 1e6
    return float(body[key] - rein.clock()) / 1e6
