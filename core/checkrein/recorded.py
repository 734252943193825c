"""What was recorded of a call before: a resumed run finds its earlier self here.

A call with the same key that is finished is answered with its stored result; one that another
process is executing is waited for; one in doubt is never repeated on a guess.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from checkrein import codec, verdicts
from checkrein.call import Call, Outcome
from checkrein.checks import Recall, Remember
from checkrein.effects import every
from checkrein.errors import (
    ApprovalExpired,
    ApprovalRejected,
    BudgetExceeded,
    CallFailed,
    Denied,
    InDoubt,
    StoreUnavailable,
    Unencodable,
)
from checkrein.judging import NOTHING
from checkrein.store import Batch, Event

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.entry import Entry
    from checkrein.manager import Impl
    from checkrein.rein import Rein

_REFUSALS: dict[str, type[Denied]] = {
    **dict.fromkeys(verdicts.REFUSAL_CODES, BudgetExceeded),
    "rejected": ApprovalRejected,
    "expired": ApprovalExpired,
}
"""The kinds of denials by the code that is recorded."""

_AGAIN = (*verdicts.REFUSAL_CODES, "check_failed", "no_approver")
"""Codes of refusals that circumstances may lift: the call is evaluated again."""


class Recorded:
    """Earlier calls, for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store

    async def earlier(
        self, io: IO, entry: Entry, call: Call, tree: dict[str, Any]
    ) -> Outcome | None:
        """The outcome of a finished call with this key; None if it has to run.

        Raises the denial that was recorded, or `InDoubt`.
        """
        try:
            events = every(self.store, call.id)
        except StoreUnavailable:
            if self.rein.failure_mode == "closed":
                raise
            events = []
        if not events:
            return None
        found = self._ended(entry, events)
        if found is not None:
            return await self._reviewed(io, entry, call, events, found)
        intents = [e for e in events if e.kind == "intent"]
        if not intents:
            return None
        last = intents[-1]
        entry.tried = last.attempt
        ended = [e for e in events if e.kind in ("outcome", "late") and e.attempt == last.attempt]
        if not ended:
            if self._running(call):
                return await self.other(io, entry, call)
            if len(every(self.store, call.id)) != len(events):
                # It ended between the two looks: what it left is the answer.
                return await self.earlier(io, entry, call, tree)
            return await self._doubt(io, entry, call)
        state = ended[-1].view
        if state.get("ended") == "paused" or state["state"] == "not_done":
            return None
        return await self._doubt(io, entry, call)

    async def _reviewed(
        self, io: IO, entry: Entry, call: Call, events: list[Event], found: Outcome
    ) -> Outcome:
        """A result that a person was to review is only given out after a yes."""
        for event in reversed(events):
            if event.kind == "approval_requested" and event.view.get("asked") == "after":
                refusal = await self.rein.permissions.review(io, entry, call, str(event.view["id"]))
                if refusal is not None:
                    raise refusal
                break
        return found

    async def _doubt(self, io: IO, entry: Entry, call: Call) -> Outcome | None:
        if entry.kind == "model" or entry.tool.info.idempotent or entry.tool.info.effect == "read":
            self.rein.permissions.reopen(call)
            return None
        known = await self.rein.rollbacks.ask(io, call, entry)
        if known is None:
            raise InDoubt(
                f"{call.name} {call.id} was started before and its effect is unknown; it is not "
                "repeated. Look with `checkrein show`, resolve with `checkrein recover`",
                call_id=call.id,
            )
        return known if isinstance(known, Outcome) else None

    def _running(self, call: Call) -> bool:
        """Whether somebody alive is executing the call now."""
        from checkrein import owner

        session = self.rein.opened(call.session)
        row = self.store.session(call.session)
        if row is None:
            return False
        if session is not None and row.owner == self.rein.lease.id():
            return session.runs(call.id)
        return owner.alive(self.store.owner(row.owner), self.rein.clock())

    def _ended(self, entry: Entry, events: list[Event]) -> Outcome | None:
        """The stored end of a call, if it has one that stands."""
        result: Event | None = None
        for event in events:
            if event.kind == "intent":
                result = None
            elif event.kind in ("answered", "amended", "outcome", "late", "resolved"):
                if event.view.get("state", "done") == "done" or event.kind in (
                    "answered",
                    "amended",
                ):
                    result = event
            elif event.kind == "denied" and event.view["code"] not in _AGAIN:
                raise _REFUSALS.get(event.view["code"], Denied)(
                    str(event.view["reason"]),
                    rule=event.view["rule"],
                    tool=event.view["name"],
                    call_id=event.call,
                    plugin=event.view["plugin"],
                    halt=event.view["halt"],
                    code=event.view["code"],
                )
        if result is None:
            return None
        if "error" in result.view:
            withheld = Denied(
                f"the result was withheld ({result.view['error']['type']})",
                tool=entry.tool.info.name, call_id=result.call,
            )  # fmt: skip
            withheld.ran = True
            raise withheld
        payload = self.store.payload(result.seq)
        if not isinstance(payload, dict) or "result" not in payload:
            raise InDoubt(
                f"{entry.tool.info.name} {result.call} ran before, but its result was not kept; "
                "it is not repeated",
                call_id=result.call,
            )
        value = codec.decode(payload["result"], entry.tool.classes)
        if entry.load is not None:
            value = entry.load(value)
        return Outcome("done", value, source="journal", cost=0, cost_state="reported")

    async def other(self, io: IO, entry: Entry, call: Call) -> Outcome:
        """Wait for the outcome of a call that somebody else started."""

        def ready() -> bool:
            if not self._running(call):
                return True
            for event in self.store.events(call=call.id, reverse=True, limit=16):
                if event.kind == "intent":
                    return False
                if event.kind in ("outcome", "late", "answered", "denied"):
                    return True
            return False

        await io.wait(ready, time.monotonic() + 3600.0, f"the outcome of {call.name} {call.id}")
        events = every(self.store, call.id)
        found = self._ended(entry, events)
        if found is None:
            _refuse_failed(call, events)
            raise InDoubt(
                f"{call.name} {call.id} was started by another process and has no known outcome; "
                "it is not repeated. Run `checkrein recover`",
                call_id=call.id,
            )
        return await self._reviewed(io, entry, call, events, found)

    # -- verdicts of guards that ask somebody outside

    def external(
        self, io: IO, entry: Entry, call: Call, tree: dict[str, Any]
    ) -> tuple[Recall, Remember]:
        """How `PreFold` finds and keeps the verdicts of plugins with `external=True`."""
        known: dict[tuple[str, str], Any] = {}

        def digest(call: Call) -> str:
            exact = codec.encode_arguments(call.arguments, entry.tool.opaque)
            return codec.digest(self.store.key, [call.name, exact])

        def recall(impl: Impl, call: Call) -> Any:
            mark = digest(call)
            if (impl.plugin, mark) in known:
                return known[impl.plugin, mark]
            for event in self.store.events(call=call.id, kinds=("guard",)):
                payload = self.store.payload(event.seq)
                if isinstance(payload, dict) and payload["digest"] == mark:
                    if payload["plugin"] == impl.plugin:
                        verdict = _verdict(payload["verdict"], call, entry)
                        known[impl.plugin, mark] = verdict
                        return verdict
            return NOTHING

        async def remember(impl: Impl, call: Call, verdict: Any) -> None:
            mark = digest(call)
            known[impl.plugin, mark] = verdict
            try:
                kept = {"plugin": impl.plugin, "digest": mark, "verdict": _kept(verdict, entry)}
            except Unencodable as error:
                # It counts now; a later run of this call has to ask again.
                self.rein.log.warning("verdict of plugin %s is not kept: %s", impl.plugin, error)
                return
            event = self.rein.journal.event(
                "guard", call.id, kept, plugin=impl.plugin, verdict=type(verdict).__name__.lower()
            )
            await self.rein.engine.commit(io, Batch(call.session, (event,), event.at))

        return recall, remember


