"""Undoing one effect: probe where it is in doubt, run the stored plan, never guess."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, Any

from checkrein import codec
from checkrein.call import Absent, Call, Outcome, Present
from checkrein.effects import Attempt, Effect, payload_of
from checkrein.engine import Entry
from checkrein.errors import (
    ApprovalExpired,
    ApprovalPending,
    ApprovalRejected,
    CheckreinError,
    ConfigError,
    DuplicateIntent,
    FencedOut,
    InDoubt,
    PayloadUnreadable,
    SessionClosed,
    StoreUnavailable,
    Undecodable,
    Unencodable,
)
from checkrein.judging import HookFailed, run_hook
from checkrein.probing import Probing
from checkrein.report import Action, Status
from checkrein.store import Batch
from checkrein.tool import Tool
from checkrein.undo import MISSING, NotUndoable
from checkrein.verdicts import Cause, Skip, Undo

if TYPE_CHECKING:
    from checkrein._io import IO

ALREADY = "already"
"""Detail of an effect that was undone before."""


def _undeclared(effect: Effect) -> str:
    """Why there is no plan."""
    said = str(effect.intent.view.get("irreversible", ""))
    return f"irreversible: {said}" if said else "no undo is declared"


class Undoing(Probing):
    """Undoes single effects, for one Rein."""

    async def undo(
        self, io: IO, effect: Effect, cause: Cause, fence: int | None, *, dry_run: bool = False
    ) -> Action:
        """Take one effect back, or say why it stays.

        Raises `SessionClosed` or `FencedOut` where somebody else took the session over, and
        `StoreUnavailable`; whatever else goes wrong is told in the action.
        """
        if effect.undone and not self._may_have_landed_again(effect):
            return self._action(effect, "undone", ALREADY)
        if effect.state == "not_done":
            return self._action(effect, "absent", "it had no effect")
        try:
            if dry_run:
                return self._planned(effect)
            return await self._undo(io, effect, cause, fence)
        except PayloadUnreadable as error:
            # Damaged or altered: this one stays, and the others are undone all the same.
            return self._action(effect, "failed", str(error))
        except (StoreUnavailable, SessionClosed, FencedOut):
            raise
        except CheckreinError as error:
            return self._action(effect, "failed", str(error))
        except Exception as error:
            # One effect that cannot be handled must not keep the others from being undone.
            self.rein.log.exception("undo of %s %s", effect.name, effect.call)
            return self._action(effect, "failed", f"its undo met {type(error).__name__}")

    async def _undo(self, io: IO, effect: Effect, cause: Cause, fence: int | None) -> Action:
        effect.skipped = ""
        plan, why = await self._stored_plan(io, effect, cause, fence)
        if effect.skipped:
            return self._action(effect, "kept", why)
        found: Action | None = None
        if effect.undo_in_doubt is not None:
            found = await self._undo_in_doubt(io, effect, effect.undo_in_doubt.at, fence)
        elif effect.state == "unknown":
            found = await self._call_in_doubt(io, effect, fence)
            if found is None and effect.result_seq:
                # What the probe brought back may complete the plan.
                plan, why = await self._stored_plan(io, effect, cause, fence)
        if found is not None:
            return found
        if plan is None:
            return self._action(effect, "not_undoable", why)
        return await self._run(io, effect, plan, fence)

    def _action(
        self, effect: Effect, status: Status, detail: str = "", wait: float = 0.0
    ) -> Action:
        # A report may name a hundred thousand: names that repeat are kept once.
        name, session = intern(effect.name), intern(effect.session)
        return Action(effect.call, name, session, status, intern(detail), wait)

    def kept(self, effect: Effect, why: str) -> Action:
        """What became of an effect that was not to be undone."""
        if effect.undone:
            return self._action(effect, "undone", ALREADY)
        if effect.state == "not_done":
            return self._action(effect, "absent", "it had no effect")
        return Action(effect.call, effect.name, effect.session, "kept", why, asked=False)

    def _planned(self, effect: Effect) -> Action:
        if effect.state == "unknown" or effect.undo_in_doubt is not None:
            return self._action(effect, "in_doubt", "its effect is unknown: it will be probed")
        plan = payload_of(self.store, effect.plan_seq) if effect.plan_seq else None
        if plan is None or "plan" not in plan:
            why = "its undo plan is not kept any more" if effect.plan_seq else effect.why_not
            return self._action(effect, "not_undoable", why or _undeclared(effect))
        return self._action(effect, "planned", str(plan["plan"]["undo"]))

    def _may_have_landed_again(self, effect: Effect) -> bool:
        """An undo that ran before the call's settle time was over, without knowing more."""
        if effect.state != "unknown" or not self.safe(effect) or not effect.attempts:
            return False
        tool = self.rein.tools.get(effect.name)
        settle = tool.info.settle_time if tool is not None else 0.0
        return effect.attempts[-1].at < effect.intent.at + settle * 1e6

    async def _call_in_doubt(self, io: IO, effect: Effect, fence: int | None) -> Action | None:
        """None: go on and undo it."""
        answer = await self.probe(io, effect)
        if isinstance(answer, Absent):
            wait = self.settling(effect, effect.intent.at)
            if wait > 0:
                return self._action(effect, "in_doubt", "not there yet; it may still land", wait)
            await self.resolve(io, effect, "not_done", fence)
            return self._action(effect, "absent", "the probe found no effect")
        if isinstance(answer, Present):
            await self.resolve(io, effect, "done", fence, result=answer.result)
            return None
        if self.safe(effect):
            return None
        return await self.needs_human(io, effect, fence, "nobody can tell whether it took effect")

    async def _undo_in_doubt(
        self, io: IO, effect: Effect, begun: int, fence: int | None
    ) -> Action | None:
        """None: go on and undo it again."""
        answer = await self.probe(io, effect)
        if isinstance(answer, Absent):
            wait = self.settling(effect, effect.intent.at) if effect.state == "unknown" else 0.0
            if wait > 0:
                return self._action(effect, "in_doubt", "not there now; it may still land", wait)
            await self.resolve(io, effect, "undone", fence)
            return self._action(effect, "undone", "the probe found it gone")
        if isinstance(answer, Present):
            wait = self.settling(effect, begun)
            if wait > 0:
                return self._action(effect, "in_doubt", "an undo may still land", wait)
            return None
        if self.safe(effect):
            return None
        return await self.needs_human(io, effect, fence, "nobody can tell whether its undo worked")

    async def needs_human(self, io: IO, effect: Effect, fence: int | None, why: str) -> Action:
        """Record that a person has to look."""
        event = self.rein.journal.event("needs_human", effect.call, name=effect.name, why=why)
        await self._tell(io, Batch(effect.session, (event,), event.at, fence))
        return self._action(effect, "needs_human", why)

    async def _declined(
        self, io: IO, effect: Effect, fence: int | None, refused: ApprovalRejected | ApprovalExpired
    ) -> Action:
        """Record that a person did not let it be undone: the effect stays as it is."""
        event = self.rein.journal.event(
            "undo_declined", effect.call, name=effect.name, why=refused.reason
        )
        await self._tell(io, Batch(effect.session, (event,), event.at, fence))
        return self._action(effect, "declined", refused.reason)

    async def _tell(self, io: IO, batch: Batch) -> None:
        self.rein.observers.notify(await io.commit(batch), batch)

    async def _stored_plan(
        self, io: IO, effect: Effect, cause: Cause, fence: int | None
    ) -> tuple[dict[str, Any] | None, str]:
        """The plan as it was stored, or one made now; a plugin may supply or skip it."""
        plan, why = self._known_plan(effect)
        if not self.rein.plugins.chains["on_rollback"]:
            return plan, why
        call, _ = self.call_of(effect)
        try:
            result = self.result_of(effect)
        except Undecodable:
            # A hook can do without: it sees a value only where there is one.
            result = MISSING
        outcome = Outcome(effect.state, None if result is MISSING else result)
        for impl in self.rein.plugins.chains["on_rollback"]:
            try:
                verdict = await run_hook(io, impl, self.rein.hook_timeout, call, outcome, cause)
            except HookFailed as error:
                # A hook that fails must not keep a stored plan from running.
                self.rein.log.error("%s", error)
                continue
            if isinstance(verdict, Skip):
                why = str(self.rein.journal.view(call, verdict.reason, "journal"))
                event = self.rein.journal.event(
                    "undo_skipped", effect.call, reason=why, plugin=impl.plugin
                )
                await io.commit(Batch(effect.session, (event,), event.at, fence))
                effect.skipped = why or "skipped"
                return None, why
            if isinstance(verdict, Undo) and plan is None:
                try:
                    given = codec.encode_arguments(verdict.arguments)
                except Unencodable as error:
                    return None, str(error)
                plan = {"undo": verdict.name, "arguments": given}
        return plan, why

    def _known_plan(self, effect: Effect) -> tuple[dict[str, Any] | None, str]:
        stored = payload_of(self.store, effect.plan_seq) if effect.plan_seq else None
        if stored is not None and "plan" in stored:
            return stored["plan"], ""
        why = effect.why_not or _undeclared(effect)
        if effect.plan_seq:
            why = "its undo plan is not kept any more"
        tool = self.rein.tools.get(effect.name)
        if tool is None:
            return None, f"{why}; {effect.name} is not declared in this process"
        if tool.undo is None:
            return None, why
        try:
            _, arguments = self.call_of(effect)
            before = self.before_of(effect)
            return tool.undo.stored(arguments, self.result_of(effect), before), ""
        except (NotUndoable, CheckreinError) as error:
            return None, effect.why_not or str(error)

    async def supplied(
        self, io: IO, call: Call, outcome: Outcome, cause: Cause
    ) -> tuple[dict[str, Any] | None, str]:
        """A plan from the `on_rollback` plugins, for a tool without an undo of its own."""
        for impl in self.rein.plugins.chains["on_rollback"]:
            try:
                verdict = await run_hook(io, impl, self.rein.hook_timeout, call, outcome, cause)
                if isinstance(verdict, Undo):
                    given = codec.encode_arguments(verdict.arguments)
                    return {"undo": verdict.name, "arguments": given}, ""
            except (HookFailed, CheckreinError) as error:
                # The effect has happened: at rollback the plugins are asked again.
                return None, str(error)
        return None, ""

    async def _run(self, io: IO, effect: Effect, plan: dict[str, Any], fence: int | None) -> Action:
        name = str(plan["undo"])
        tool = self.rein.tools.get(name)
        if tool is None or tool.fn is None:
            return self._action(
                effect, "failed",
                f"its undo {name} is not declared in this process; name the application that "
                "declares it (--app module:rein)",
            )  # fmt: skip
        if tool.is_async:
            io.may_wait(f"the undo {name}, which is async,")
        problem = ""
        for attempt in range(self.rein.undo_tries):
            if attempt:
                await io.pause(0.05 * 2**attempt)
            number = len(effect.attempts) + 1
            try:
                entry = self._entry(effect, tool, plan, number, fence)
                begun = self.rein.clock()
                outcome = await self.rein.engine.outcome(io, entry)
            except ApprovalPending as error:
                # A rollback does not stand still for a person: `resume` goes on with it.
                return self._action(effect, "waiting", f"its undo waits for {error.token}")
            except DuplicateIntent:
                return self._action(effect, "in_doubt", "another process undoes it just now", 1.0)
            except InDoubt as error:
                return self._action(effect, "in_doubt", f"{name}: {error}")
            except (ApprovalRejected, ApprovalExpired) as refused:
                return await self._declined(io, effect, fence, refused)
            if outcome.state == "done":
                wait = self._again_in(effect)
                if wait > 0:
                    return self._action(
                        effect, "in_doubt", "undone; the call may still land, then it is repeated",
                        wait,
                    )  # fmt: skip
                return self._action(effect, "undone", name)
            if outcome.error is None:
                why = f"{outcome.source} answered {name}: it did not run"
                return self._action(effect, "failed", why)
            raised = outcome.state == "unknown" and not isinstance(outcome.error, TimeoutError)
            effect.attempts.append(Attempt(entry.call_id, begun, outcome.state, raised))
            problem = type(outcome.error).__name__
            if outcome.state == "not_done":
                continue
            if not raised:
                found = await self._undo_in_doubt(io, effect, begun, fence)
                if found is not None:
                    return found
                continue
            if isinstance(await self.probe(io, effect), Absent):
                wait = self.settling(effect, effect.intent.at) if effect.state == "unknown" else 0.0
                if wait <= 0:
                    await self.resolve(io, effect, "undone", fence)
                    return self._action(effect, "undone", f"{name} raised {problem}; it is gone")
        return self._action(
            effect, "failed", f"{name} raised {problem} in {self.rein.undo_tries} tries"
        )

    def _again_in(self, effect: Effect) -> float:
        """Seconds until an undo of a call in doubt can be repeated for good."""
        if effect.state != "unknown" or not self.safe(effect):
            return 0.0
        return self.settling(effect, effect.intent.at)

    def _entry(
        self, effect: Effect, tool: Tool, plan: dict[str, Any], number: int, fence: int | None
    ) -> Entry:
        """The undo as a call. Raises `ConfigError`, `Undecodable` where it does not fit here."""
        acted = self.rein.tools.get(effect.name)
        classes = {**(acted.classes if acted is not None else {}), **tool.classes}
        arguments = codec.decode_arguments(plan["arguments"], classes, {})
        for place in [k for k in arguments if k.startswith("$")]:
            index = int(place[1:])
            if index >= len(tool.positional):
                raise ConfigError(
                    f"undo {tool.info.name} takes {len(tool.positional)} arguments by position; "
                    "the stored plan has more"
                )
            arguments[tool.positional[index]] = arguments.pop(place)
        inject = dict(plan.get("inject", {}))
        if plan.get("loose"):
            arguments = {n: v for n, v in arguments.items() if n in tool.parameters}
            inject = {n: n for n in ("call", "key") if n in tool.parameters}
        for parameter, what in inject.items():
            arguments[parameter] = (
                f"{effect.call}.undo" if what == "key" else self.call_of(effect)[0]
            )
            if what == "call":
                tool = tool.passing((parameter,))
        missing = tool.required - arguments.keys()
        if missing:
            raise ConfigError(
                f"undo {tool.info.name} takes {min(missing)!r}, which the stored plan does "
                "not have; was it declared otherwise when the call ran?"
            )
        return Entry(
            tool=tool,
            arguments=tool.complete(arguments),
            session=self.rein.rollbacks.session_of(effect.session),
            kind="undo",
            call_id=f"{effect.call}.undo.{number}",
            parent=effect.call,
            wait=self._wait(effect),
            admit=False,
            fence=fence,
        )

    def _wait(self, effect: Effect) -> str:
        """Block or suspend where a plugin asks about an undo."""
        wait = self.rein.rollbacks.session_of(effect.session).wait
        if wait != "auto":
            return wait
        return "suspend" if self.rein.answer_from_store else "block"
