"""What a Rein is made of: its settings, its parts, and the sessions that are open in it."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Self, cast

from checkrein._ids import Ids
from checkrein._io import AsyncIO, Portal, SyncIO, finish
from checkrein._locks import Lock
from checkrein._made_once import made_once
from checkrein.attendance import is_attended
from checkrein.engine import Engine
from checkrein.errors import ConfigError
from checkrein.journal import Journal
from checkrein.lease import Lease
from checkrein.lifecycle import Lifecycle
from checkrein.manager import Plugins
from checkrein.observers import Observers
from checkrein.plain import Plain
from checkrein.session import Session
from checkrein.settings import check_choices, check_each, check_numbers
from checkrein.store import Store, StoreOptions, open_store
from checkrein.telemetry import Telemetry
from checkrein.tools import Tools

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from checkrein.approval import Approvals
    from checkrein.by_hand import ByHand
    from checkrein.control import Control
    from checkrein.escalation import Escalation
    from checkrein.grants import Grants
    from checkrein.intent import Judge
    from checkrein.permission import Permissions
    from checkrein.pinning import Pinning
    from checkrein.recorded import Recorded
    from checkrein.recovery import Recovery
    from checkrein.rein import Rein
    from checkrein.resuming import Resuming
    from checkrein.rollback import Rollbacks
    from checkrein.standing import Standings
    from checkrein.waiters import Waiters
    from checkrein.wrap import RequiresApproval, RetryTransient


class Assembly:
    """The base of `Rein`, which adds what people call."""

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
        on_failed: Literal["rollback", "keep"] = "rollback",
        on_drift: Literal["keep", "rollback"] = "keep",
        judge: Judge | None = None,
        failure_mode: Literal["closed", "open"] = "closed",
        approvals: Literal["auto", "store", "channels"] = "auto",
        approval_expires: float = 86_400.0,
        approval_use: float = 604_800.0,
        unattributed: Literal["account", "refuse"] = "account",
        hook_timeout: float = 30.0,
        hold_wait: float = 60.0,
        undo_tries: int = 3,
        max_resumes: int = 3,
        idle_limit: float = 86_400.0,
        attended: bool | None = None,
        clock: Callable[[], int] | None = None,
        tracer_provider: TracerProvider | None = None,
        span_content: bool = False,
        semconv: Sequence[Literal["openinference", "genai-427"]] = (),
        policy: str = "",
    ) -> None:
        check_choices({
            "mode": mode, "record": record, "durability": durability, "wait": wait,
            "approvals": approvals, "unattributed": unattributed, "on_error": on_error,
            "on_rejected": on_rejected, "on_failed": on_failed, "on_drift": on_drift,
            "failure_mode": failure_mode,
        })  # fmt: skip
        check_numbers({
            "drain": drain, "approval_expires": approval_expires,
            "approval_use": approval_use, "hook_timeout": hook_timeout,
            "hold_wait": hold_wait, "max_payload": max_payload, "undo_tries": undo_tries,
            "max_resumes": max_resumes, "idle_limit": idle_limit,
        })  # fmt: skip
        if counters is not None:
            raise ConfigError(f"counters: {counters.partition(':')[0]!r} is not supported yet")
        self.log = logging.getLogger("checkrein")
        self.mode = mode
        self.wait = wait
        self.drain = float(drain)
        self.on_error = on_error
        self.on_rejected = on_rejected
        self.on_failed = on_failed
        self.on_drift = on_drift
        if judge is not None and not callable(judge):
            raise ConfigError("judge: must be a function of (intent, actions)")
        self.judge = judge
        self.failure_mode = failure_mode
        self.unrecorded: set[str] = set()
        """Sessions of this process that the store knows nothing of (`failure_mode="open"`)."""
        self.approval_expires = float(approval_expires)
        self.approval_use = float(approval_use)
        self.unattributed = unattributed
        self.hook_timeout = float(hook_timeout)
        self.hold_wait = float(hold_wait)
        self.undo_tries = max(1, int(undo_tries))
        self.max_resumes = max_resumes
        self.idle_limit = float(idle_limit)
        self.policy = policy
        self.attended = is_attended(attended)
        """Whether an approver may ask at this process's terminal. False: it starts without one,
        and answers nothing. Not stated: True, except where a command imports the application."""
        self.clock: Callable[[], int] = _microseconds if clock is None else clock
        self.real_clock = _microseconds
        self.pause_signals: list[type[BaseException]] = []
        """Exceptions by which a framework suspends a run; adapters add theirs."""
        self.plugins = Plugins()
        self.plugins.register(plugins)
        self.tools = Tools()
        self.ids = Ids()
        self.telemetry = Telemetry(
            tracer_provider, content=span_content, semconv=check_each("semconv", semconv)
        )
        options = StoreOptions(durability=durability, max_payload=max_payload, encrypt=encrypt)
        self.store: Store = _store_of(store, options)
        self.portal = Portal()
        self.sync_io = SyncIO(self.store, self.portal)
        self.async_io = AsyncIO(self.store, self.portal)
        self.journal = Journal(
            self.store, self.clock, self.plugins.chains["view"], record, self.log
        )
        self.telemetry.view = self.journal.view
        self.observers = Observers(
            self.plugins.chains["on_event"], self.store, self.portal, self.log
        )
        self.lease = Lease(self.store, self.clock, self.log)
        self.lifecycle = Lifecycle(self._whole)
        self.answer_from_store = approvals == "store" or (
            approvals == "auto" and self.store.blocking
        )
        self.engine = Engine(self._whole, self.journal)
        self.plain = Plain(self.engine)
        # On the object: through a method, a bare call would cost an eighth more.
        self.__dict__["call"] = self.plain.call
        self._open: dict[str, Session] = {}
        self._spare: Session | None = None
        self._lock = Lock()
        self._closed = False
        self._requires_approval: RequiresApproval | None = None
        self._retry: RetryTransient | None = None
        self.configured: dict[str, tuple[str, dict[str, object]]] = {}
        """Installed name and arguments of the plugins that a configuration names."""
        try:
            self.plugins.start(self._whole)
        except BaseException:
            self.close()
            raise

    @property
    def _whole(self) -> Rein:
        """This object, as its parts know it: nothing else derives from an assembly."""
        return cast("Rein", self)

    # -- the parts that are only made where they are used

    @made_once
    def rollbacks(self) -> Rollbacks:
        """Undo and recovery."""
        from checkrein.rollback import Rollbacks

        return Rollbacks(self._whole)

    @made_once
    def control(self) -> Control:
        """Sessions from outside."""
        from checkrein.control import Control

        return Control(self._whole)

    @made_once
    def standings(self) -> Standings:
        """What sessions are called in lists."""
        from checkrein.standing import Standings

        return Standings(self._whole)

    @made_once
    def by_hand(self) -> ByHand:
        """What people found out about calls in doubt."""
        from checkrein.by_hand import ByHand

        return ByHand(self._whole)

    @made_once
    def pinning(self) -> Pinning:
        """What sessions are pinned to."""
        from checkrein.pinning import Pinning, pins_of

        return Pinning(self._whole, pins_of(self._whole, self.configured))

    @made_once
    def recovery(self) -> Recovery:
        """What dead processes left."""
        from checkrein.recovery import Recovery

        return Recovery(self._whole)

    @made_once
    def approvals(self) -> Approvals:
        """Questions to people: `.pending()`, `.approve(id, by=)`, `.reject(id, by=, reason=)`."""
        from checkrein.approval import Approvals

        return Approvals(self._whole)

    @made_once
    def permissions(self) -> Permissions:
        """Asking for approvals, and using them up."""
        from checkrein.permission import Permissions

        return Permissions(self._whole)

    @made_once
    def grants(self) -> Grants:
        """Standing grants: `.standing()`, `.revoke(id, by=)`; `approvals.approve` gives them."""
        from checkrein.grants import Grants

        return Grants(self._whole)

    @made_once
    def escalation(self) -> Escalation:
        """Asking others when nobody has answered."""
        from checkrein.escalation import Escalation

        return Escalation(self._whole)

    @made_once
    def waiters(self) -> Waiters:
        """Those who wait for a person."""
        from checkrein.waiters import Waiters

        return Waiters(self._whole)

    @made_once
    def resuming(self) -> Resuming:
        """Running what waited for an approval."""
        from checkrein.resuming import Resuming

        return Resuming(self._whole)

    @made_once
    def recorded(self) -> Recorded:
        """Calls that were made before under the same key."""
        from checkrein.recorded import Recorded

        return Recorded(self._whole)

    # -- the sessions that are open in this process

    def _open_spare(self) -> Session:
        """The account of the calls that belong to no session."""
        with self._lock:
            if self._spare is None or self.lease.pid != os.getpid():
                spare = Session(
                    self._whole, f"unattributed-{os.urandom(8).hex()}", agent="unattributed",
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

    # -- the end

    def close(self) -> None:
        """Close the plugins, the store and the portal. Open sessions stay open in the store."""
        if self._closed:
            return
        self._closed = True
        self.lease.stop_beating()
        if self._spare is not None and self.lease.pid == os.getpid():
            with contextlib.suppress(Exception):
                # A store that fails now has been reported by the calls that needed it.
                finish(self.lifecycle.leave(self.sync_io, self._spare, None))
        if "waiters" in vars(self):
            self.waiters.close()
        self.observers.close()
        self.plugins.close(self.log)
        if "pinning" in vars(self):
            self.pinning.close()
        if not self._open:
            self.lease.give_back()
        # What still ran on the portal is cancelled, and recorded as that.
        self.portal.close()
        self.store.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _store_of(store: object, options: StoreOptions) -> Store:
    """The store itself, or the one behind a URL. Raises `ConfigError` for what is neither."""
    if isinstance(store, str):
        return open_store(store, options)
    if not callable(getattr(store, "commit", None)) or not callable(getattr(store, "events", None)):
        raise ConfigError(
            f"store: a {type(store).__name__} is no store; give a URL such as "
            "sqlite:///checkrein.db, or an object that implements checkrein.store.Store"
        )
    return cast("Store", store)


def _microseconds() -> int:
    return time.time_ns() // 1000
