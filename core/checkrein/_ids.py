"""Ids that no other process makes."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable


class Ids:
    """A random prefix and a counter, anew after a fork."""

    def __init__(self) -> None:
        self.new: Callable[[], str]
        """The next id. An attribute: a call costs no look-up of a method."""
        self.renew()
        reference = weakref.ref(self)

        def renew() -> None:
            alive = reference()
            if alive is not None:
                alive.renew()

        os.register_at_fork(after_in_child=renew)

    def renew(self) -> None:
        """Begin another row of ids."""
        prefix = os.urandom(8).hex() + "-"
        # Chained iterators: an id is made without running a line of Python.
        self.new = map(prefix.__add__, map(str, itertools.count(1))).__next__
