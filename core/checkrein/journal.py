"""What is written of a call: events with a view for people and a payload for undo and resume.

Kinds of events
    session_started, session_ended, session_suspended, session_resumed (after a crash),
    session_stopped, session_paused, session_continued, session_forgotten, payload,
    intent_checked (what the judge said)
    intent       a call is about to run; its holds are taken in the same transaction
    outcome      what became of that attempt; settles its holds; carries the undo plan
    consumed     how a generator of a wrapped client ended: its items, its error
    late         the result of an attempt that was given up, when it came after all
    answered     a call that did not run because a plugin answered it
    denied       a call that did not run because a check, a person or a limit said no
    amended      what the caller saw instead of the result
    observed     what would have been decided (mode "observe")
    guard        the stored verdict of a plugin that asks somebody outside
    approval_*   asked, decided, expired
    resolved, needs_human, rollback_started, undo_skipped, undo_declined, rollback_finished
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from checkrein import accounts
from checkrein.call import Call, Outcome, Usage, new_outcome
from checkrein.codec import LONG, describe, is_brief, is_flat, is_flat_value
from checkrein.store import SAME, Event, HoldRow, NewEvent, Store, Tree
from checkrein.verdicts import Measured, Sink

if TYPE_CHECKING:
    import logging

    from checkrein.checks import Checked
    from checkrein.errors import Denied
    from checkrein.manager import Impl

UNVIEWABLE = "[unviewable]"

_USAGE = tuple(field.name for field in fields(Usage))


class Journal:
    """Builds the events of calls."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], int],
        views: Sequence[Impl],
        record: str,
        log: logging.Logger,
    ) -> None:
        self.store = store
        self.now = clock
        self.views = views
        self.record = record
        self.log = log

    def view(self, call: Call, value: Any, sink: Sink, limit: int = LONG) -> Any:
        """`value` as `sink` may show it: every plugin's `view` in turn, then plain data.

        `limit`: characters of all texts together.
        """
        for impl in self.views:
            try:
                value = impl(call, value, sink)
            except Exception as error:  # noqa: BLE001 - a view that fails must hide the value,
                # whatever it raised
                self.log.error("view of plugin %s raised %s", impl.plugin, type(error).__name__)
                return UNVIEWABLE
        return describe(value, limit)

    def _arguments(self, call: Call, tree: Mapping[str, Tree]) -> Tree:
        if not self.views and is_flat(tree):
            return tree
        return self.view(call, call.arguments, "journal")

    def _value(self, call: Call, value: Any) -> Tree:
        if not self.views and (is_flat_value(value) or is_brief(value)):
            return value
        return self.view(call, value, "journal")

    def _keeps(self, call: Call) -> bool:
        return self.record == "all" or (self.record == "tools" and call.kind != "model")

    def intent(
        self,
        call: Call,
        tree: dict[str, Tree],
        flat: bool,
        checked: Checked | None,
    ) -> NewEvent:
        """A call is about to run."""
        info = call.tool
        view: dict[str, Tree] = {
            "kind": call.kind,
            "name": call.name,
            "arguments": tree
            if flat and not self.views
            else self.view(call, call.arguments, "journal"),
            "effect": info.effect,
            "step": call.step,
        }
        if info.undo:
            view["undo"] = info.undo
        if info.operation:
            view["operation"] = info.operation
        if info.irreversible:
            view["irreversible"] = info.irreversible
        _place(call, view)
        if checked is not None:
            if checked.notes:
                view["verdicts"] = [list(note) for note in checked.notes]
            if checked.unchecked:
                view["unchecked"] = list(checked.unchecked)
            if checked.denied is not None:
                # Only where nothing is enforced does a denied call come as far as this.
                view["would_deny"] = {
                    "code": checked.denied.code,
                    "rule": checked.denied.rule,
                    "plugin": checked.denied.plugin,
                    "reason": self.view(call, checked.denied.reason, "journal"),
                }
        # Undo and resume need the exact arguments of tools and undos whatever `record` says;
        # model requests are kept for resuming only.
        keep = call.kind != "model" or self._keeps(call)
        payload: Tree | None = None
        if keep:
            payload = SAME if view["arguments"] is tree else {"arguments": tree}
        return NewEvent("intent", call.id, self.now(), view, payload, call.attempt)

    def note_observed(self, event: NewEvent, plugin: str, verdict: str) -> None:
        """Add what would have been decided to an intent that is not committed yet."""
        event.view.setdefault("verdicts", []).append([plugin, verdict])

    def outcome(
        self,
        call: Call,
        outcome: Outcome,
        encoded: tuple[Tree, bool],
        plan: dict[str, Any] | None,
        why: str,
        rows: Sequence[HoldRow],
        paused: bool,
        kind: str = "outcome",
    ) -> NewEvent:
        """What became of an attempt."""
        view: dict[str, Tree] = {"state": outcome.state, "us": int(outcome.duration * 1e6)}
        payload: dict[str, Tree] | None = {}
        if outcome.error is None:
            value = outcome.value
            tree, complete = encoded
            # A container that came back uncopied is brief: it is its own view.
            brief = tree is value and type(value) in (dict, list) and not self.views
            view["result"] = value if brief else self._value(call, value)
            if self._keeps(call):
                if complete:
                    payload = {"result": tree}
                else:
                    view["unrecorded"] = type(outcome.value).__name__
        else:
            view["error"] = self._error(call, outcome.error)
            view["ended"] = _ended(outcome.error, paused)
        if outcome.usage is not None:
            view["usage"] = usage_tree(outcome.usage)
        if outcome.cost_state is not None:
            view["cost"] = outcome.cost
            view["cost_state"] = outcome.cost_state
            if outcome.price:
                view["price"] = outcome.price
        if plan is not None:
            view["plan"] = plan["undo"]
            payload = {**(payload or {}), "plan": plan}
        elif why:
            view["not_undoable"] = why
        if rows and (over := accounts.overrun(rows, outcome)):
            view["overrun"] = over
        same = payload and plan is None and kind == "outcome" and view["result"] is encoded[0]
        return NewEvent(
            kind, call.id, self.now(), view, SAME if same else payload or None, call.attempt
        )

    def _error(self, call: Call, error: BaseException) -> Tree:
        try:
            message = str(error)[: 4 * LONG]
        except Exception:  # noqa: BLE001 - an error that cannot be printed is recorded all the same
            message = UNVIEWABLE
        return {"type": type(error).__name__, "message": self.view(call, message, "journal")}

    def answered(
        self,
        call: Call,
        tree: dict[str, Tree],
        outcome: Outcome,
        checked: Checked,
        encoded: tuple[Tree, bool],
    ) -> NewEvent:
        """A plugin's answer stands for the result; nothing ran."""
        view: dict[str, Tree] = {
            "kind": call.kind,
            "name": call.name,
            "arguments": self._arguments(call, tree),
            "step": call.step,
            "state": outcome.state,
            "source": outcome.source,
            "result": self._value(call, outcome.value),
            "verdicts": [list(note) for note in checked.notes],
        }
        _place(call, view)
        if checked.unchecked:
            view["unchecked"] = list(checked.unchecked)
        payload = {"result": encoded[0]} if encoded[1] else None
        return NewEvent("answered", call.id, self.now(), view, payload)

    def denied(self, call: Call, tree: dict[str, Tree], denied: Denied) -> NewEvent:
        """A call that was not run."""
        view: dict[str, Tree] = {
            "kind": call.kind,
            "name": call.name,
            "arguments": self._arguments(call, tree),
            "step": call.step,
            "code": denied.code,
            "reason": self.view(call, denied.reason, "journal"),
            "rule": denied.rule,
            "plugin": denied.plugin,
            "halt": denied.halt,
        }
        _place(call, view)
        return NewEvent("denied", call.id, self.now(), view)

    def amended(
        self,
        call: Call,
        outcome: Outcome,
        encoded: tuple[Tree, bool],
        notes: Iterable[tuple[str, str]],
    ) -> NewEvent:
        """What the caller saw instead of the result."""
        view: dict[str, Tree] = {"verdicts": [list(note) for note in notes]}
        payload = None
        if outcome.error is None:
            view["result"] = self._value(call, outcome.value)
            payload = {"result": encoded[0]} if encoded[1] and self._keeps(call) else None
        else:
            view["error"] = self._error(call, outcome.error)
        return NewEvent("amended", call.id, self.now(), view, payload)

    def observed(self, call: Call, notes: Iterable[tuple[str, str]]) -> NewEvent:
        """What `post_call` would have changed."""
        return NewEvent(
            "observed", call.id, self.now(), {"verdicts": [list(note) for note in notes]}
        )

    def event(self, kind: str, call: str = "", payload: Tree = None, **view: Tree) -> NewEvent:
        """An event about a session or a finding."""
        return NewEvent(kind, call, self.now(), view, payload)

    def next_attempt(self, call: Call) -> int:
        """Number of the next attempt of a call that may have been tried before."""
        last = self.store.events(call=call.id, kinds=("intent",), reverse=True, limit=1)
        return last[0].attempt + 1 if last else 1

    def measured(self, measures: Sequence[Impl], call: Call, outcome: Outcome) -> Outcome:
        """Merge what the plugins measured, field by field; a failing one is `estimated`.

        Raises nothing: the effect has happened, so two plugins that fill one field are logged
        and the first one counts.
        """
        found: dict[str, Any] = {}
        by: dict[str, str] = {}
        for impl in measures:
            try:
                measured = impl(call, outcome)
            except Exception as error:  # noqa: BLE001 - whatever a measure raises, the call is
                # charged at its hold
                self.log.error("measure of plugin %s raised %s", impl.plugin, type(error).__name__)
                found.setdefault("cost_state", "estimated")
                continue
            if measured is None:
                continue
            if not _sound(measured):
                self.log.error("measure of plugin %s is no measure", impl.plugin)
                found.setdefault("cost_state", "estimated")
                continue
            if len(measures) == 1:  # nothing to merge it with
                return _with(outcome, measured)
            if measured.amounts:
                found["amounts"] = {**found.get("amounts", {}), **measured.amounts}
            for name, value in (
                ("usage", measured.usage),
                ("cost", measured.cost),
                ("cost_state", measured.state),
                ("price", measured.price),
            ):
                if value is None:
                    continue
                if name in found and found[name] != value:
                    self.log.error(
                        "plugins %s and %s both measure %s of %s: the first counts",
                        by.get(name, "?"),
                        impl.plugin,
                        name,
                        call.name,
                    )
                    continue
                found[name] = value
                by[name] = impl.plugin
        if not found:
            return outcome
        get = found.get
        return new_outcome(
            outcome.state, outcome.value, outcome.error, get("usage", outcome.usage),
            get("cost", outcome.cost), get("cost_state", outcome.cost_state), outcome.duration,
            outcome.attempts, outcome.source, get("amounts", outcome.amounts),
            get("price", outcome.price),
        )  # fmt: skip


