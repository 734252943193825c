"""Going on with a run that waited for an approval, or whose process died.

CrewAI cannot pause inside a run. A run that waits is ended, and done again: every call that is
recorded is answered from the journal by its key, at no cost, and what was not reached yet runs.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from checkrein import codec
from checkrein._io import finish
from checkrein.errors import ApprovalPending, ConfigError, Conflict, SessionClosed
from checkrein_integrations._shared.leases import lease_on, settled
from checkrein_integrations.crewai import answers
from checkrein_integrations.crewai.framework import check
from checkrein_integrations.crewai.state import LABEL, restart
from checkrein_integrations.crewai.supervise import supervise

if TYPE_CHECKING:
    from checkrein import Rein

_FINAL = "Final Answer:"
"""What stands before the answer of a model without native tool calls."""
_PATIENCE = 3600.0
"""Seconds that a second resumer waits for the first."""


def resume(
    rein: Rein,
    token: str,
    target: Any,
    inputs: Mapping[str, Any] | None = None,
    *,
    models: Mapping[str, Any] | None = None,
) -> Any:
    """Go on with the run that waits for approval `token`, or with the session of that id.

    `target` is a crew or flow, or a function that makes one or does the whole run; it must do
    what the first run did, in the same order. Returns what its `kickoff` returns. Who comes
    while another one goes on waits, and gets the text that the run ended with: the model is
    never entered twice.

    Raises `Conflict` for a token that is unknown, used or another tenant's, `ApprovalPending`
    while nobody has decided,
    `SessionClosed` where the run is over without an answer, and what the run raises.
    """
    check()
    _check_target(target)
    session = _session_of(rein, token)
    with lease_on(rein, session) as lease:
        if lease is None:
            finish(
                rein.sync_io.wait(
                    lambda: settled(rein, session), time.monotonic() + _PATIENCE,
                    f"the run of session {session}",
                )
            )  # fmt: skip
            return _answer(rein, session)
        restart(lease.session)
        with lease, supervise(rein, session=lease.session, models=models):
            made = target if _runs(target) else target()
            if not _runs(made):
                return made
            _afresh(made)
            return made.kickoff(inputs=dict(inputs)) if inputs else made.kickoff()


async def aresume(
    rein: Rein,
    token: str,
    target: Any,
    inputs: Mapping[str, Any] | None = None,
    *,
    models: Mapping[str, Any] | None = None,
) -> Any:
    """The async twin of `resume`; `target` may also be an async function."""
    check()
    _check_target(target)
    session = _session_of(rein, token)
    with lease_on(rein, session) as lease:
        if lease is None:
            await rein.async_io.wait(
                lambda: settled(rein, session), time.monotonic() + _PATIENCE,
                f"the run of session {session}",
            )  # fmt: skip
            return _answer(rein, session)
        restart(lease.session)
        async with lease, supervise(rein, session=lease.session, models=models):
            made = target if _runs(target) else target()
            if inspect.isawaitable(made):
                made = await made
            if not _runs(made):
                return made
            _afresh(made)
            kickoff = getattr(made, "akickoff", None) or made.kickoff_async
            return await (kickoff(inputs=dict(inputs)) if inputs else kickoff())


def _runs(target: Any) -> bool:
    """Whether it is a crew or a flow, and not a function or class that makes one."""
    return hasattr(target, "kickoff") and not isinstance(target, type)


def _afresh(made: Any) -> None:
    """Let the tasks of a crew that has run before count from the beginning.

    A task counts the tools that it used and the answers that its guardrails rejected: with a
    count that goes on, the model would be asked in other words, or less often.
    """
    for task in getattr(made, "tasks", None) or ():
        task.used_tools = task.tools_errors = task.delegations = task.retry_count = 0
        task._guardrail_retry_counts.clear()  # noqa: SLF001 - the framework has no other way


def _check_target(target: Any) -> None:
    if not _runs(target) and not callable(target):
        raise ConfigError(
            f"{type(target).__name__}: pass a crew, a flow, or a function that makes one"
        )


def _session_of(rein: Rein, token: str) -> str:
    """The session to go on with. Raises where it cannot be."""
    request = rein.approvals.get(token)
    if request is None:
        row = rein.store.session(token)
        if row is None:
            raise Conflict(
                f"{token} is neither an approval nor a session that is known here; "
                "`checkrein approvals` and `checkrein sessions` list them"
            )
        if row.state != "ACTIVE":
            raise SessionClosed(f"session {token} is {row.state}: there is nothing to go on with")
        return token
    if request.state == "pending" and request.expires > rein.clock():
        raise ApprovalPending(token, call_id=request.call, tool=request.tool)
    row = rein.store.session(request.session)
    if row is not None and row.state != "ACTIVE":
        raise Conflict(f"approval {token} was used: its run has gone on and is {row.state}")
    for event in rein.store.events(call=request.call, kinds=("approval_requested",)):
        payload = rein.store.payload(event.seq)
        if event.view.get("id") == token and isinstance(payload, dict):
            if LABEL in payload["labels"]:
                return request.session
    raise ConfigError(
        f"approval {token} was not asked for in a supervised crew: use rein.resume(token)"
    )


def _answer(rein: Rein, session: str) -> Any:
    """The text that a run of somebody else ended with. Raises `SessionClosed` if it has none."""
    row = rein.store.session(session)
    if row is None or row.state != "COMPLETED":
        raise SessionClosed(
            f"session {session} is {row.state if row is not None else 'gone'}: the run did not "
            "come to its end"
        )
    for event in rein.store.events(session=session, kinds=("outcome", "amended"), reverse=True):
        payload = rein.store.payload(event.seq)
        if not isinstance(payload, dict) or "result" not in payload:
            continue
        intents = rein.store.events(call=event.call, kinds=("intent",), limit=1)
        if not intents or intents[0].view["kind"] != "model":
            continue
        answer = answers.loaded(codec.decode(payload["result"]), None)
        if isinstance(answer, str):
            return answer.rpartition(_FINAL)[2].strip()
    raise SessionClosed(f"session {session} is over, and no answer of it is kept")
