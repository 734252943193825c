"""Keep stores whole over `os.fork`.

A lock that another thread holds at the fork stays locked in the child for ever, and SQLite
remembers inherited file locks that the child does not have. So whoever registers here is asked
to come to rest before a fork, and told when it is over, in parent and child.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forks(Protocol):
    """Something that must rest while the process forks."""

    def before_fork(self) -> None: ...

    def after_fork(self, *, child: bool) -> None: ...


_members: weakref.WeakSet[Forks] = weakref.WeakSet()
_resting: list[Forks] = []


def register(member: Forks) -> None:
    """Have `member` rest before every fork, as long as it lives."""
    _members.add(member)


def _before() -> None:
    for member in tuple(_members):
        member.before_fork()
        _resting.append(member)


def _after(child: bool) -> None:
    while _resting:
        _resting.pop().after_fork(child=child)


os.register_at_fork(
    before=_before,
    after_in_parent=lambda: _after(False),
    after_in_child=lambda: _after(True),
)
