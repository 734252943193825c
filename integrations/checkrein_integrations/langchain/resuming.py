"""Going on with a run that waited for an approval, in this process or another."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langgraph.types import Command

from checkrein._io import finish
from checkrein.errors import ApprovalPending, ConfigError, Conflict
from checkrein_integrations._shared.leases import lease_on, settled
from checkrein_integrations.langchain.framework import check
from checkrein_integrations.langchain.keys import THREAD

if TYPE_CHECKING:
    from checkrein import Rein

_PATIENCE = 3600.0
"""Seconds that a second resumer waits for the first."""


def resume(rein: Rein, token: str, target: Any, config: Mapping[str, Any] | None = None) -> Any:
    """Go on with the run of `target` (an agent or graph) that waits for approval `token`.

    Returns what `target.invoke` returns. Who comes while another one goes on waits for it, and
    gets the state that the run ended in: the model is never entered twice. Raises `Conflict` for
    a token that is unknown, used or another tenant's, `ApprovalPending` while nobody has
    decided, and what the run raises.
    """
    check()
    found = _Found(rein, token, config)
    with lease_on(rein, found.session) as lease:
        if lease is None:
            found.refuse_used()
            finish(
                rein.sync_io.wait(
                    found.settled, time.monotonic() + _PATIENCE, f"the run of {found.thread}"
                )
            )
            return target.get_state(found.config).values
        state = target.get_state(found.config)
        interrupt = found.interrupt(state)
        if interrupt is None:
            return state.values
        with lease:
            return target.invoke(Command(resume={interrupt: True}), found.config)


async def aresume(
    rein: Rein, token: str, target: Any, config: Mapping[str, Any] | None = None
) -> Any:
    """The async twin of `resume`."""
    check()
    found = _Found(rein, token, config)
    with lease_on(rein, found.session) as lease:
        if lease is None:
            found.refuse_used()
            await rein.async_io.wait(
                found.settled, time.monotonic() + _PATIENCE, f"the run of {found.thread}"
            )
            return (await target.aget_state(found.config)).values
        state = await target.aget_state(found.config)
        interrupt = found.interrupt(state)
        if interrupt is None:
            return state.values
        async with lease:
            return await target.ainvoke(Command(resume={interrupt: True}), found.config)


class _Found:
    """The run that a token belongs to."""

    def __init__(self, rein: Rein, token: str, config: Mapping[str, Any] | None) -> None:
        request = rein.approvals.get(token)
        if request is None:
            raise Conflict(f"approval {token} is unknown here; `checkrein approvals` lists them")
        if request.state == "pending" and request.expires > rein.clock():
            raise ApprovalPending(token, call_id=request.call, tool=request.tool)
        self._rein, self._token = rein, token
        self.session = request.session
        self._idle = self.settled()
        self.thread = ""
        for event in rein.store.events(call=request.call, kinds=("approval_requested",)):
            payload = rein.store.payload(event.seq)
            if event.view.get("id") == token and isinstance(payload, dict):
                self.thread = payload["labels"].get(THREAD, "")
        if not self.thread:
            raise ConfigError(
                f"approval {token} was not asked for in a checkpointed graph: use "
                "rein.resume(token)"
            )
        given = dict(config or {})
        self.config: Any = {
            **given,
            "configurable": {**(given.get("configurable") or {}), "thread_id": self.thread},
        }

    def interrupt(self, state: Any) -> str | None:
        """Id of the pause that waits for the token; None if somebody went on with it meanwhile.

        Raises `Conflict` where that was before this resumer came.
        """
        for interrupt in state.interrupts:
            if isinstance(interrupt.value, dict) and interrupt.value.get("token") == self._token:
                return str(interrupt.id)
        self.refuse_used()
        return None

    def refuse_used(self) -> None:
        """Raise `Conflict` where nobody was going on with the run when this resumer came."""
        if self._idle:
            raise Conflict(f"approval {self._token} was used: its run has gone on already")

    def settled(self) -> bool:
        """Whether nobody is running the session any more."""
        return settled(self._rein, self.session)
