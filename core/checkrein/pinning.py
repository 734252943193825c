"""A session stays under the policy that it began with, whoever takes it up again.

A session pins what decides in its process: for each plugin with a `pre_call` or a `post_call` the
installed name and the arguments by which an equal one can be built. The pins are kept in the
payload of the session's first event; their digest, keyed with the store's key, stands in that event
and in the session's row. A process that takes the session up under another policy builds those that
it does not have itself, and they are asked beside its own: the stricter verdict wins. After a
call they withhold, replace and ask as before; to try again is nothing that a policy demands.

A configuration says all this by itself. A plugin that a program passes in is pinned if it has a
method `pin()` that returns `(installed name, arguments)`; others are only known by their class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkrein import codec
from checkrein._io import is_awaitable
from checkrein.checks import Checked, PreFold
from checkrein.errors import ConfigError, SessionClosed
from checkrein.verdicts import Fallback, Retry

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.call import Call
    from checkrein.engine import Engine
    from checkrein.entry import Entry
    from checkrein.manager import Impl
    from checkrein.rein import Rein
    from checkrein.session import Session
    from checkrein.store import SessionRow
    from checkrein.verdicts import Hold

Pins = list[dict[str, Any]]
"""For each deciding plugin `{"name", "use", "options"}`, or `{"name", "class"}`."""


def pins_of(rein: Rein, configured: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Pins:
    """What decides in this Rein. `configured`: installed name and arguments by plugin name."""
    chains = rein.plugins.chains
    deciding = {impl.plugin for impl in (*chains["pre_call"], *chains["post_call"])}
    found: Pins = []
    for name, plugin in rein.plugins:
        if name not in deciding:
            continue
        pin = getattr(plugin, "pin", None)
        if callable(pin):
            pinned: Any = pin()
            use, options = pinned
        elif name in configured:
            use, options = configured[name]
        else:
            cls = type(plugin)
            found.append({"name": name, "class": f"{cls.__module__}.{cls.__qualname__}"})
            continue
        found.append({"name": name, "use": use, "options": dict(options)})
    return found


def is_pinned(pins: Pins) -> bool:
    """Whether anything in it can be built again."""
    return any("use" in pin for pin in pins)


def digest(key: bytes, pins: Pins) -> str:
    """Names a set of pins: equal ones give the same text, in one store."""
    return codec.digest(key, codec.encode(pins))


@dataclass(frozen=True, slots=True)
class Pinned:
    """What a session that was taken up is held against beside the process's own plugins."""

    pre: tuple[Impl, ...]
    post: tuple[Impl, ...]
    plugins: tuple[object, ...]

    @property
    def asked(self) -> list[str]:
        """The plugins' names."""
        return list(dict.fromkeys(impl.plugin for impl in (*self.pre, *self.post)))

    async def check(
        self, engine: Engine, io: IO, entry: Entry, call: Call, tree: dict[str, Any]
    ) -> Checked:
        """Fold the process's own plugins and these together."""
        entry.begun = None
        recall, remember = engine.rein.recorded.external(io, entry, call, tree)
        chain = (*engine.pre, *self.pre)
        fold = PreFold(io, chain, engine.rein.hook_timeout, recall, remember)
        checked = await fold.run(call)
        checked.holds = merged(checked.holds)
        return checked


class _Alone:
    """The Rein as a pinned plugin sees it: the plugins of today are not its neighbours."""

    plugins: tuple[tuple[str, object], ...]

    def __init__(self, rein: Rein, plugins: Iterable[tuple[str, object]]) -> None:
        self._rein = rein
        self.plugins = tuple(plugins)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rein, name)


