"""Did a session do what it was meant to? A judge compares its actions with its intent.

def judge(intent, actions):
wrong = [a.name for a in actions if a.name.startswith("admin.")]
return Judgement("DRIFT_DETECTED", f"{wrong[0]} is no part of it") if wrong else "VERIFIED"

rein = Rein(judge=judge, on_drift="rollback")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from checkrein._io import is_awaitable
from checkrein.store import Batch, Put
from checkrein.timeline import timeline

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.rein import Rein
    from checkrein.session import Session

Verdict: TypeAlias = Literal["VERIFIED", "DRIFT_DETECTED", "UNVERIFIED"]
VERDICTS: tuple[Verdict, ...] = ("VERIFIED", "DRIFT_DETECTED", "UNVERIFIED")

MOST = 1000
"""Actions that a judge is shown: the newest."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge says."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """One action of a session, as a person may see it."""

    name: str
    kind: str
    """`tool` or `model`."""
    state: str
    """`done`, `not_done`, `unknown`, `denied`, `answered`."""
    arguments: Any = None
    result: Any = None


Judge: TypeAlias = Callable[[str, Sequence[Done]], Any]
"""(intent, actions) -> `Judgement` or a verdict; may be async."""


async def check(rein: Rein, io: IO, session: Session) -> Judgement | None:
    """Ask the judge about a session that ended well, and record what it says.

    None where there is no intent or no judge. A judge that fails gives UNVERIFIED.
    """
    judge = rein.judge
    if judge is None or not session.intent:
        return None
    actions = [
        Done(frame.what, frame.kind, frame.state, frame.arguments, frame.result)
        for frame in list(timeline(session.events()))
        if frame.kind in ("tool", "model")
    ][-MOST:]
    try:
        said = judge(session.intent, actions)
        if is_awaitable(said):
            said = await io.settle(said, what="the judge", timeout=rein.hook_timeout)
        found = _judgement(said)
    except Exception as error:  # noqa: BLE001 - whatever a judge raises, it has not verified
        rein.log.error("the judge of session %s raised %s", session.id, type(error).__name__)
        found = Judgement("UNVERIFIED", f"the judge raised {type(error).__name__}")
    from checkrein.lifecycle import session_call

    reason = str(rein.journal.view(session_call(session), found.reason, "journal"))
    event = rein.journal.event("intent_checked", verdict=found.verdict, reason=reason)
    put = Put("intent", session.id, found.verdict, {"reason": reason}, session.id)
    batch = Batch(session.id, (event,), event.at, session.fence, puts=(put,))
    rein.observers.notify(await io.commit(batch), batch)
    return found


def _judgement(said: Any) -> Judgement:
    if isinstance(said, str) and said in VERDICTS:
        return Judgement(said)
    if isinstance(said, Judgement) and said.verdict in VERDICTS:
        return said
    return Judgement("UNVERIFIED", f"the judge gave a {type(said).__name__}, which is no verdict")
