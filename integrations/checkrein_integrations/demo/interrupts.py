"""How the demo is ended from outside, with nothing of it left running."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, Self

AGAIN = 0.25
"""Seconds after which an interrupt that went unheard is raised once more."""


class Interrupts:
    """Ctrl-C, a kill and a closed terminal end the block by `KeyboardInterrupt`.

    Python discards an exception that a signal raises inside a weak reference's callback or a
    finalizer (imports have such), so inside `insist()` it is raised until it arrives.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._insisting = False
        self._heard = False

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:  # as nohup has it
                self._before[number] = before
                signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def insist(self) -> Iterator[None]:
        """Raise again what is not heard; cleaning up belongs outside of this block."""
        report = sys.unraisablehook

        def unheard(ignored: sys.UnraisableHookArgs) -> None:
            if ignored.exc_type is not KeyboardInterrupt:
                report(ignored)

        self._insisting = True
        sys.unraisablehook = unheard
        try:
            yield
        finally:
            self._insisting = False
            sys.unraisablehook = report
            signal.setitimer(signal.ITIMER_REAL, 0)
        if self._heard:
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> NoReturn:
        self._heard = True
        if self._insisting:
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
        raise KeyboardInterrupt
