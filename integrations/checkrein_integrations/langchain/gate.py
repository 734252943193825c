"""What tool calls and model calls have in common on their way through the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.types import interrupt

from checkrein._io import finish
from checkrein.engine import inside
from checkrein.errors import ApprovalPending, CheckreinError, ConfigError, Denied
from checkrein.session import ACTIVE, Session
from checkrein_integrations.langchain.framework import check
from checkrein_integrations.langchain.keys import THREAD, Place
from checkrein_integrations.langchain.sessions import RUN, Runs
from checkrein_integrations.langchain.signals import SIGNALS, ending, is_signal

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein._io import IO
    from checkrein.engine import Entry


class Gate:
    """Runs entries of one adapter. Raises `ConfigError` for a framework that it does not know."""

    kind = "tool"

    def __init__(self, rein: Rein, runs: Runs) -> None:
        check()
        self.rein = rein
        self.runs = runs
        for signal in SIGNALS:
            if signal not in rein.pause_signals:
                rein.pause_signals.append(signal)

    def labels(self, place: Place) -> dict[str, str]:
        """Labels by which `resume` finds the run of a call."""
        return {THREAD: place.thread} if place.thread else {}

    def may_suspend(self, session: Session, place: Place) -> bool:
        """Whether a call may end in a pause of the graph. Raises `ConfigError`."""
        if place.thread:
            if self.runs.ends and not inside(session.id):
                session.waiting.add(RUN)
            return True
        if session.wait == "suspend":
            raise ending(
                ConfigError(
                    "wait='suspend' needs a checkpointer: pass create_agent(checkpointer=...) and "
                    "a thread_id, or let approvals block (wait='auto')"
                )
            )
        return False

    def run(self, session: Session, entry: Entry) -> Any:
        """Run one entry; its outcome. Raises as `Rein.enter`, or pauses the graph."""
        before = ACTIVE.get()
        self.runs.enter(session)
        error: BaseException | None = None
        ACTIVE.set(session)
        try:
            return self.rein.enter(entry)
        except BaseException as raised:
            error = raised
            raise
        finally:
            ACTIVE.set(before)
            if self.runs.leave(session, entry.call_id, _pauses(error, entry)):
                finish(self.rein.lifecycle.release(self.rein.sync_io, session))

    async def arun(self, session: Session, entry: Entry) -> Any:
        """The async twin of `run`."""
        before = ACTIVE.get()
        self.runs.enter(session)
        error: BaseException | None = None
        ACTIVE.set(session)
        try:
            return await self.rein.aenter(entry)
        except BaseException as raised:
            error = raised
            raise
        finally:
            ACTIVE.set(before)
            if self.runs.leave(session, entry.call_id, _pauses(error, entry)):
                await self.rein.lifecycle.release(self.rein.async_io, session)

    def pause(self, session: Session, pending: ApprovalPending, call_id: str) -> None:
        """Pause the graph for an approval.

        Returns on a resume whose record is still open: what the graph was resumed with decides
        nothing, so the caller asks the record again.
        """
        request = self.rein.approvals.get(pending.token)
        shown: dict[str, Any] = {"type": "checkrein.approval", "token": pending.token}
        if request is not None:
            shown |= {
                "tool": request.tool,
                "arguments": request.arguments,
                "masked": list(request.masked),
                "reason": request.reason,
                "rule": request.rule,
                "risk": request.risk,
            }
        shown["tool_call_id"] = call_id
        given = interrupt(shown)
        if given is not True and self.rein.approvals.get(pending.token) is not None:
            # A decision in the framework's own form, or the wrong number of them.
            self.rein.approvals.refused.record(
                pending.token, "the graph's resume value", "decision",
                "what a graph is resumed with decides nothing: answer the request itself",
            )  # fmt: skip

    async def failed(self, io: IO, job: Any, error: BaseException) -> None:
        """An error leaves one of our hooks: see `Runs.failed`."""
        await self.runs.failed(io, job.session, error, self.kind, job.suspends)

    def final(self, error: BaseException) -> BaseException:
        """An error as it may leave a hook of ours."""
        if isinstance(error, Denied) and error.code == "no_approver":
            config = ConfigError(
                f"{error}: pass create_agent(checkpointer=...) so that the run can wait, add an "
                "approver plugin, or use a store that others can answer in (sqlite)"
            )
            config.__cause__ = error
            return ending(config)
        return ending(error) if isinstance(error, CheckreinError) else error


def _pauses(error: BaseException | None, entry: Entry) -> bool:
    """Whether the graph pauses on this error."""
    if error is None:
        return False
    if isinstance(error, ApprovalPending):
        return entry.can_suspend and error.call_id == entry.call_id
    return is_signal(error)
