"""Where a run stands, in the journal of its session: begun, interrupted, ended.

Input and state are exact data of the journal: covered by the session's hash chain, sealed where
payloads are, erased with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkrein import codec
from checkrein.errors import ConfigError, PayloadUnreadable
from checkrein.store import Batch
from checkrein_integrations.openai_agents.framework import RunState
from checkrein_integrations.openai_agents.runs import Run, continued

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein._io import IO
    from checkrein.session import Session
    from checkrein.store import Event

STARTED, SUSPENDED, ENDED = "run_started", "run_suspended", "run_ended"
_KINDS = (STARTED, SUSPENDED, ENDED)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands."""

    kind: str
    seq: int
    number: int
    tokens: frozenset[str]
    """Approvals that it waits for."""


async def started(io: IO, run: Run, agent: str, input: Any) -> None:
    """Keep what a run is given, so that another process can run it again."""
    rein = run.session.rein
    if rein.journal.record != "all":
        return
    try:
        given = _given(input)
    except (TypeError, ValueError):
        rein.log.warning("the input of agent %s is no plain data: it is not kept", agent)
        given = {}
    await _write(io, run, STARTED, given, agent=agent)


def _given(input: Any) -> dict[str, Any]:
    if isinstance(input, RunState):
        return {"state": input.to_string()}
    if type(input) is not str:
        input = json.loads(json.dumps(input, default=_plain))
    return {"input": input}


async def suspended(io: IO, run: Run, agent: str, state: RunState[Any, Any]) -> None:
    """Keep an interrupted run."""
    payload = {
        "state": state.to_string(),
        "counts": {mark: n for mark, n in run.counts.items() if n},
        "waits": run.waits,
    }
    await _write(io, run, SUSPENDED, payload, agent=agent, tokens=sorted(run.waits))


async def ended(io: IO, run: Run) -> None:
    """A run came to its end: its approvals are used up."""
    await _write(io, run, ENDED, None)


async def _write(io: IO, run: Run, kind: str, given: Any, **view: Any) -> None:
    rein, session = run.session.rein, run.session.id
    payload = None
    if given is not None:
        text = json.dumps(given)
        bound = [session, kind, run.number, view.get("tokens", []), text]
        payload = {"text": text, "seal": codec.digest(rein.store.key, bound)}
    event = rein.journal.event(
        kind, "", payload, framework="openai-agents", number=run.number, **view
    )
    await rein.engine.commit(io, Batch(session, (event,), event.at))


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(type(value).__name__)
    return dump(mode="json", exclude_unset=True)


def last(rein: Rein, session: str) -> Standing | None:
    """Where the last run of a session stands; None if it had none."""
    found = _events(rein, session)
    return _standing(found[-1]) if found else None


def waiting(rein: Rein, session: str, token: str) -> Standing | None:
    """The run that waits, or waited last, for an approval, as it stands now; None if none did."""
    found = _events(rein, session)
    numbers = [event.view["number"] for event in found if token in _tokens(event)]
    if not numbers:
        return None
    return _standing([event for event in found if event.view["number"] == numbers[-1]][-1])


def _events(rein: Rein, session: str) -> Sequence[Event]:
    events = rein.store.events(session=session, kinds=_KINDS, limit=1000, reverse=True)
    return [e for e in reversed(list(events)) if e.view.get("framework") == "openai-agents"]


def _tokens(event: Event) -> list[Any]:
    tokens = event.view.get("tokens")
    return tokens if isinstance(tokens, list) else []


def _standing(event: Event) -> Standing:
    number: Any = event.view["number"]
    return Standing(event.kind, event.seq, int(number), frozenset(_tokens(event)))


def kept(rein: Rein, session: str, standing: Standing) -> Mapping[str, Any]:
    """What was kept of a run. Raises `PayloadUnreadable` where it was altered or is gone.

    Who can write the store's file, but does not know its key, cannot put another state there.
    """
    payload = rein.store.payload(standing.seq)
    text = payload.get("text") if isinstance(payload, dict) else None
    bound = [session, standing.kind, standing.number, sorted(standing.tokens), text]
    if not isinstance(payload, dict) or payload.get("seal") != codec.digest(rein.store.key, bound):
        raise PayloadUnreadable(
            f"the state of the run in session {session} was altered in the store, or is gone: it "
            "is not gone on with; look with `checkrein doctor`"
        )
    tree = json.loads(str(text))
    if not ({"state", "input"} & tree.keys()):
        raise ConfigError("what this run was given is not kept: it cannot be gone on with")
    found: Mapping[str, Any] = tree
    return found


def restored(session: Session, standing: Standing, tree: Mapping[str, Any]) -> Run:
    """The run as it stood."""
    run = continued(session, standing.number, tree.get("counts", {}))
    run.waits.update(tree.get("waits", {}))
    return run
