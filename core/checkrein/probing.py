"""What is known of an effect, and asking a probe for what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from checkrein import accounts, billing, codec
from checkrein.call import Absent, Call, EffectState, Outcome, Present, ToolInfo
from checkrein.effects import Effect, payload_of
from checkrein.errors import CheckreinError
from checkrein.store import Batch, Put, SettleRow
from checkrein.undo import MISSING, NotUndoable

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.rein import Rein


class Probing:
    """Finds out about single effects, for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store

    def call_of(self, effect: Effect) -> tuple[Call, dict[str, Any]]:
        """The call as it was made, with its exact arguments where they are still kept.

        Raises `Undecodable` for values of classes that this process does not declare.
        """
        view = effect.intent.view
        tool = self.rein.tools.get(effect.name)
        payload = payload_of(self.store, effect.intent.seq) or {"arguments": {}}
        classes = tool.classes if tool is not None else {}
        opaque = {
            name: None
            for name, value in payload["arguments"].items()
            if isinstance(value, dict) and value.get("$cr") == "opaque"
        }
        arguments = codec.decode_arguments(payload["arguments"], classes, opaque)
        row = self.store.session(effect.session)
        body = row.body if row is not None else {}
        call = Call(
            effect.call, effect.session, "tool", effect.name, arguments,
            tool.info if tool is not None else ToolInfo(effect.name),
            agent=body.get("agent", ""), task=view.get("task", ""), user=body.get("user", ""),
            tenant=body.get("tenant", ""), step=view.get("step", 0), parent=view.get("parent", ""),
        )  # fmt: skip
        return call, arguments

    def _billed(self, effect: Effect) -> Call:
        """The call as the bill names it: without its arguments, which may be gone."""
        view = effect.intent.view
        row = self.store.session(effect.session)
        body = row.body if row is not None else {}
        return Call(
            effect.call, effect.session, view["kind"], effect.name, {}, ToolInfo(effect.name),
            agent=body.get("agent", ""), task=view.get("task", ""), user=body.get("user", ""),
            tenant=body.get("tenant", ""), attempt=effect.intent.attempt,
            labels=view.get("labels", {}),
        )  # fmt: skip

    def result_of(self, effect: Effect) -> Any:
        """The call's result; `MISSING` if it is not known. Raises `Undecodable`."""
        payload = payload_of(self.store, effect.result_seq) if effect.result_seq else None
        if payload is None or "result" not in payload:
            return MISSING
        tool = self.rein.tools.get(effect.name)
        return codec.decode(payload["result"], tool.classes if tool is not None else {})

    def before_of(self, effect: Effect) -> Any:
        """The state before the call, as it was read; `MISSING` if it was not."""
        payload = payload_of(self.store, effect.intent.seq)
        if payload is None or "before" not in payload:
            return MISSING
        return codec.decode(payload["before"], {})

    async def probe(self, io: IO, effect: Effect) -> Present | Absent | None:
        """Ask whether the effect is in place now; None where nobody can tell."""
        tool = self.rein.tools.get(effect.name)
        probe = tool.probe if tool is not None else None
        if probe is None or probe.fn is None:
            return None
        try:
            call, arguments = self.call_of(effect)
            given = {**arguments, "call": call, "key": f"{effect.call}.undo"}
            result = self.result_of(effect)
        except CheckreinError as error:
            self.rein.log.warning("probe of %s: %s", effect.name, error)
            return None
        if result is not MISSING:
            given["result"] = result
        # Without a value that it needs a probe could only guess; guesses are what it is there
        # to prevent.
        if not probe.required <= given.keys():
            return None
        args, kwargs = probe.spread({n: given[n] for n in probe.parameters if n in given})
        fn = probe.fn
        if probe.is_async:
            io.may_wait(f"the probe of {effect.name}")
        try:
            answer = await io.call(
                lambda: fn(*args, **kwargs),
                timeout=probe.info.timeout,
                is_async=probe.is_async,
                late=_no_late,
            )
        except Exception as error:  # noqa: BLE001 - whatever a probe raises, it cannot tell
            # A probe that fails cannot tell; that is what its caller must know.
            self.rein.log.warning("probe of %s raised %s", effect.name, type(error).__name__)
            return None
        if answer is True:
            return Present()
        if answer is False:
            return Absent()
        if answer is not None and not isinstance(answer, (Present, Absent)):
            self.rein.log.warning(
                "probe of %s returned %s, which is no answer", effect.name, type(answer).__name__
            )
            return None
        return answer

    def settling(self, effect: Effect, since: int) -> float:
        """Seconds until a probe's answer about something begun at `since` is final."""
        tool = self.rein.tools.get(effect.name)
        settle = tool.info.settle_time if tool is not None else 30.0
        # A clock that was set back must not make it longer than it is.
        return max(0.0, min(settle, settle - (self.rein.clock() - since) / 1e6))

    def safe(self, effect: Effect) -> bool:
        """Whether its undo may be repeated without knowing whether it worked."""
        tool = self.rein.tools.get(effect.name)
        if tool is None:
            return False
        undo = self.rein.tools.get(tool.undo.name) if tool.undo is not None else None
        return tool.info.undo_safe_to_repeat or (undo is not None and undo.info.idempotent)

    async def resolve(
        self,
        io: IO,
        effect: Effect,
        state: EffectState | Literal["undone"],
        fence: int | None,
        *,
        result: Any = None,
        by: str = "probe",
        note: str = "",
    ) -> None:
        """Record what a probe or a person found out, and settle what the call still holds."""
        view: dict[str, Any] = {"state": state, "by": by, **({"note": note} if note else {})}
        payload: dict[str, Any] = {}
        if state == "done":
            payload = self._found(effect, result, view)
            effect.why_not = str(view.get("not_undoable", ""))
        # What could not be measured is charged in full; what had no effect is given back.
        known = Outcome("not_done" if state == "not_done" else "unknown")
        holds = self.store.holds(call=effect.call)
        settles = [SettleRow(hold.id, accounts.actual(hold, known)) for hold in holds]
        event = self.rein.journal.event("resolved", effect.call, payload or None, **view)
        puts = self._approvals(effect, state)
        batch = Batch(effect.session, (event,), event.at, fence, settles=settles, puts=puts)
        if holds:
            batch.costs = billing.lost_rows(self._billed(effect), holds, known)
        committed = await io.commit(batch)
        self.rein.observers.notify(committed, batch)
        if "plan" in view:
            effect.plan_seq = committed.seq
        if view.get("result_known"):
            effect.result_seq = committed.seq
        if state == "undone":
            effect.undone = True
        else:
            effect.state = state

    def _approvals(self, effect: Effect, state: str) -> tuple[Put, ...]:
        """A permission that was used for a call in doubt: free again, or used up."""
        page = self.store.records("approval", state="started", session=effect.session, limit=1000)
        after = "approved" if state == "not_done" else "done"
        return tuple(
            Put("approval", row.id, after, row.body, row.session, row.label, ("started",))
            for row in page.rows
            if row.body["call"] == effect.call
        )

    def _found(self, effect: Effect, result: Any, view: dict[str, Any]) -> dict[str, Any]:
        """The result and the plan of a call that a probe found in place."""
        tool = self.rein.tools.get(effect.name)
        payload: dict[str, Any] = {}
        try:
            # A bare Present() of a call that gives nothing: for a resumed run it gave None.
            payload["result"] = codec.encode(result, "result")
            view["result_known"] = result is not None
            if tool is not None and tool.undo is not None:
                _, arguments = self.call_of(effect)
                known = MISSING if result is None else result
                plan = tool.undo.stored(arguments, known, self.before_of(effect))
                payload["plan"] = plan
                view["plan"] = tool.undo.name
        except (NotUndoable, CheckreinError) as error:
            view["not_undoable"] = str(error)
        return payload


def _no_late(future: Any) -> None:
    """What a probe says after its time is not used."""
