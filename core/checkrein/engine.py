"""The life of one call: bind, check, approve, commit the intent, execute, commit the outcome.

One `async def` engine for sync and async entries (see `_io`). Everything that must hold on
every road to a tool is here, in `execution` and `recording`, and nowhere else; adapters only
build an `Entry` and translate what comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from checkrein import billing
from checkrein._io import refuse_on_loop
from checkrein.call import Call, Outcome, new_call, new_outcome
from checkrein.checks import UNASKED, Checked, PreFold, denial, fold_denied, fold_post
from checkrein.codec import decode_arguments, encode_arguments, is_brief, is_flat
from checkrein.entry import CURRENT, OPTIONS, Entry, ended, inside, outermost, seen, undone_around
from checkrein.errors import Conflict, Denied, HoldRefused
from checkrein.execution import Execution
from checkrein.intents import Intents
from checkrein.journal import Journal
from checkrein.recording import Recording
from checkrein.store import Batch
from checkrein.telemetry import use
from checkrein.vetoes import changed_in_place, misfit, untouched

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.manager import Impl
    from checkrein.rein import Rein
    from checkrein.session import Session

__all__ = ["CURRENT", "OPTIONS", "Engine", "Entry", "inside", "outermost", "seen"]

_EMPTY: Mapping[str, str] = MappingProxyType({})
MOST_ATTEMPTS = 100
"""Of one run of a call: a plugin that always says Retry must not spend without end."""


class Engine:
    """Runs entries for one Rein."""

    def __init__(self, rein: Rein, journal: Journal) -> None:
        self.rein, self.journal, self.store = rein, journal, rein.store
        self.recording = Recording(rein, journal)
        self.execution = Execution(rein, journal, self.recording)
        self.commit = self.recording.commit
        self.intents = Intents(self)
        self.telemetry = rein.telemetry
        self.observe = rein.mode == "observe"
        self.ids = rein.ids
        self.take(rein.plugins.chains)

    def take(self, chains: Mapping[str, Sequence[Impl]]) -> None:
        """Use these hooks from the next call on."""
        self.pre = chains["pre_call"]
        self.post = chains["post_call"]
        self.denials = chains["on_denied"]
        self.external = any(impl.external for impl in self.pre)
        self.hooked = any(chains.values())
        self.chains = chains
        self.execution.take(chains)

    async def run(self, io: IO, entry: Entry) -> Outcome:
        """Run one entry to its end; raise what its caller has to see."""
        return seen(await self.outcome(io, entry))

    async def outcome(self, io: IO, entry: Entry) -> Outcome:
        """As `run`, but an error that the tool raised is in the outcome."""
        session = entry.session
        tool = entry.tool
        if CURRENT.get() is not None and undone_around() == session.id:
            # Part of an undo: let into a session that is closed, and never itself undone.
            entry.kind = "undo" if entry.kind == "tool" else entry.kind
            entry.admit, entry.fence = False, None
        if not io.is_async and (tool.is_async or entry.is_async):
            refuse_on_loop(f"{tool.info.name} is async, so it")
        tree = shown = entry.arguments
        private = entry.only_reads and not self.hooked and not session.pinned
        # Nobody but `run` sees private ones: a tree that its view shows whole stands for itself.
        flat = is_flat(tree) or (private and is_brief(tree))
        if not flat:
            tree = encode_arguments(entry.arguments, tool.opaque)
            shown = self._thaw(tree, entry, private)
        elif self.hooked or session.pinned:
            # What a plugin changes in place must reach neither the record nor the tool.
            shown = dict(tree)
        call = self._call(entry, shown) if entry.begun is None else entry.begun[0]
        if entry.keyed:
            earlier = await self.rein.recorded.earlier(io, entry, call, tree)
            if earlier is not None:
                return earlier
        span = None if entry.asks_only else self.telemetry.call(call)
        outcome: Outcome | None = None
        problem: BaseException | None = None
        try:
            try:
                if span is None:
                    outcome = await self._life(io, entry, call, tree, flat, None)
                else:
                    with use(span):
                        outcome = await self._life(io, entry, call, tree, flat, span)
            except Denied as denied:
                if not self.denials:
                    raise
                outcome = await self._instead(io, entry, call, denied)
                if outcome is None:
                    raise
            problem = outcome.error
            if self.denials and isinstance(problem, Denied) and problem.call_id == call.id:
                # A result that is withheld; what was done stays done.
                said = await self._instead(io, entry, call, problem)
                if said is not None:
                    outcome = outcome.replace(value=said.value, error=None, source=said.source)
                problem = outcome.error
            return outcome
        except BaseException as error:
            problem = error
            raise
        finally:
            if entry.asks_only and ended(outcome, problem):
                span = self.telemetry.call(call)
            if span is not None:
                self.telemetry.finish(span, outcome, problem, call)
            if session.rollback_wanted:
                await self.deferred(io, session, call.id)

    def _call(self, entry: Entry, shown: dict[str, Any]) -> Call:
        """The call of an entry, before anybody has looked at it."""
        tool, session = entry.tool, entry.session
        call_id = entry.call_id or self.ids.new()
        current = CURRENT.get()
        parent = entry.parent or (
            current[1] if current is not None and current[0] == session.id else ""
        )
        options = OPTIONS.get()
        return new_call(
            call_id, session.id, entry.kind, entry.name or tool.info.name, shown, tool.info,
            entry.agent or session.agent, entry.task or session.task, session.user, session.tenant,
            next(session.steps), parent, 1,
            {**session.labels, **entry.labels, **options.get("labels", _EMPTY)}
            if entry.labels or session.labels or options
            else _EMPTY,
            session.root, entry.guard,
        )  # fmt: skip

    async def deferred(self, io: IO, session: Session, call_id: str) -> None:
        """Roll back now what was asked for inside a call, if it was inside this one."""
        if session.rollback_wanted and session.rollback_by == call_id:
            await self.rein.rollbacks.deferred(io, session)

    def _thaw(self, tree: Mapping[str, Any], entry: Entry, own: bool = False) -> dict[str, Any]:
        """Exact arguments as fresh values: what a caller or plugin changes later is not seen."""
        got = entry.arguments
        return got if own else decode_arguments(tree, entry.tool.classes, got)

    async def _life(
        self, io: IO, entry: Entry, call: Call, tree: dict[str, Any], flat: bool, span: Any
    ) -> Outcome:
        """Check, approve and run until nothing asks for another attempt."""
        session = entry.session
        given, handed = tree, entry.arguments
        attempt = entry.tried + 1
        mark = f"{call.id}#{self.ids.new()}" if entry.keyed else call.id
        # In a sandbox nothing runs, whatever plugins are let say.
        lenient = (self.observe and session.sandbox is None) or entry.happened
        check = bool(self.pre or entry.asks or session.pinned or session.sandbox)
        checked: Checked | None = None
        deadline = 0.0
        tried = [call.name]
        while True:
            rewritten = False
            if check:
                checked = await self.check(io, entry, call, tree)
                for plugin, verdict in checked.notes:
                    self.telemetry.verdict(span, plugin, verdict)
                if checked.denied is not None and not lenient:
                    await self.refuse(io, entry, call, tree, checked.denied)
                if checked.call is not call and not lenient:
                    rewritten = checked.call.arguments is not call.arguments
                    call = checked.call
                if rewritten:
                    wrong = entry.tool.misfit(call.arguments) if entry.run is None else ""
                    if wrong:
                        await self.refuse(io, entry, call, tree, misfit(call, wrong))
                    entry.arguments = dict(call.arguments)
                    tree = encode_arguments(call.arguments, entry.tool.opaque)
                    flat = is_flat(tree)
            exact = tree if flat else self._thaw(tree, entry, entry.only_reads and not check)
            if check and checked is not None and not lenient:
                if not rewritten and not untouched(call.arguments, exact, tree, entry.tool.opaque):
                    await self.refuse(io, entry, call, tree, changed_in_place(call))
                if checked.asks:
                    granted = await self.rein.permissions.obtain(io, entry, call, tree, checked)
                    if granted is None:
                        return await self.rein.recorded.other(io, entry, call)
                    if granted.arguments is not None:
                        # Edited: what the approver wrote is checked like any other call.
                        tree = granted.arguments
                        flat = is_flat(tree)
                        call = call.replace(arguments=self._thaw(tree, entry))
                    if granted.ids != entry.approved:
                        # A person took their time: what holds now is asked once more.
                        entry.approved = granted.ids
                        continue
                if checked.answer is not None:
                    return await self._answer(io, entry, call, tree, checked)
            if entry.asks_only:
                return new_outcome("not_done", None, None, None, 0, "reported", 0.0, 0, "")
            timeout = self.execution.timeout(entry, call)
            if attempt != call.attempt:
                call = call.replace(attempt=attempt)
            waits = checked is not None and checked.waits and not lenient
            shares = waits and checked is not None and checked.shares
            change = self.store.changed() if waits else 0
            outcome: Outcome | None = None
            session.running.add(mark)
            try:
                try:
                    rows = await self.intents.commit(io, entry, call, tree, flat, checked, deadline)
                    if shares and await self._overtaken(io, entry, call, tree):
                        attempt += 1
                        check = True
                        continue
                except HoldRefused:
                    rows = None
                except Conflict:
                    if entry.grants and self.rein.grants.gone(entry):
                        continue  # revoked at this moment: the plugins ask again
                    if not entry.keyed and not entry.approved:
                        raise  # else somebody started this very call: its outcome is ours as well
                    rows, deadline = None, -1.0
                except BaseException as interrupted:
                    if not isinstance(interrupted, Exception):
                        self.recording.void(entry, call, interrupted)
                    raise
                if rows is not None:
                    entry.mark = mark
                    outcome = await self.execution.run(io, entry, call, tree, exact, timeout, rows)
            finally:
                if mark not in session.late:
                    session.running.discard(mark)
            if outcome is None:
                if deadline < 0:
                    return await self.rein.recorded.other(io, entry, call)
                deadline = await self.intents.freed(io, entry, call, change, deadline)
                check = True
                continue
            error = outcome.error
            if error is not None:
                if not isinstance(error, Exception):
                    raise error
                if isinstance(error, entry.signals):
                    return outcome
            if not self.post and session.pinned is None:
                return outcome
            outcome, again = await self.after(io, entry, call, outcome, tried)
            if again is None:
                return outcome
            attempt += 1
            entry.approved = ()
            check = isinstance(again, str) and bool(self.pre or session.pinned)
            if isinstance(again, str):
                # The whole chain runs again for the other model, on the request as it came.
                tried.append(again)
                entry.name, entry.arguments, entry.role = again, handed, "fallback"
                tree, flat = given, is_flat(given)
                call = call.replace(name=again, arguments=self._thaw(given, entry))
            else:
                await io.sleep(again)

    async def check(self, io: IO, entry: Entry, call: Call, tree: dict[str, Any]) -> Checked:
        """Fold `pre_call`."""
        if entry.session.pinned is not None:
            checked = await entry.session.pinned.check(self, io, entry, call, tree)
        elif not self.external:
            given = () if entry.begun is None or entry.begun[0] is not call else entry.begun[1]
            entry.begun = None
            checked = await PreFold(io, self.pre, self.rein.hook_timeout).run(call, given)
        else:
            recall, remember = self.rein.recorded.external(io, entry, call, tree)
            fold = PreFold(io, self.pre, self.rein.hook_timeout, recall, remember)
            checked = await fold.run(call)
        if entry.asks:
            checked.asks.extend(entry.asks)
        if entry.guard and checked.asks and checked.denied is None:
            # Nobody is asked about a question that only serves to decide about another call.
            checked.denied = denial(UNASKED, call, checked.asks[0][0])
        if entry.session.sandbox is not None:
            entry.session.sandbox.answer(entry, call, tree, checked)
        return checked

    async def _overtaken(self, io: IO, entry: Entry, call: Call, tree: dict[str, Any]) -> bool:
        """Whether a call that ran between our check and our intent has answered ours.

        While we run, nobody else can: the plugins are asked again, and may know the answer now.
        """
        checked = await self.check(io, entry, call, tree)
        if checked.answer is None and checked.denied is None:
            return False
        self.recording.void(entry, call, None)
        return True

    async def refuse(
        self, io: IO, entry: Entry, call: Call, tree: dict[str, Any], denied: Denied
    ) -> None:
        """Record a denial and raise it."""
        denied.session_id = call.session
        event = self.journal.denied(call, tree, denied)
        denied.reword(str(event.view["reason"]))
        await self.commit(io, Batch(call.session, (event,), event.at))
        raise denied

    async def _instead(self, io: IO, entry: Entry, call: Call, denied: Denied) -> Outcome | None:
        """What the caller gets instead of a refusal, if a plugin has something.

        The refusal stands as it is recorded: nothing runs. A plugin that fails changes nothing.
        """
        timeout = self.rein.hook_timeout
        found, notes = await fold_denied(io, self.denials, timeout, call, denied, self.rein.log)
        if found is not None:
            encoded = self.recording.encoded(entry, found)
            await self.recording.amend(io, call, self.journal.amended(call, found, encoded, notes))
        return found

    async def _answer(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        tree: dict[str, Any],
        checked: Checked,
    ) -> Outcome:
        assert checked.answer is not None
        plugin, answer = checked.answer
        outcome = new_outcome(
            "not_done", answer.value, None, None, 0, "reported", 0.0, 0, answer.source or plugin
        )
        event = self.journal.answered(
            call, tree, outcome, checked, self.recording.encoded(entry, outcome)
        )
        puts = self.recording.approval_puts(entry, "done", "approved")
        costs = billing.answer_rows(call, answer.saved)
        await self.commit(io, Batch(call.session, (event,), event.at, puts=puts, costs=costs))
        folded = await self.after(io, entry, call, outcome, None)
        return folded[0]

    async def after(
        self,
        io: IO,
        entry: Entry,
        call: Call,
        outcome: Outcome,
        tried: list[str] | None,
        begun: Sequence[Any] = (),
    ) -> tuple[Outcome, float | str | None]:
        """Fold `post_call`: (what the caller sees, delay of a retry or name of a fallback).

        `tried`: the models that were called; None where nothing ran, so nothing is repeated.
        """
        pinned = entry.session.pinned
        chain = self.post if pinned is None else (*self.post, *pinned.post)
        if not chain:
            return outcome, None
        folded = await fold_post(io, chain, self.rein.hook_timeout, call, outcome, begun)
        if self.observe:
            if folded.notes:
                event = self.journal.observed(call, folded.notes)
                await self.commit(io, Batch(call.session, (event,), event.at))
            return outcome, None
        if folded.unchecked:
            self.telemetry.unchecked(folded.unchecked)
            event = self.journal.event("unchecked", call.id, unchecked=folded.unchecked)
            await self.recording.amend(io, call, event)
        if tried is not None and not entry.happened:
            retry, fallback = folded.retry, folded.fallback
            again = call.attempt - entry.tried < MOST_ATTEMPTS and (
                entry.kind == "model" or entry.tool.info.idempotent
            )
            if retry is not None and again:
                # A pause would stop a running loop: the sync caller there gets what it has.
                if io.can_wait() or retry.after == 0:
                    return outcome, float(retry.after)
            if fallback is not None and entry.kind == "model" and fallback.model not in tried:
                return outcome, fallback.model
        if folded.changed:
            if isinstance(folded.outcome.error, Denied):
                error = folded.outcome.error
                error.reword(str(self.journal.view(call, error.reason, "journal")))
            encoded = self.recording.encoded(entry, folded.outcome)
            event = self.journal.amended(call, folded.outcome, encoded, folded.notes)
            await self.recording.amend(io, call, event)
        # A review that says no undoes the action: of an undo there is nothing to review.
        if folded.asks and tried is not None and entry.kind != "undo":
            await self.rein.permissions.after(io, entry, call, folded)
        return folded.outcome, None
