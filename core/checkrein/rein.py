"""`Rein`: the functions that people call."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from checkrein._io import finish
from checkrein.entry import CURRENT, Entry, seen, undone_around
from checkrein.errors import SessionClosed
from checkrein.model_call import Models
from checkrein.options import applied
from checkrein.overseeing import Overseeing
from checkrein.session import ACTIVE, Session, active
from checkrein.settings import check_choices
from checkrein.tool import ToolSettings
from checkrein.tools import Tool

if TYPE_CHECKING:
    from checkrein.reading import Reading
    from checkrein.recovery import RecoverReport
    from checkrein.report import RollbackReport

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Rein(Models, Overseeing):
    """One supervision layer: its plugins, its store, its tools.

    Raises `ConfigError` (and `PluginError`) for settings that cannot be used and
    `StoreUnavailable` where the store cannot; nothing has run then.
    """

    # -- construction from files

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **overrides: Any) -> Rein:
        """A Rein from a TOML or YAML file. Errors name the file, the line and the key."""
        from checkrein.policy import rein_from_file

        return rein_from_file(cls, Path(path), overrides)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **overrides: Any) -> Rein:
        """A Rein from a mapping of the same shape as the file."""
        from checkrein.policy import rein_from_config

        return rein_from_config(cls, config, overrides)

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
        on_failed: Literal["rollback", "keep"] | None = None,
        drain: float | None = None,
        max_resumes: int | None = None,
        stateless: bool = False,
        sandbox: bool | str = False,
    ) -> Session:
        """A session to enter with `with` or `async with`.

        `id` takes up a suspended session again; an error that leaves the block fails the
        session, which is then rolled back (`on_error="keep"` leaves its effects). `stateless`: it
        ends with its process. `max_resumes`: how often it may be taken up after a crash.
        `sandbox`: nothing runs; calls are answered by the examples of their tools, or by the
        results of the recorded session whose id is given, and the plan is printed at the end.
        """
        given = {
            "wait": wait, "on_error": on_error, "on_rejected": on_rejected, "on_failed": on_failed,
        }  # fmt: skip
        check_choices({key: value for key, value in given.items() if value is not None})
        return Session(
            self, id or os.urandom(16).hex(), agent=agent, intent=intent, user=user,
            tenant=tenant, task=task, labels=labels, detached=detached, wait=wait,
            on_error=on_error, on_rejected=on_rejected, on_failed=on_failed, drain=drain,
            max_resumes=max_resumes, stateless=stateless, sandbox=sandbox,
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
        if spare is None or self.lease.pid != os.getpid():
            spare = self._open_spare()
        return spare

    # -- calls

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn(*args, **kwargs)` under supervision.

        Raises `Denied` and its kinds, `ApprovalPending`, `SessionClosed`, `StoreUnavailable`;
        and whatever `fn` raises.
        """
        # `Assembly` puts `Plain.call` before this, which comes here where it will not do.
        target, given, named = self.tools.opened(fn, args, kwargs)
        tool = self.tools.of(target)
        entry = Entry(tool, tool.bind(given, named), self.current_session())
        return cast("T", seen(finish(self.engine.outcome(self.sync_io, entry))).value)

    @overload
    async def acall(
        self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @overload
    async def acall(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def acall(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """The async twin of `call`; `fn` may be sync or async."""
        target, given, named = self.tools.opened(fn, args, kwargs)
        tool = self.tools.of(target)
        entry = Entry(tool, tool.bind(given, named), self.current_session())
        return seen(await self.engine.outcome(self.async_io, entry)).value

    def enter(self, entry: Entry) -> Any:
        """Run an adapter's entry; returns its `Outcome`, raises what the caller must see."""
        return finish(self.engine.run(self.sync_io, entry))

    async def aenter(self, entry: Entry) -> Any:
        """The async twin of `enter`."""
        return await self.engine.run(self.async_io, entry)

    def options(
        self, *, timeout: float | None = None, labels: Mapping[str, str] | None = None
    ) -> AbstractContextManager[None]:
        """Settings for the calls inside a block. Raises `ConfigError` for wrong ones."""
        return applied(timeout, labels)

    # -- tools

    @overload
    def tool(self, fn: F, /) -> F: ...

    @overload
    def tool(
        self, fn: None = None, /, *, name: str | None = None, **settings: Unpack[ToolSettings]
    ) -> Callable[[F], F]: ...

    def tool(self, fn: Any = None, /, *, name: str | None = None, **settings: Any) -> Any:
        """Declare a function as a tool and get its supervised twin, of the same signature.

        `@rein.tool` or `@rein.tool(undo=..., probe=..., effect=..., idempotent=..., timeout=...,
        settle_time=..., opaque=...)`. Raises `ConfigError` for settings that do not fit.
        """
        from checkrein.declaring import supervised

        if fn is None:
            return lambda fn: supervised(self, fn, name, settings)
        return supervised(self, fn, name, settings)

    def declare(
        self,
        tool_name: str,
        /,
        fn: Callable[..., Any] | None = None,
        **settings: Unpack[ToolSettings],
    ) -> Tool:
        """Declare somebody else's tool by name: a framework's, an MCP server's, an SDK's."""
        return self.tools.declare(tool_name, fn, **settings)

    def wrap(
        self,
        client: T,
        *,
        connector: str,
        account: str | None = None,
        requires_approval: Sequence[str] = (),
        retryable: Sequence[str] = (),
        table: Path | str | Mapping[str, Any] | None = None,
        record_reads: bool = False,
        on_capture: Literal["refuse", "ask", "go_on"] = "refuse",
        ask_irreversible: bool = False,
    ) -> T:
        """An SDK client whose methods, at any depth, are supervised calls.

        Tool names are `connector.path.to.method` (`connector[account].path` with an account). What
        is known of the SDK comes from the installed connector of that name, or from `table`.
        `retryable` methods are tried again after transient errors, with one idempotency key.
        `on_capture`: what happens where the state before a change cannot be read.
        `ask_irreversible`: a person is asked before what nothing can undo. Reads are recorded only
        with `record_reads`, or where plugins look at calls. Raises `ConfigError` for a second
        client under one name, and for a table that does not fit the client.
        """
        from checkrein.wrap import wrap

        return cast(
            "T",
            wrap(
                self, client, connector, account, requires_approval, retryable, table,
                record_reads, on_capture, ask_irreversible,
            ),
        )  # fmt: skip

    def retry(self, patterns: Iterable[str]) -> None:
        """Try calls of tools again whose whole name matches, after transient errors."""
        if self._retry is None:
            from checkrein.wrap import RetryTransient

            self._retry = RetryTransient()
            self._add(self._retry.name, self._retry)
        self._retry.patterns.extend(patterns)

    def _add(self, name: str, plugin: object) -> None:
        self.plugins.add(name, plugin)
        self.engine.take(self.plugins.chains)
        self.plain.take()

    def looked_at(self) -> bool:
        """Whether plugins look at calls, beside the guards that wrapped clients bring."""
        own = (self._requires_approval, self._retry)
        return self.engine.hooked and any(plugin not in own for _, plugin in self.plugins)

    def require_approval(self, patterns: Iterable[str], irreversible: Iterable[str] = ()) -> None:
        """Ask a person before every call of a tool whose whole name matches a pattern.

        `irreversible`: beginnings of names, of which what cannot be undone is asked about.
        """
        guard = self._requires_approval
        if guard is None:
            from checkrein.wrap import RequiresApproval

            guard = self._requires_approval = RequiresApproval()
            self._add(guard.name, guard)
        guard.patterns.extend(patterns)
        guard.irreversible.extend(irreversible)

    # -- undo

    def rollback(
        self,
        session_id: str,
        *,
        to: int | None = None,
        action: str | None = None,
        dry_run: bool = False,
    ) -> RollbackReport | None:
        """Undo a session's effects, newest first; `dry_run` only makes the plan.

        `to=STEP`: only what came after that step. `action=CALL`: only that call, and the session
        goes on. Raises `Conflict` for a session, step or call that is not there, and where somebody
        else rolls the session back.
        """
        return finish(
            self.rollbacks.request(
                self.sync_io, session_id, dry_run=dry_run, session=self.opened(session_id), to=to,
                action=action,
            )
        )  # fmt: skip

    async def arollback(
        self,
        session_id: str,
        *,
        to: int | None = None,
        action: str | None = None,
        dry_run: bool = False,
    ) -> RollbackReport | None:
        """The async twin of `rollback`."""
        return await self.rollbacks.request(
            self.async_io, session_id, dry_run=dry_run, session=self.opened(session_id), to=to,
            action=action,
        )  # fmt: skip

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
        return finish(self.resuming.run(self.sync_io, token))

    async def aresume(self, token: str) -> Any:
        """The async twin of `resume`."""
        return await self.resuming.run(self.async_io, token)

    # -- looking

    def read(self, session_id: str) -> Reading:
        """Read-only events, records and balances of a session."""
        from checkrein.reading import Reading

        return Reading(self.store, session_id)
