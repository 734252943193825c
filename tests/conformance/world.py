"""The tools of all scenarios, and what they did; and rules from data."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from checkrein import Plugin
from checkrein.testing import Effects


class Broken(Exception):
    """What the tool `fail` raises."""


class World:
    """Tools as plain functions, which every framework wraps in its own way."""

    def __init__(self, path: Any = None) -> None:
        self.effects = Effects(path)
        self.rein: Any = None
        self.session = ""
        self.delegate: Callable[[str], Any] | None = None
        """Runs the inner agent; set by a driver whose framework has no form of its own."""
        self.started = threading.Event()
        self.release = threading.Event()
        self._tries = 0

    def did(self) -> list[str]:
        """What happened, in order, in the notation of `Expect.effects`."""
        return [
            ("-" if e.undone else "") + " ".join([e.name, *map(str, e.arguments.values())])
            for e in self.effects
        ]

    def functions(self) -> dict[str, Callable[..., Any]]:
        """The tools by name."""
        do = self.effects.do

        def pay(to: str, amount: int) -> str:
            """Pay an amount to somebody."""
            do("pay", to=to, amount=amount)
            return f"paid {amount} to {to}"

        def note(text: str) -> str:
            """Write a note that stays."""
            do("note", text=text)
            return f"noted {text}"

        def tick(number: int) -> str:
            """Tick."""
            do("tick")
            return "ticked"

        def read(key: str) -> str:
            """Read a value."""
            return f"value of {key}"

        def fail(reason: str) -> str:
            """Fail after the effect."""
            do("fail", reason=reason)
            raise Broken(f"carrier down: {reason}")

        def flaky(text: str) -> str:
            """Fail the first time."""
            do("flaky", text=text)
            self._tries += 1
            if self._tries == 1:
                raise Broken("line busy")
            return f"sent {text}"

        def slow(text: str) -> str:
            """Take longer than it may."""
            do("slow", text=text)
            self.release.wait(0.3)
            return f"late {text}"

        def steady(text: str) -> str:
            """Wait until a sibling has failed."""
            self.started.wait(5)
            time.sleep(0.02)
            do("steady", text=text)
            return f"steady {text}"

        def collapse(reason: str) -> str:
            """Fail while siblings are running."""
            do("collapse", reason=reason)
            self.started.set()
            raise Broken(f"carrier down: {reason}")

        def signal(text: str) -> str:
            """Tell a waiting sibling that it may go on."""
            do("signal", text=text)
            self.started.set()
            return f"signalled {text}"

        def stop(why: str) -> str:
            """Somebody stops the session while it runs."""
            do("stop")
            self.rein.stop(self.session)
            return "stopped"

        async def hang(text: str) -> str:
            """Take long enough to be cancelled."""
            import asyncio

            do("hang", text=text)
            self.started.set()
            await asyncio.sleep(0.5)
            return "hung"

        def mail(to: str, body: str) -> str:
            """Send a mail."""
            do("mail", to=to, body=body)
            return f"mail sent to {to}"

        return {
            fn.__name__: fn
            for fn in (
                pay, note, tick, read, fail, flaky, slow, steady, collapse, signal,
                stop, hang, mail,
            )
        }  # fmt: skip

    def declare(self, rein: Any, names: Any, more: Mapping[str, Mapping[str, Any]]) -> None:
        """Declare undo and effect of the tools that a scenario uses, by name."""
        self.rein = rein
        undo = self.effects.undo
        own: dict[str, dict[str, Any]] = {
            "pay": {"undo": lambda to, amount: undo("pay", to=to, amount=amount)},
            "read": {"effect": "read"},
            "steady": {"undo": lambda text: undo("steady", text=text)},
            "hang": {"undo": lambda text: undo("hang", text=text),
                     "undo_safe_to_repeat": True, "settle_time": 0},
        }  # fmt: skip
        for name in names:
            settings = {**own.get(name, {}), **more.get(name, {})}
            if settings:
                rein.declare(name, **settings)


class Rules(Plugin):
    """Verdicts by name of tool or model: values, or functions of the call.

    Only the hooks that are given exist: a plugin that looks at finished answers makes streams
    wait.
    """

    def __new__(cls, pre: Any = None, post: Any = None, approve: Any = None) -> Any:
        hooks: dict[str, Any] = {}
        if pre is not None:
            hooks["pre_call"] = lambda self, call: _verdict(pre, call)
        if post is not None:
            hooks["post_call"] = lambda self, call, outcome: _verdict(post, call, outcome)
        if approve is not None:
            hooks["on_approval"] = lambda self, call, request: _verdict(approve, call)
        return object.__new__(type("Rules", (Plugin,), hooks))


def _verdict(rules: Mapping[str, Any], call: Any, *more: Any) -> Any:
    found = rules.get(call.name if call.kind == "tool" else call.kind)
    return found(call, *more) if callable(found) else found


class AsyncRules(Plugin):
    """The same verdict from a coroutine."""

    def __init__(self, pre: Mapping[str, Any]) -> None:
        self._pre = pre

    async def pre_call(self, call: Any) -> Any:
        import asyncio

        await asyncio.sleep(0)
        return _verdict(self._pre, call)
