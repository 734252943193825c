"""Going on with a run that waited for an approval, or whose process has died."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from checkrein.errors import ApprovalPending, ConfigError, Conflict
from checkrein.session import ACTIVE
from checkrein_integrations._shared.leases import lease_on, settled
from checkrein_integrations.openai_agents import states
from checkrein_integrations.openai_agents.framework import RunResult, RunState
from checkrein_integrations.openai_agents.running import (
    Around,
    Ready,
    RunnerOptions,
    call_of,
    on_loop,
    unreadable,
)
from checkrein_integrations.openai_agents.runs import RUN, Run
from checkrein_integrations.openai_agents.states import Standing

if TYPE_CHECKING:
    from checkrein import Rein

_PATIENCE = 3600.0
"""Seconds that a second resumer waits for the first."""


async def aresume(
    rein: Rein, token: str, target: Any, **options: Unpack[RunnerOptions]
) -> RunResult:
    """Go on with a run of `target` (an agent, or a function that makes it).

    `token` is an approval that the run waits for, or the id of a session whose process has died.
    Returns what `run` returns; what is recorded is neither asked nor done nor paid again. Who
    comes while another one goes on waits for it, and gets the same result out of the journal:
    no model is entered twice.

    Raises `Conflict` for a token that is unknown or used, `ApprovalPending` while nobody has
    decided, `PayloadUnreadable` for a state that was altered, and what the run raises.
    """
    found = _Found(rein, token)
    agent = target() if callable(target) and not hasattr(target, "handoffs") else target
    ready = Ready(rein, agent, options)
    while True:
        with lease_on(rein, found.session) as lease:
            if lease is not None:
                standing, tree = found.standing()
                async with lease:
                    run = states.restored(lease.session, standing, tree)
                    lease.session.waiting.discard(f"openai-agents-{run.number}")
                    return await _go_on(rein, ready, run, tree)
        result = await _other(rein, found, ready)
        if result is not None:
            return result


def resume(rein: Rein, token: str, target: Any, **options: Unpack[RunnerOptions]) -> RunResult:
    """The sync twin of `aresume`. Raises `WouldBlock` where a loop is running."""
    result: RunResult = on_loop(aresume(rein, token, target, **options), "resume")
    return result


class _Found:
    """The run that a token belongs to."""

    def __init__(self, rein: Rein, token: str) -> None:
        self._rein = rein
        self._token = token
        self._approval = False
        request = rein.approvals.get(token)
        if request is not None:
            if request.state == "pending" and request.expires > rein.clock():
                raise ApprovalPending(token, call_id=request.call, tool=request.tool)
            self.session = request.session
            self._approval = True
        elif rein.store.session(token) is not None:
            self.session = token
        else:
            raise Conflict(
                f"{token} is neither an approval nor a session that is known here; "
                "`checkrein approvals` and `checkrein sessions` list them"
            )

    def standing(self) -> tuple[Standing, Mapping[str, Any]]:
        """Where the run stands, and what is kept of it. Raises where it cannot go on."""
        rein, token = self._rein, self._token
        if not self._approval:
            standing = states.last(rein, self.session)
            if standing is None:
                raise ConfigError(
                    f"session {token} holds no run of run(rein, agent, ...) that is kept "
                    "(record='all')"
                )
            if standing.kind == states.ENDED:
                raise Conflict(f"session {token}: its run has come to its end")
            for waits in standing.tokens:
                record = rein.approvals.fresh(waits)
                if record.state == "pending":
                    raise ApprovalPending(waits, call_id=record.body["call"])
        else:
            found = states.waiting(rein, self.session, token)
            if found is None:
                raise ConfigError(
                    f"approval {token} was not asked for in a run of run(rein, agent, ...): use "
                    "rein.resume(token)"
                )
            standing = found
            if token not in standing.tokens:
                raise self.used()
        return standing, states.kept(rein, self.session, standing)

    def used(self) -> Conflict:
        """The error for a token that somebody has used."""
        return Conflict(f"{self._token} was used: its run has gone on already")


async def _go_on(rein: Rein, ready: Ready, run: Run, tree: Mapping[str, Any]) -> RunResult:
    given: Any = tree.get("input")
    if "state" in tree:
        given = await _state(rein, ready, tree)
    before, session = RUN.get(), ACTIVE.get()
    around = Around(rein, ready.agent.name, run)
    try:
        ACTIVE.set(run.session)
        around.start()
        return await around.carry(ready, given)
    finally:
        ACTIVE.set(session)
        RUN.set(before)


async def _state(rein: Rein, ready: Ready, tree: Mapping[str, Any]) -> Any:
    """The SDK's state, to go on with every call that is decided or needs no person."""
    context = ready.options.get("context")
    state: Any = await RunState.from_string(
        ready.agent, tree["state"], **({} if context is None else {"context_override": context})
    )
    undecided = {
        tuple(call)
        for token, call in tree.get("waits", {}).items()
        if rein.approvals.fresh(token).state == "pending"
    }
    for item in state.get_interruptions():
        # The record decides, in the call itself: a no is told to the model there.
        if unreadable(item) or call_of(item) not in undecided:
            state.approve(item)
    return state


async def _other(rein: Rein, found: _Found, ready: Ready) -> RunResult | None:
    """Wait for whoever goes on with the run; its result, out of the journal.

    None where nobody goes on with it any more, and it has not ended.
    """
    row = rein.store.session(found.session)
    if row is None or row.state != "ACTIVE":
        raise found.used()
    standing, tree = found.standing()
    deadline = time.monotonic() + _PATIENCE
    await rein.async_io.wait(
        lambda: settled(rein, found.session) or _ended(rein, found.session, standing),
        deadline, "the resumed run",
    )  # fmt: skip
    if not _ended(rein, found.session, standing):
        return None
    # Every answer is recorded: nothing is asked, done or paid; a session that is over lets
    # nothing else through.
    run = states.restored(rein.session(id=found.session), standing, tree)
    return await _go_on(rein, ready, run, tree)


def _ended(rein: Rein, session: str, standing: Standing) -> bool:
    """Whether a run has come to its end since."""
    events = rein.store.events(session=session, kinds=(states.ENDED,), reverse=True, limit=100)
    return any(
        event.seq > standing.seq and event.view.get("number") == standing.number for event in events
    )