def _refuse_failed(call: Call, events: list[Event]) -> None:
    """Raise `CallFailed` where the last attempt ended with an error of its own."""
    last = [e for e in events if e.kind in ("intent", "outcome", "late", "resolved")][-1:]
    view = last[0].view if last else {}
    if last and last[0].kind in ("outcome", "late") and view.get("ended") == "error":
        error = view["error"]
        effect = {"not_done": "did not happen", "unknown": "may have happened"}[view["state"]]
        raise CallFailed(
            f"{call.name} {call.id} ran already and raised {error['type']}: {error['message']}; "
            f"its effect {effect}, and it is not run again (checkrein show {call.session})",
            call_id=call.id, error=str(error["type"]), state=str(view["state"]),
        )  # fmt: skip


def _kept(verdict: Any, entry: Entry) -> Any:
    """A verdict as plain data."""
    from dataclasses import fields

    if verdict is None:
        return None
    if isinstance(verdict, tuple):
        return [_kept(v, entry) for v in verdict]
    if isinstance(verdict, verdicts.Rewrite):
        changed = codec.encode_arguments(verdict.call.arguments, entry.tool.opaque)
        return {"type": "Rewrite", "name": verdict.call.name, "arguments": changed}
    values = {f.name: codec.encode(getattr(verdict, f.name)) for f in fields(verdict)}
    return {"type": type(verdict).__name__, "fields": values}


def _verdict(kept: Any, call: Call, entry: Entry) -> Any:
    if kept is None:
        return None
    if isinstance(kept, list):
        return tuple(_verdict(k, call, entry) for k in kept)
    if kept["type"] == "Rewrite":
        arguments = codec.decode_arguments(kept["arguments"], entry.tool.classes, call.arguments)
        return verdicts.Rewrite(call.replace(name=kept["name"], arguments=arguments))
    cls = getattr(verdicts, kept["type"])
    return cls(**{k: codec.decode(v) for k, v in kept["fields"].items()})
