"""Every error that checkrein raises.

    CheckreinError
    ├── ConfigError              configuration, plugin, declaration: refused at start
    │   └── PluginError          a named plugin cannot be used
    ├── Unencodable              an argument cannot be recorded (also a TypeError)
    ├── Undecodable              a recorded value cannot be rebuilt (also a ValueError)
    ├── Denied                   the call was not run
    │   ├── BudgetExceeded       a hold was refused
    │   ├── ApprovalRejected
    │   └── ApprovalExpired
    ├── ApprovalPending          waiting for a person; `.token` resumes it
    ├── CallFailed               the call ran elsewhere and raised
    ├── InDoubt                  nobody can tell whether the effect is in place
    ├── RollbackFailed           effects are left; `.report` lists them
    ├── WouldBlock               a sync entry would have to wait on an event loop's thread
    ├── SessionClosed            the session takes no more calls
    │   └── Halted               it was stopped from outside
    │       └── Paused           only for a while: `continue` lets it go on
    ├── Conflict                 a record is not in the state that the change needs
    │   ├── HoldRefused          internal: an account has no room
    │   ├── DuplicateIntent      internal: this attempt of this call was started already
    │   └── FencedOut            somebody else owns the session now
    └── StoreUnavailable         the store cannot be used: nothing was run
        ├── PayloadUnreadable    one payload was altered, is missing or sealed with another key
        └── StoreBusy            locked right now; only where the caller asked not to wait

Messages name the call and the next step. They never hold argument values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein.call import Outcome


class CheckreinError(Exception):
    """Base of all errors of this package."""

    call_id: str = ""
    """The call that the error is about, if there is one."""
    session_id: str = ""


class ConfigError(CheckreinError, ValueError):
    """Configuration, declaration or plugin that cannot be used. Raised before any effect."""


class PluginError(ConfigError):
    """A configured plugin does not load, or a hook of it has a wrong name or signature."""


class Unencodable(CheckreinError, TypeError):
    """A value cannot be recorded exactly. `path` says which one."""

    def __init__(self, path: str, kind: str, why: str = "") -> None:
        self.path = path
        self.kind = kind
        super().__init__(
            f"{path or 'value'}: a {kind} cannot be recorded exactly"
            + (f" ({why})" if why else "")
            + "; pass plain data, or declare the parameter opaque=(...)"
        )


class Undecodable(CheckreinError, ValueError):
    """A recorded value cannot be rebuilt. `path` says which one."""

    def __init__(self, path: str, kind: str, why: str = "") -> None:
        self.path = path
        self.kind = kind
        super().__init__(
            f"{path or 'value'}: a recorded {kind} cannot be rebuilt"
            + (f" ({why})" if why else "")
            + "; declare the tool here as it was declared where the call was recorded"
        )


class Denied(CheckreinError):
    """A check said no: the call was not run, or (`ran`) its result is withheld.

    `halt` is true where the denial ends the run; adapters then raise, and otherwise hand
    `refusal()` to the model.
    """

    review: bool = False
    """It was about an action that had been done: the run itself did not fail."""
    ran: bool = False
    """The call did run, and what it did stands: only its result is withheld."""

    def __init__(
        self,
        reason: str,
        *,
        rule: str = "",
        tool: str = "",
        call_id: str = "",
        plugin: str = "",
        halt: bool = False,
        code: str = "denied",
    ) -> None:
        self.reason = reason
        self.rule = rule
        self.tool = tool
        self.call_id = call_id
        self.plugin = plugin
        self.halt = halt
        self.code = code
        super().__init__(self._text())

    def _text(self) -> str:
        return f"{self.tool or 'call'} {self.call_id} denied: {self.reason}".replace("  ", " ")

    def reword(self, reason: str) -> None:
        """Give the reason as it may be shown: messages go to logs, and refusals to models."""
        self.reason = reason
        self.args = (self._text(),)

    def refusal(self) -> str:
        """What a model is told: says that repeating the call changes nothing."""
        if self.ran:
            return (
                f"[{self.code}] {self.tool or 'This call'} was run, and its result is withheld: "
                f"{self.reason}. What it did stands; do not run it again."
            )
        return (
            f"[{self.code}] {self.tool or 'This call'} was not run: {self.reason}. "
            "This decision is final for this call; repeating it will be refused as well."
        )


class BudgetExceeded(Denied):
    """A limit has no room for the call: it was not run."""

    def __init__(self, reason: str, *, account: str = "", **details: Any) -> None:
        self.account = account
        details.setdefault("code", "budget_exceeded")
        super().__init__(reason, **details)


class ApprovalRejected(Denied):
    """A person said no."""

    def __init__(self, reason: str, *, by: str = "", **details: Any) -> None:
        self.by = by
        details.setdefault("code", "rejected")
        super().__init__(reason, **details)


class ApprovalExpired(Denied):
    """Nobody decided in time."""

    def __init__(self, reason: str, **details: Any) -> None:
        details.setdefault("code", "expired")
        super().__init__(reason, **details)


class ApprovalPending(CheckreinError):
    """The call waits for a person. Run it later with `rein.resume(token)`."""

    def __init__(self, token: str, *, call_id: str = "", tool: str = "") -> None:
        self.token = token
        self.call_id = call_id
        self.tool = tool
        super().__init__(
            f"{tool or 'call'} {call_id} waits for approval {token}: decide with "
            f"`checkrein approve {token}`, then `checkrein resume {token}`"
        )


class CallFailed(CheckreinError):
    """The call ran elsewhere, or before, and raised: it is not run again.

    `state` is what is known of its effect, `error` the name of what it raised.
    """

    def __init__(
        self, message: str, *, call_id: str = "", error: str = "", state: str = ""
    ) -> None:
        self.call_id = call_id
        self.error = error
        self.state = state
        super().__init__(message)


class InDoubt(CheckreinError):
    """Whether the effect is in place is not known."""

    def __init__(self, message: str, *, call_id: str = "", outcome: Outcome | None = None) -> None:
        self.call_id = call_id
        self.outcome = outcome
        super().__init__(message)


class RollbackFailed(CheckreinError):
    """A rollback left effects behind. `report` says which and why."""

    def __init__(self, message: str, report: Any = None) -> None:
        self.report = report
        super().__init__(message)


class WouldBlock(CheckreinError, RuntimeError):
    """A sync entry would have to wait on a thread whose event loop is running."""


class SessionClosed(CheckreinError):
    """The session is over, stopped or rolling back: it takes no more calls."""


class Halted(SessionClosed):
    """The session was stopped from outside (`rein.stop`, `checkrein stop`)."""


class Paused(Halted):
    """The session was paused from outside: `checkrein continue` lets its calls run again.

    A session that is left with this error stays open: take it up with `rein.session(id=...)`.
    """


class Conflict(CheckreinError):
    """A record is not in the state that the change needs; nothing was changed."""


class HoldRefused(Conflict):
    """An account has no room for a hold; nothing of the batch was written."""

    def __init__(self, index: int, account: str, spent: int, held: int) -> None:
        self.index = index
        self.account = account
        self.spent = spent
        self.held = held
        super().__init__(f"account {account}: spent {spent}, held {held}: no room")


class DuplicateIntent(Conflict):
    """This attempt of this call has been started already; nothing was written."""


class FencedOut(Conflict):
    """The session has a newer owner; nothing was written."""


class StoreUnavailable(CheckreinError):
    """The store cannot be read or written. Nothing was run."""


class PayloadUnreadable(StoreUnavailable):
    """One payload was altered, is missing, or is sealed with another key; others may be well."""


class StoreBusy(StoreUnavailable):
    """The store is locked at this moment, and the caller asked not to wait."""
