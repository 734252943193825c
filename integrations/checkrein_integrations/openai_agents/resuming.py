"""Going on with a run that waited for an approval, in this process or another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Unpack

from checkrein.errors import ApprovalPending, ConfigError, Conflict
from checkrein.session import ACTIVE
from checkrein_integrations._shared.leases import lease_on, settled
from checkrein_integrations._shared.responses import get
from checkrein_integrations.openai_agents import states
from checkrein_integrations.openai_agents.framework import RunResult, RunState
from checkrein_integrations.openai_agents.running import (
    Around,
    Ready,
    RunnerOptions,
    on_loop,
    unreadable,
)
from checkrein_integrations.openai_agents.runs import RUN

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein_integrations.openai_agents.runs import Run

_PATIENCE = 3600.0
"""Seconds that a second resumer waits for the first."""


async def aresume(
    rein: Rein, token: str, target: Any, **options: Unpack[RunnerOptions]
) -> RunResult:
    """Go on with the run of `target` (an agent, or a function that makes it) that waits.

    Returns what `run` returns. Who comes while another one goes on waits for it, and gets the
    same result out of the journal: no model is entered twice. Raises `Conflict` for a token
    that is unknown or used, `ApprovalPending` while nobody has decided, `PayloadUnreadable`
    for a state that was altered, and what the run raises.
    """
    session = _session(rein, token)
    agent = target() if callable(target) and not hasattr(target, "handoffs") else target
    ready = Ready(rein, agent, options)
    waited = False
    while True:
        with lease_on(rein, session) as lease:
            if lease is not None:
                sealed = _sealed(rein, session, token)
                if not sealed.newest:
                    raise _used(token)
                tree = states.opened(rein, sealed)
                if _gone_on(rein, session, sealed):
                    raise _used(token)
                async with lease:
                    run = states.restored(lease.session, tree)
                    lease.session.waiting.discard(f"openai-agents-{run.number}")
                    result = await _go_on(rein, ready, run, tree)
                    if not result.interruptions:
                        await states.close(rein.async_io, run)
                    return result
        if waited:
            raise _used(token)
        waited = True
        found = await _after(rein, session, token, ready)
        if found is not None:
            return found


def resume(rein: Rein, token: str, target: Any, **options: Unpack[RunnerOptions]) -> RunResult:
    """The sync twin of `aresume`."""
    result: RunResult = on_loop(aresume(rein, token, target, **options), "resume")
    return result


async def _go_on(rein: Rein, ready: Ready, run: Run, tree: Any) -> RunResult:
    state: Any = await RunState.from_string(
        ready.agent, tree["state"], context_override=ready.options.get("context")
    )
    open_calls = {
        (id, name)
        for token, (id, name) in tree["waits"].items()
        if rein.approvals.fresh(token).state == "pending"
    }
    for item in state.get_interruptions():
        call = (str(get(item.raw_item, "call_id") or ""), str(item.tool_name or ""))
        # The record decides, in the call itself: a no is told to the model there.
        if unreadable(item) or call not in open_calls:
            state.approve(item)
    before, session = RUN.get(), ACTIVE.get()
    around = Around(rein, ready.agent.name, run)
    try:
        ACTIVE.set(run.session)
        around.start()
        return await around.carry(ready, state)
    finally:
        ACTIVE.set(session)
        RUN.set(before)


async def _after(rein: Rein, session: str, token: str, ready: Ready) -> RunResult | None:
    """Wait for whoever goes on with the run; its result, out of the journal.

    None where the run is free again: it is there to be gone on with.
    """
    row = rein.store.session(session)
    if row is None or row.state != "ACTIVE":
        raise _used(token)
    deadline = time.monotonic() + _PATIENCE
    await rein.async_io.wait(lambda: settled(rein, session), deadline, "the resumed run")
    row = rein.store.session(session)
    sealed = _sealed(rein, session, token)
    if row is None or row.state != "COMPLETED" or not sealed.newest:
        return None
    tree = states.opened(rein, sealed)
    replay = states.restored(rein.session(id=session), tree)
    return await _go_on(rein, ready, replay, tree)


def _session(rein: Rein, token: str) -> str:
    """The session of a token that has been decided."""
    request = rein.approvals.get(token)
    if request is None:
        raise Conflict(f"approval {token} is unknown here; `checkrein approvals` lists them")
    if request.state == "pending" and request.expires > rein.clock():
        raise ApprovalPending(token, call_id=request.call, tool=request.tool)
    return request.session


def _sealed(rein: Rein, session: str, token: str) -> states.Sealed:
    found = states.find(rein, session, token)
    if found is None:
        raise ConfigError(
            f"approval {token} was not asked for in a run of run(rein, agent, ...): use "
            "rein.resume(token)"
        )
    return found


def _gone_on(rein: Rein, session: str, sealed: states.Sealed) -> bool:
    """Whether the run has been taken to its end since it was sealed."""
    later = rein.store.events(session=session, kinds=(states.ENDED,), reverse=True, limit=1)
    return any(event.seq > sealed.seq for event in later)


def _used(token: str) -> Conflict:
    return Conflict(f"approval {token} was used: its run has gone on already")