def _with(outcome: Outcome, measured: Measured) -> Outcome:
    """What one plugin measured, over what the outcome had."""
    usage, cost, state, price = measured.usage, measured.cost, measured.state, measured.price
    return new_outcome(
        outcome.state, outcome.value, outcome.error, outcome.usage if usage is None else usage,
        outcome.cost if cost is None else cost, outcome.cost_state if state is None else state,
        outcome.duration, outcome.attempts, outcome.source,
        dict(measured.amounts) if measured.amounts else outcome.amounts,
        outcome.price if price is None else price,
    )  # fmt: skip


def _sound(measured: object) -> bool:
    """Whether a ledger can hold what a plugin measured."""
    if type(measured) is not Measured:
        return False
    usage: object = measured.usage
    cost: object = measured.cost
    return (
        (usage is None or (isinstance(usage, Usage) and usage.sound()))
        and (cost is None or (type(cost) is int and 0 <= cost < accounts.NO_LIMIT))
        and measured.state in (None, "reported", "estimated", "unpriced")
        and (measured.amounts is None or _booked(measured.amounts))
        and (measured.price is None or isinstance(measured.price, str))
    )


def _booked(amounts: object) -> bool:
    return isinstance(amounts, Mapping) and all(
        type(name) is str and type(n) is int and 0 <= n < accounts.NO_LIMIT
        for name, n in amounts.items()
    )


def _ended(error: BaseException, paused: bool) -> str:
    """How an attempt ended, as statistics and breakers may count it."""
    if paused:
        return "paused"
    names = {cls.__name__ for cls in type(error).__mro__}
    if "CancelledError" in names or isinstance(error, (KeyboardInterrupt, SystemExit)):
        return "cancelled"
    if "Denied" in names:
        return "denied"
    if isinstance(error, TimeoutError):
        return "timeout"
    return "error"


def usage_tree(usage: Usage) -> dict[str, Tree]:
    """A usage as plain data, zeros left out."""
    return {name: value for name in _USAGE if (value := getattr(usage, name))}


def is_effect(event: Event) -> bool:
    """Whether an intent is one that a rollback has to look at."""
    return (
        event.kind == "intent"
        and event.view.get("kind") == "tool"
        and event.view.get("effect") != "read"
    )


def _place(call: Call, view: dict[str, Tree]) -> None:
    """Where a call was made, as far as that is known."""
    if call.parent:
        view["parent"] = call.parent
    if call.task:
        view["task"] = call.task
    if call.guard:
        view["guard"] = call.guard
    if call.labels:
        view["labels"] = dict(call.labels)
