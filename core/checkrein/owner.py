"""Who is alive: a process's lease on the sessions that it runs.

On one host the question is answered at once (boot id, pid and the start time of the process:
a re-used pid has another). On other hosts a lease counts as lost when it was not renewed.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from pathlib import Path

from checkrein.store import OwnerRow

BEAT = 5.0
"""Seconds between two renewals."""
LEASE = 30.0
"""Seconds after which another host's silent owner counts as dead."""


ONE = threading.Lock()
"""Held while a process makes a lease: threads that begin together share one."""


def _after_fork() -> None:
    global ONE  # noqa: PLW0603 - the parent's may have been held at the fork
    ONE = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


@cache
def host() -> str:
    """This machine's name, and the pid namespace where there are several on one machine.

    Containers may share name, boot id and store: a pid of one says nothing in the other.
    """
    try:
        return f"{os.uname().nodename} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return os.uname().nodename


@cache
def boot() -> str:
    """An id of this boot: pids of an earlier one mean nothing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def started(pid: int) -> str:
    """Start time of a process as the system tells it; empty if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return _started_by_ps(pid) if not Path("/proc/self/stat").exists() else ""
    except OSError:
        return ""
    # The command's name stands in brackets and may hold anything: fields count after the last.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        return ""
    return fields[19]


def _started_by_ps(pid: int) -> str:
    import subprocess

    try:
        done = subprocess.run(  # noqa: S603 - fixed command, a number as argument
            ["ps", "-o", "lstart=", "-p", str(pid)],  # noqa: S607 - found where the system has it
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip()


def this_process(now: int) -> OwnerRow:
    """A new lease for this process."""
    pid = os.getpid()
    return OwnerRow(os.urandom(16).hex(), host(), boot(), pid, started(pid), now)


def alive(owner: OwnerRow | None, now: int) -> bool:
    """Whether the process behind a lease can still be at work."""
    if owner is None:
        return False
    if owner.host == host() and owner.boot == boot():
        return bool(owner.started) and started(owner.pid) == owner.started
    return now - owner.beat < LEASE * 1_000_000
