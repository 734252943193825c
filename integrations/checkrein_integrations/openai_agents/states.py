"""The state of an interrupted run, sealed in the journal beside the approvals it waits for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkrein.store import Batch
from checkrein_integrations.openai_agents.framework import RunState
from checkrein_integrations.openai_agents.runs import Run, continued

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein._io import IO
    from checkrein.session import Session

KIND = "run_suspended"
ENDED = "run_ended"


async def seal(io: IO, run: Run, agent: str, state: RunState[Any, Any]) -> None:
    """Keep an interrupted run: as exact data, covered by the session's hash chain."""
    rein = run.session.rein
    payload = {
        "state": state.to_string(),
        "number": run.number,
        "counts": {mark: n for mark, n in run.counts.items() if n},
        "waits": run.waits,
    }
    event = rein.journal.event(
        KIND, "", json.dumps(payload), framework="openai-agents", agent=agent,
        tokens=sorted(run.waits),
    )  # fmt: skip
    await rein.engine.commit(io, Batch(run.session.id, (event,), event.at))


async def close(io: IO, run: Run) -> None:
    """An interrupted run came to its end: its approvals are used up."""
    event = run.session.rein.journal.event(ENDED, framework="openai-agents")
    await run.session.rein.engine.commit(io, Batch(run.session.id, (event,), event.at))


@dataclass(frozen=True, slots=True)
class Sealed:
    """An interrupted run as it was sealed."""

    seq: int
    tokens: frozenset[str]
    newest: bool
    """No later interruption of the same session is known."""


def find(rein: Rein, session: str, token: str) -> Sealed | None:
    """The last interruption in which a token was waited for."""
    events = list(rein.store.events(session=session, kinds=(KIND,), limit=1000))
    for event in reversed(events):
        tokens: Any = event.view.get("tokens")
        if isinstance(tokens, list) and token in tokens:
            return Sealed(event.seq, frozenset(tokens), event is events[-1])
    return None


def opened(rein: Rein, sealed: Sealed) -> Mapping[str, Any]:
    """What was sealed. Raises `PayloadUnreadable` where it was altered or is gone."""
    from checkrein.errors import PayloadUnreadable

    payload = rein.store.payload(sealed.seq)
    try:
        tree = json.loads(str(payload))
    except ValueError as error:
        raise PayloadUnreadable("the state of the run is not in the store any more") from error
    if not isinstance(tree, dict):
        raise PayloadUnreadable("the state of the run is not what was sealed")
    return tree


def restored(session: Session, tree: Mapping[str, Any]) -> Run:
    """The run as it was when it was interrupted."""
    return continued(session, int(tree["number"]), tree["counts"])
