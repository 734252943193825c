"""`Rein`: plugins, a store and an engine, and the functions that people call."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

from checkrein._io import AsyncIO, Portal, SyncIO, finish, is_awaitable
from checkrein.call import Usage
from checkrein.engine import Engine
from checkrein.entry import CURRENT, OPTIONS, Entry, seen, undone_around
from checkrein.errors import ConfigError, SessionClosed, WouldBlock
from checkrein.journal import Journal
from checkrein.lifecycle import Lifecycle
from checkrein.manager import Plugins
from checkrein.plain import NOT_PLAIN, Plain
from checkrein.session import ACTIVE, Session, active, labels_of
from checkrein.store import Batch, Committed, SettleRow, Store, StoreOptions, open_store
from checkrein.telemetry import Telemetry
from checkrein.tools import Tool, Tools

if TYPE_CHECKING:
    from concurrent.futures import Future

    from opentelemetry.trace import TracerProvider

    from checkrein.approval import Approvals
    from checkrein.permission import Permissions
    from checkrein.reading import Reading
    from checkrein.recorded import Recorded
    from checkrein.recovery import RecoverReport, Recovery
    from checkrein.rollback import RollbackReport, Rollbacks

P = ParamSpec("P")
T = TypeVar("T")

_CHOICES: dict[str, tuple[str, ...]] = {
    "mode": ("enforce", "observe"),
    "record": ("all", "tools", "none"),
    "durability": ("process", "power"),
    "wait": ("auto", "block", "suspend"),
    "approvals": ("auto", "store", "channels"),
    "unattributed": ("account", "refuse"),
    "on_error": ("rollback", "keep"),
    "on_rejected": ("raise", "rollback"),
}


class _Ids:
    """Ids that no other process makes: a random prefix and a counter, anew after a fork."""

    def __init__(self) -> None:
        self.renew()
        reference = weakref.ref(self)

        def renew() -> None:
            alive = reference()
            if alive is not None:
                alive.renew()

        os.register_at_fork(after_in_child=renew)

    def renew(self) -> None:
        prefix = os.urandom(8).hex() + "-"
        count = itertools.count(1).__next__
        self.new = lambda: prefix + str(count())


class Rein:
    """One supervision layer: its plugins, its store, its tools.

    Raises `ConfigError` (and `PluginError`) for settings that cannot be used and
    `StoreUnavailable` where the store cannot; nothing has run then.
    """

    def __init__(
        self,
        plugins: Iterable[object] = (),
        store: str | Store = "memory:",
        counters: str | None = None,
        durability: Literal["process", "power"] = "process",
        mode: Literal["enforce", "observe"] = "enforce",
        *,
        record: Literal["all", "tools", "none"] = "all",
        encrypt: bool = False,
        max_payload: int = 8 * 1024 * 1024,
        drain: float = 30.0,
        wait: Literal["auto", "block", "suspend"] = "auto",
        on_error: Literal["rollback", "keep"] = "rollback",
        on_rejected: Literal["raise", "rollback"] = "raise",
        approvals: Literal["auto", "store", "channels"] = "auto",
        approval_expires: float = 86_400.0,
        unattributed: Literal["account", "refuse"] = "account",
        hook_timeout: float = 30.0,
        hold_wait: float = 60.0,
        undo_tries: int = 3,
        clock: Callable[[], int] | None = None,
        tracer_provider: TracerProvider | None = None,
        policy: str = "",
    ) -> None:
        chosen = {
            "mode": mode, "record": record, "durability": durability, "wait": wait,
            "approvals": approvals, "unattributed": unattributed, "on_error": on_error,
            "on_rejected": on_rejected,
        }  # fmt: skip
        for key, value in chosen.items():
            if value not in _CHOICES[key]:
                raise ConfigError(f"{key}: {value!r} is not one of {', '.join(_CHOICES[key])}")
        for key, number in {
            "drain": drain, "approval_expires": approval_expires, "hook_timeout": hook_timeout,
            "hold_wait": hold_wait, "max_payload": max_payload, "undo_tries": undo_tries,
        }.items():  # fmt: skip
            if isinstance(number, bool) or not isinstance(number, (int, float)) or not number >= 0:
                raise ConfigError(f"{key}: must be a number, 0 or more")
        if counters is not None:
            raise ConfigError(f"counters: {counters.partition(':')[0]!r} is not supported yet")
        self.log = logging.getLogger("checkrein")
        self.mode = mode
        self.wait = wait
        self.drain = float(drain)
        self.on_error = on_error
        self.on_rejected = on_rejected
        self.approval_expires = float(approval_expires)
        self.unattributed = unattributed
        self.hook_timeout = float(hook_timeout)
        self.hold_wait = float(hold_wait)
        self.undo_tries = max(1, int(undo_tries))
        self.policy = policy
        self.clock: Callable[[], int] = clock or _microseconds
        self.real_clock = _microseconds
        self.pause_signals: list[type[BaseException]] = []
        """Exceptions by which a framework suspends a run; adapters add theirs."""
        self.plugins = Plugins()
        self.plugins.register(plugins)
        self.tools = Tools()
        self.ids = _Ids()
        self.telemetry = Telemetry(tracer_provider)
        options = StoreOptions(durability=durability, max_payload=max_payload, encrypt=encrypt)
        self.store: Store = open_store(store, options) if isinstance(store, str) else store
        self.portal = Portal()
        self.sync_io = SyncIO(self.store, self.portal)
        self.async_io = AsyncIO(self.store, self.portal)
        self.journal = Journal(
            self.store, self.clock, self.plugins.chains["view"], record, self.log
        )
        self.observed = bool(self.plugins.chains["on_event"])
        self.lifecycle = Lifecycle(self)
        self.answer_from_store = approvals == "store" or (
            approvals == "auto" and self.store.blocking
        )
        self.engine = Engine(self, self.journal)
        self.plain = Plain(self.engine)
        self._sessions: weakref.WeakValueDictionary[str, Session] = weakref.WeakValueDictionary()
        self._open: dict[str, Session] = {}
        self._spare: Session | None = None
        self._lock = threading.Lock()
        self._owner = ""
        self._owner_pid = 0
        self._stop_beating: threading.Event | None = None
        self._closed = False
        self._observing: set[Future[Any]] = set()
        self._lazy: dict[str, Any] = {}
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    # -- construction from files

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **overrides: Any) -> Rein:
        """A Rein from a TOML or YAML file. Errors name the file, the line and the key."""
        from checkrein.policy import rein_from_file

        return cast("Rein", rein_from_file(cls, Path(path), overrides))

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **overrides: Any) -> Rein:
        """A Rein from a mapping of the same shape as the file."""
        from checkrein.policy import rein_from_config

        return cast("Rein", rein_from_config(cls, config, overrides))

    def _start(self) -> None:
        for impl in self.plugins.chains["start"]:
            try:
                waiting = impl(self)
                if is_awaitable(waiting):
                    self.portal.run(waiting, what=f"start of plugin {impl.plugin}", timeout=60)
            except ConfigError as error:
                raise type(error)(f"plugin {impl.plugin}: {error}") from error
            except WouldBlock:
                raise
            except Exception as error:
                # Whatever a plugin raises at its start, a Rein without it would be unguarded.
                raise ConfigError(
                    f"plugin {impl.plugin} does not start: {type(error).__name__}: {error}"
                ) from error

    # -- the parts that are only made where they are used

    @property
    def rollbacks(self) -> Rollbacks:
        """Undo and recovery."""
        if "rollbacks" not in self._lazy:
            from checkrein.rollback import Rollbacks

            self._lazy.setdefault("rollbacks", Rollbacks(self))
        return cast("Rollbacks", self._lazy["rollbacks"])

    @property
    def recovery(self) -> Recovery:
        """What dead processes left."""
        if "recovery" not in self._lazy:
            from checkrein.recovery import Recovery

            self._lazy["recovery"] = Recovery(self)
        return cast("Recovery", self._lazy["recovery"])

    @property
    def approvals(self) -> Approvals:
        """Questions to people: `.pending()`, `.approve(id, by=)`, `.reject(id, by=, reason=)`."""
        if "approvals" not in self._lazy:
            from checkrein.approval import Approvals

            self._lazy.setdefault("approvals", Approvals(self))
        return cast("Approvals", self._lazy["approvals"])

    @property
    def permissions(self) -> Permissions:
        """Asking for approvals, and using them up."""
        if "permissions" not in self._lazy:
            from checkrein.permission import Permissions

            self._lazy.setdefault("permissions", Permissions(self))
        return cast("Permissions", self._lazy["permissions"])

    @property
    def recorded(self) -> Recorded:
        """Calls that were made before under the same key."""
        if "recorded" not in self._lazy:
            from checkrein.recorded import Recorded

            self._lazy.setdefault("recorded", Recorded(self))
        return cast("Recorded", self._lazy["recorded"])

    # -- sessions

    def session(
        self,
        agent: str = "",
        intent: str = "",
        *,
        id: str | None = None,
        user: str | None = None,
        tenant: str | None = None,
        task: str = "",
        labels: Mapping[str, str] | None = None,
        detached: bool = False,
        wait: Literal["auto", "block", "suspend"] | None = None,
        on_error: Literal["rollback", "keep"] | None = None,
        on_rejected: Literal["raise", "rollback"] | None = None,
        drain: float | None = None,
    ) -> Session:
        """A session to enter with `with` or `async with`.

        `id` takes up a suspended session again; an error that leaves the block fails the
        session, which is then rolled back (`on_error="keep"` leaves its effects).
        """
        for key, value in (("wait", wait), ("on_error", on_error), ("on_rejected", on_rejected)):
            if value is not None and value not in _CHOICES[key]:
                raise ConfigError(f"{key}: {value!r} is not one of {', '.join(_CHOICES[key])}")
        return Session(
            self, id or os.urandom(16).hex(), agent=agent, intent=intent, user=user,
            tenant=tenant, task=task, labels=labels, detached=detached, wait=wait,
            on_error=on_error, on_rejected=on_rejected, drain=drain,
        )  # fmt: skip

    def current_session(self) -> Session:
        """The session of this context, or the account of calls that belong to none.

        Raises `SessionClosed` for the latter where `unattributed="refuse"`.
        """
        if CURRENT.get() is not None and (undone := undone_around()):
            return self.rollbacks.session_of(undone)
        session = ACTIVE.get()
        if session is not None and session.rein is not self:
            session = active(self)
        if session is not None:
            return session
        if self.unattributed == "refuse":
            raise SessionClosed(
                "this call belongs to no session: open one with rein.session(...), or carry it "
                "into the thread with session.bind(fn)"
            )
        spare = self._spare
        if spare is None or self._owner_pid != os.getpid():
            spare = self._open_spare()
        return spare

    def _open_spare(self) -> Session:
        with self._lock:
            if self._spare is None or self._owner_pid != os.getpid():
                spare = Session(
                    self, f"unattributed-{os.urandom(8).hex()}", agent="unattributed",
                    on_error="keep",
                )  # fmt: skip
                finish(self.lifecycle.open(self.sync_io, spare))
                self.log.warning(
                    "calls outside any session go to %s; open rein.session(...) or use "
                    "session.bind(fn) in threads", spare.id,
                )  # fmt: skip
                self._spare = spare
            return self._spare

    def track(self, session: Session) -> None:
        """Remember an open session of this process."""
        self._open[session.id] = session

    def untrack(self, session: Session) -> None:
        """The session is over here."""
        self._open.pop(session.id, None)

    def opened(self, id: str) -> Session | None:
        """The open session of this process with that id."""
        return self._open.get(id)

    # -- calls

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn(*args, **kwargs)` under supervision.

        Raises `Denied` and its kinds, `ApprovalPending`, `SessionClosed`, `StoreUnavailable`;
        and whatever `fn` raises.
        """
        target: Callable[..., Any] = fn
        given: tuple[Any, ...] = args
        named: dict[str, Any] = kwargs
        if type(fn) is not FunctionType:
            target, given, named = self.tools.opened(fn, args, kwargs)
        tool = self.tools.of(target)
        arguments = tool.bind(given, named)
        session = self.current_session()
        if self.plain.possible:
            value = self.plain.call(tool, arguments, session)
            if value is not NOT_PLAIN:
                return cast("T", value)
        entry = Entry(tool, arguments, session)
        return cast("T", seen(finish(self.engine.outcome(self.sync_io, entry))).value)

    async def acall(
        self, fn: Callable[P, Awaitable[T]] | Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The async twin of `call`; `fn` may be sync or async."""
        target, given, named = self.tools.opened(fn, args, kwargs)
        tool = self.tools.of(target)
        entry = Entry(tool, tool.bind(given, named), self.current_session())
        return cast("T", seen(await self.engine.outcome(self.async_io, entry)).value)

    def enter(self, entry: Entry) -> Any:
        """Run an adapter's entry; returns its `Outcome`, raises what the caller must see."""
        return finish(self.engine.run(self.sync_io, entry))

    async def aenter(self, entry: Entry) -> Any:
        """The async twin of `enter`."""
        return await self.engine.run(self.async_io, entry)

    def _model_entry(
        self,
        fn: Callable[..., Any],
        model: str,
        messages: Sequence[Any],
        system: Any,
        tools: Sequence[Any],
        usage: Callable[[Any], Usage | None] | None,
    ) -> Entry:
        from checkrein.call import ToolInfo

        def run(call: Any, exact: dict[str, Any]) -> Any:
            return fn(model=call.name, **exact)

        return Entry(
            tool=Tool(ToolInfo(model, effect="read"), fn),
            arguments={"system": system, "messages": list(messages), "tools": list(tools)},
            session=self.current_session(),
            kind="model",
            name=model,
            run=run,
            usage=usage,
        )

    def model_call(
        self,
        fn: Callable[..., T],
        *,
        model: str,
        messages: Sequence[Any],
        system: Any = None,
        tools: Sequence[Any] = (),
        usage: Callable[[Any], Usage | None] | None = None,
    ) -> T:
        """Call a model in a loop of one's own: `fn(model=, system=, messages=, tools=)`.

        `messages` has the OpenTelemetry GenAI form: `{"role", "parts": [{"type": "text",
        "content": ...}, ...]}`. `usage` reads a `Usage` from the response.
        """
        entry = self._model_entry(fn, model, messages, system, tools, usage)
        return cast("T", finish(self.engine.run(self.sync_io, entry)).value)

    async def amodel_call(
        self,
        fn: Callable[..., Awaitable[T]] | Callable[..., T],
        *,
        model: str,
        messages: Sequence[Any],
        system: Any = None,
        tools: Sequence[Any] = (),
        usage: Callable[[Any], Usage | None] | None = None,
    ) -> T:
        """The async twin of `model_call`."""
        entry = self._model_entry(cast("Any", fn), model, messages, system, tools, usage)
        return cast("T", (await self.engine.run(self.async_io, entry)).value)

    @contextlib.contextmanager
    def options(
        self,
        *,
        timeout: float | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[None]:
        """Settings for the calls inside a block. Raises `ConfigError` for wrong ones."""
        given: dict[str, Any] = {}
        if timeout is not None:
            if type(timeout) not in (int, float) or not 0 < timeout < 1e9:
                raise ConfigError("options: timeout must be seconds above 0")
            given["timeout"] = timeout
        if labels is not None:
            given["labels"] = labels_of(labels)
        before = OPTIONS.get()
        OPTIONS.set({**before, **given})
        try:
            yield
        finally:
            OPTIONS.set(before)

    # -- tools

    def tool(self, fn: Any = None, /, *, name: str | None = None, **settings: Any) -> Any:
        """Declare a function as a tool and get its supervised twin.

        `@rein.tool` or `@rein.tool(undo=..., probe=..., effect=..., idempotent=..., timeout=...,
        settle_time=..., opaque=...)`. Raises `ConfigError` for settings that do not fit.
        """
        from checkrein.declaring import supervised

        if fn is None:
            return lambda fn: supervised(self, fn, name, settings)
        return supervised(self, fn, name, settings)

    def declare(self, tool_name: str, /, **settings: Any) -> Tool:
        """Declare somebody else's tool by name: a framework's, an MCP server's, an SDK's."""
        return self.tools.declare(tool_name, **settings)

    def wrap(
        self,
        client: T,
        *,
        connector: str,
        account: str | None = None,
        requires_approval: Sequence[str] = (),
        retryable: Sequence[str] = (),
    ) -> T:
        """An SDK client whose methods, at any depth, are supervised calls.

        Tool names are `connector.path.to.method` (`connector[account].path` with an account).
        Raises `ConfigError` for a second client under one name.
        """
        from checkrein.wrap import wrap

        return cast("T", wrap(self, client, connector, account, requires_approval, retryable))

    def require_approval(self, patterns: Iterable[str]) -> None:
        """Ask a person before every call of a tool whose whole name matches a pattern."""
        guard = self._lazy.get("requires_approval")
        if guard is None:
            from checkrein.wrap import RequiresApproval

            guard = self._lazy["requires_approval"] = RequiresApproval()
            self.plugins.add(guard.name, guard)
            self.engine.take(self.plugins.chains)
            self.plain = Plain(self.engine)
        guard.patterns.extend(patterns)

    # -- undo

    def rollback(self, session_id: str, *, dry_run: bool = False) -> RollbackReport | None:
        """Undo a session's effects, newest first."""
        return finish(
            self.rollbacks.request(
                self.sync_io, session_id, dry_run=dry_run, session=self.opened(session_id)
            )
        )

    async def arollback(self, session_id: str, *, dry_run: bool = False) -> RollbackReport | None:
        """The async twin of `rollback`."""
        return await self.rollbacks.request(
            self.async_io, session_id, dry_run=dry_run, session=self.opened(session_id)
        )

    def recover(self, *, settle: bool = False) -> RecoverReport:
        """Finish what dead processes left: roll back their sessions, resolve calls in doubt.

        `settle=True` waits until probes' answers are final.
        """
        return finish(self.recovery.run(self.sync_io, settle=settle))

    async def arecover(self, *, settle: bool = False) -> RecoverReport:
        """The async twin of `recover`."""
        return await self.recovery.run(self.async_io, settle=settle)

    def resume(self, token: str) -> Any:
        """Run the one call that waited for approval `token`, once; its result."""
        return finish(self.permissions.resume(self.sync_io, token))

    async def aresume(self, token: str) -> Any:
        """The async twin of `resume`."""
        return await self.permissions.resume(self.async_io, token)

    def stop(
        self, session_id: str | None = None, *, agent: str | None = None, all: bool = False
    ) -> int:
        """Stop sessions before their next call, in whatever process; how many."""
        return self.lifecycle.stop(session_id, agent, all)

    # -- looking

    def read(self, session_id: str) -> Reading:
        """Read-only events, records and balances of a session."""
        from checkrein.reading import Reading

        return Reading(self.store, session_id)

    # -- housekeeping

    def owner_id(self) -> str:
        """This process's lease; made, and kept alive, from the first session on."""
        if self._owner and self._owner_pid == os.getpid():
            return self._owner
        from checkrein import owner

        row = owner.this_process(self.clock())
        self.store.beat(row)
        self._owner, self._owner_pid = row.id, os.getpid()
        if self.store.blocking:
            self._beat(row)
        return self._owner

    def _beat(self, row: Any) -> None:
        from checkrein import owner

        stop = self._stop_beating = threading.Event()
        reference = weakref.ref(self)

        def work() -> None:
            while not stop.wait(owner.BEAT):
                rein = reference()
                if rein is None or os.getpid() != row.pid:
                    return
                try:
                    rein.store.beat(replace(row, beat=rein.clock()))
                except Exception:
                    # The next beat tries again; a lease that is lost is found by the fence.
                    rein.log.warning("the lease of this process could not be renewed")
                del rein

        threading.Thread(target=work, name="checkrein-heartbeat", daemon=True).start()

    def sweep(self, account: str) -> bool:
        """Release what dead processes hold only while running; whether there was anything."""
        from checkrein import owner

        freed = False
        for hold in self.store.holds(account=account):
            if hold.settle != "release":
                continue
            row = self.store.session(hold.session)
            if row is None or (
                row.owner and owner.alive(self.store.owner(row.owner), self.clock())
            ):
                continue
            batch = Batch(hold.session, (), self.clock(), settles=(SettleRow(hold.id, 0),))
            self.store.commit(batch)
            freed = True
        return freed

    def notify(self, committed: Committed, batch: Batch) -> None:
        """Tell `on_event` of what was committed. Errors are logged, never raised."""
        if self.observed:
            first = committed.n - 1 - len(batch.events)
            self._tell(batch.session, committed.seq, first)

    def notify_if_observed(self, committed: Committed, session: str) -> None:
        """As `notify`, for one event."""
        if self.observed:
            self._tell(session, committed.seq, committed.n - 2)

    def _tell(self, session: str, seq: int, after_n: int) -> None:
        events = [
            event
            for event in reversed(
                self.store.events(session=session, before=seq + 1, reverse=True, limit=16)
            )
            if event.n > after_n
        ]
        for event in events:
            for impl in self.plugins.chains["on_event"]:
                try:
                    waiting = impl(event)
                    if is_awaitable(waiting):
                        self._observe(impl.plugin, waiting)
                except Exception as error:
                    # An observer has no say: the call goes on.
                    self._unheard(impl.plugin, error)

    def _observe(self, plugin: str, waiting: Awaitable[Any]) -> None:
        """Let an asynchronous observer look; nobody waits for it before the Rein closes."""
        future = self.portal.submit(waiting)
        self._observing.add(future)

        def done(future: Future[Any]) -> None:
            self._observing.discard(future)
            if not future.cancelled():
                self._unheard(plugin, future.exception())

        future.add_done_callback(done)

    def _unheard(self, plugin: str, error: BaseException | None) -> None:
        if error is not None:
            self.log.error("on_event of plugin %s raised %s", plugin, type(error).__name__)

    def close(self) -> None:
        """Close the plugins, the store and the portal. Open sessions stay open in the store."""
        if self._closed:
            return
        self._closed = True
        if self._stop_beating is not None:
            self._stop_beating.set()
        if self._spare is not None and self._owner_pid == os.getpid():
            with contextlib.suppress(Exception):
                # A store that fails now has been reported by the calls that needed it.
                finish(self.lifecycle.leave(self.sync_io, self._spare, None))
        if self._observing:
            from concurrent.futures import wait

            wait(set(self._observing), timeout=5.0)
        for impl in self.plugins.chains.get("close", ()):
            try:
                impl()
            except Exception as error:
                # Closing goes on: one plugin must not keep the store open.
                self.log.error("close of plugin %s raised %s", impl.plugin, type(error).__name__)
        store = getattr(self, "store", None)
        if store is not None:
            if self._owner and not self._open and self._owner_pid == os.getpid():
                with contextlib.suppress(Exception):
                    # A session that could not be rolled back is found by its owner's lease.
                    if not store.sessions(owner=self._owner, limit=1).rows:
                        store.drop_owner(self._owner)
            store.close()
        portal = getattr(self, "portal", None)
        if portal is not None:
            portal.close()

    def __enter__(self) -> Rein:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _microseconds() -> int:
    return time.time_ns() // 1000