class Pinning:
    """Pins the sessions of one Rein, and finds what they are pinned to."""

    def __init__(self, rein: Rein, pins: Pins) -> None:
        self.rein = rein
        self.pins = pins
        self.digest = digest(rein.store.key, pins) if is_pinned(pins) else ""
        self._built: dict[str, Pinned | None] = {}

    def kept(self) -> Any:
        """The payload of a session's first event; None where there is nothing to pin."""
        return {"pins": codec.encode(self.pins)} if self.digest else None

    def take_up(self, session: Session, row: SessionRow) -> None:
        """Put a session that is taken up under what it began with.

        Raises `SessionClosed` where that cannot be done: it must not go on under less.
        """
        began = str(row.body.get("pins", ""))
        if row.body.get("mode", "enforce") == "enforce" and self.rein.mode == "observe":
            raise SessionClosed(
                f"session {session.id} began under enforcement: a process in mode observe must "
                "not take it up"
            )
        first = self.rein.store.events(session=session.id, kinds=("session_started",), limit=1)
        noted = str(first[0].view.get("pins", "")) if first else ""
        if began != noted:
            raise self._altered(session)
        if not began or began == self.digest:
            session.pinned = None
            return
        if began not in self._built:
            self._built[began] = self._build(session, began, first[0].seq)
        session.pinned = self._built[began]
        self._note(session, began)

    def _altered(self, session: Session) -> SessionClosed:
        return SessionClosed(
            f"session {session.id}: the record of its policy was altered; it is not taken up "
            "(checkrein audit verify)"
        )

    def _build(self, session: Session, began: str, seq: int) -> Pinned | None:
        from checkrein import manager

        payload = self.rein.store.payload(seq)
        if not isinstance(payload, dict) or "pins" not in payload:
            raise SessionClosed(
                f"session {session.id}: the policy that it began with is not kept any more, and "
                "this process has another one; it is not taken up"
            )
        pins: Pins = codec.decode(payload["pins"])
        if digest(self.rein.store.key, pins) != began:
            raise self._altered(session)
        mine = [(pin.get("use"), pin.get("options"), pin.get("class")) for pin in self.pins]
        chain = manager.Plugins()
        named: list[tuple[str, object]] = []
        for pin in pins:
            if (pin.get("use"), pin.get("options"), pin.get("class")) in mine:
                continue
            if "class" in pin:
                self.rein.log.warning(
                    "session %s began with plugin %s (%s), which this process does not have and "
                    "cannot build", session.id, pin["name"], pin["class"],
                )  # fmt: skip
                continue
            try:
                named.append((pin["name"], manager.build(pin["use"], dict(pin["options"]))))
            except ConfigError as error:
                raise SessionClosed(
                    f"session {session.id}: plugin {pin['name']} of the policy that it began with "
                    f"cannot be built here: {error}"
                ) from error
        if not named:
            return None
        chain.register(named)
        chain.start(_Alone(self.rein, named))  # type: ignore[arg-type]  # all of a Rein but its plugins
        pre = chain.chains["pre_call"]
        for impl in pre:
            if impl.external:
                # Its stored verdicts are its own, not those of the plugin of that name today.
                impl.plugin = f"{impl.plugin}@pinned"
        post = chain.chains["post_call"]
        for impl in post:
            impl.function = _narrowing(impl.function)
        return Pinned(pre, post, tuple(plugin for _, plugin in named))

    def _note(self, session: Session, began: str) -> None:
        from checkrein.store import Batch

        rein = self.rein
        last = rein.store.events(
            session=session.id, kinds=("policy_changed",), reverse=True, limit=1
        )
        if last and last[0].view.get("now") == self.digest:
            return
        asked = session.pinned.asked if session.pinned is not None else []
        event = rein.journal.event("policy_changed", began=began, now=self.digest, asked=asked)
        batch = Batch(session.id, (event,), event.at, session.fence)
        rein.observers.notify(rein.store.commit(batch), batch)

    def close(self) -> None:
        """Close the plugins that were built for sessions."""
        for pinned in self._built.values():
            for plugin in pinned.plugins if pinned is not None else ():
                close = getattr(plugin, "close", None)
                if callable(close):
                    close()


def _narrowing(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A `post_call` whose verdicts can withhold and ask, and not call for another attempt."""

    def narrowed(verdict: Any) -> Any:
        if type(verdict) is tuple:
            return tuple(map(narrowed, verdict))
        return None if type(verdict) in (Retry, Fallback) else verdict

    async def later(verdict: Any) -> Any:
        return narrowed(await verdict)

    def post_call(*values: Any) -> Any:
        verdict = hook(*values)
        return later(verdict) if is_awaitable(verdict) else narrowed(verdict)

    return post_call


def merged(holds: list[tuple[str, Hold]]) -> list[tuple[str, Hold]]:
    """One hold for each account: what both policies count is counted once, the stricter way."""
    found: dict[str, tuple[str, Hold]] = {}
    for plugin, hold in holds:
        before = found.get(hold.account)
        if before is None:
            found[hold.account] = (plugin, hold)
            continue
        kept = before[1]
        windows = [w for w in (kept.window, hold.window) if w is not None]
        found[hold.account] = (
            before[0],
            dataclasses.replace(
                kept,
                amount=max(kept.amount, hold.amount),
                limit=min(kept.limit, hold.limit),
                # No window counts for ever: that is the stricter one.
                window=max(windows) if len(windows) == 2 else None,
                halt=kept.halt or hold.halt,
            ),
        )
    return list(found.values())
