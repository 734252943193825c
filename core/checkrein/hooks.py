"""The hooks: what a plugin may implement, and when each one is called.

Deciding hooks
    `pre_call`     before a call; may be evaluated any number of times, so it must be pure
    `post_call`    after a call; changes what the caller sees, never what is known of the effect
    `on_denied`    a call was refused, or its result withheld: give its caller something else
    `on_approval`  a call waits for a person: tell somebody, or decide
    `on_rollback`  an effect is planned, or about to be undone

Helpers
    `view`         the value as people, spans and exports may see it
    `measure`      what a call used and cost; pure
    `open_stream`  a filter for one channel of a streamed answer
    `on_event`     after the commit; no verdict
    `start`, `close`

Each may be `async def` or return an awaitable, except `view`, `measure`, `open_stream` and
`close`. Implement them by subclassing `Plugin` (no decorator needed), or with `@hookimpl` on
any object. Name only the parameters you need.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

from checkrein.verdicts import (
    Cause,
    Decision,
    DeniedVerdict,
    Measured,
    PostVerdict,
    PreVerdict,
    Sink,
    UndoVerdict,
)

if TYPE_CHECKING:
    from checkrein.approval import ApprovalRequest
    from checkrein.call import Call, Outcome
    from checkrein.errors import Denied
    from checkrein.rein import Rein
    from checkrein.store import Event
    from checkrein.verdicts import Deny

PROJECT = "checkrein"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class StreamFilter(Protocol):
    """Filters one channel of a streamed answer. Created per call and channel."""

    holdback: int
    """The most characters that `feed` keeps back."""

    def feed(self, text: str) -> str | Deny:
        """Take the next piece; return what may be delivered now."""
        ...

    def flush(self) -> str | Deny:
        """The stream ended: return what was kept back."""
        ...

    def abort(self) -> None:
        """The stream was cancelled: forget what was kept back."""
        ...


class Plugin:
    """Typed no-op base: override a hook and it is registered, no decorator needed."""

    external: bool = False
    """`pre_call` asks somebody outside: its verdict is stored per call and reused."""
    loop: str = "caller"
    """`own`: always run async hooks on the portal loop (loop-bound resources)."""
    on_failure: str = "deny"
    """`allow`: a `pre_call` that raises or times out lets the call pass, marked `unchecked`."""
    timeout: float | None = None
    """Seconds that one hook may take; None = the Rein's default."""
    rewrites: bool = False
    """It may answer Rewrite, Answer or Replace: an adapter that can only let a call pass or
    stop it refuses the plugin at construction."""

    def concerns(self, call: Call) -> bool:
        """Of an `external` plugin: whether its `pre_call` has anything to say about a call.

        Where not, it is not asked and no verdict is stored.
        """
        return True

    def pre_call(self, call: Call) -> PreVerdict | Awaitable[PreVerdict]:
        """Decide before the call. Must be pure: count with `Hold`.

        It is asked again about a call that a later plugin rewrote or a person edited, so a call
        that it has rewritten must not be rewritten by it again.
        """

    def post_call(self, call: Call, outcome: Outcome) -> PostVerdict | Awaitable[PostVerdict]:
        """Look at the outcome; change what the caller sees."""

    def on_denied(self, call: Call, denied: Denied) -> DeniedVerdict | Awaitable[DeniedVerdict]:
        """Say what the caller gets instead of a refusal, or that it ends the run.

        `Answer`: this value instead of the error. `Deny(halt=True)`: the refusal ends the run.
        The call does not run either way.
        """

    def on_approval(self, call: Call, request: ApprovalRequest) -> Decision | Awaitable[Decision]:
        """Tell somebody (return None), or decide."""

    def on_rollback(
        self, call: Call, outcome: Outcome, cause: Cause
    ) -> UndoVerdict | Awaitable[UndoVerdict]:
        """Supply an undo where none is declared, or skip one."""

    def open_stream(self, call: Call, channel: str) -> StreamFilter | None:
        """Filter `channel` (`text`, `reasoning`, `tool:INDEX`) of a streamed answer."""

    def view(self, call: Call, value: Any, sink: Sink) -> Any:
        """Return `value` as `sink` may show it. Must not change `value` itself."""
        return value

    def measure(self, call: Call, outcome: Outcome) -> Measured | None:
        """What the call used and cost, errors included. Pure."""

    def on_event(self, event: Event) -> Awaitable[None] | None:
        """Called after an event is committed. Its errors are logged."""

    def start(self, rein: Rein) -> Awaitable[None] | None:
        """The Rein is ready. Raising refuses the start."""

    def close(self) -> None:
        """The Rein closes."""


class Spec:
    """The hook specifications as pluggy sees them."""

    @hookspec
    def pre_call(self, call: Call) -> PreVerdict | Awaitable[PreVerdict]: ...

    @hookspec
    def post_call(self, call: Call, outcome: Outcome) -> PostVerdict | Awaitable[PostVerdict]: ...

    @hookspec
    def on_denied(self, call: Call, denied: Denied) -> DeniedVerdict | Awaitable[DeniedVerdict]: ...

    @hookspec
    def on_approval(
        self, call: Call, request: ApprovalRequest
    ) -> Decision | Awaitable[Decision]: ...

    @hookspec
    def on_rollback(
        self, call: Call, outcome: Outcome, cause: Cause
    ) -> UndoVerdict | Awaitable[UndoVerdict]: ...

    @hookspec
    def open_stream(self, call: Call, channel: str) -> StreamFilter | None: ...

    @hookspec
    def view(self, call: Call, value: Any, sink: Sink) -> Any: ...

    @hookspec
    def measure(self, call: Call, outcome: Outcome) -> Measured | None: ...

    @hookspec
    def on_event(self, event: Event) -> Awaitable[None] | None: ...

    @hookspec
    def start(self, rein: Rein) -> Awaitable[None] | None: ...

    @hookspec
    def close(self) -> None: ...


DECIDING = ("pre_call", "post_call", "on_denied", "on_approval", "on_rollback")
HELPERS = ("open_stream", "view", "measure", "on_event", "start", "close")
HOOKS = DECIDING + HELPERS
