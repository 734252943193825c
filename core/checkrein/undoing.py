"""Undoing one effect: probe where it is in doubt, run the stored plan, never guess."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from checkrein import accounts, codec
from checkrein.call import Absent, Call, Outcome, Present, ToolInfo
from checkrein.checks import HookFailed, run_hook
from checkrein.effects import Effect, payload_of
from checkrein.engine import Entry
from checkrein.errors import CheckreinError, Denied, InDoubt, StoreUnavailable, Unencodable
from checkrein.store import Batch, SettleRow
from checkrein.tools import Tool
from checkrein.undo import NotUndoable
from checkrein.verdicts import Cause, Skip, Undo

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.rein import Rein

Status = Literal[
    "undone", "absent", "kept", "not_undoable", "in_doubt", "needs_human", "failed", "planned"
]
LEFT: tuple[Status, ...] = ("kept", "not_undoable", "in_doubt", "needs_human", "failed")
"""Statuses that leave an effect, or may leave one."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a rollback did about one call."""

    call: str
    name: str
    session: str
    status: Status
    detail: str = ""
    wait: float = 0.0
    """Seconds until a probe's answer is final, for `in_doubt`."""


class Undoing:
    """Undoes single effects, for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store

    # -- what is known

    def call_of(self, effect: Effect) -> tuple[Call, dict[str, Any]]:
        """The call as it was made, with its exact arguments where they are still kept."""
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

    async def probe(self, io: IO, effect: Effect) -> Present | Absent | None:
        """Ask whether the effect is in place now; None where nobody can tell."""
        tool = self.rein.tools.get(effect.name)
        probe = tool.probe if tool is not None else None
        if probe is None or probe.fn is None:
            return None
        try:
            call, arguments = self.call_of(effect)
        except CheckreinError as error:
            self.rein.log.warning("probe of %s: %s", effect.name, error)
            return None
        given = {**arguments, "result": None, "call": call, "key": f"{effect.call}.undo"}
        wanted = {n: given[n] for n in probe.parameters if n in given}
        args, kwargs = probe.spread(wanted)
        fn = probe.fn
        try:
            answer = await io.call(
                lambda: fn(*args, **kwargs), timeout=None, is_async=probe.is_async, late=_no_late
            )
        except Exception as error:
            # A probe that fails cannot tell; that is what its caller must know.
            self.rein.log.warning("probe of %s raised %s", effect.name, type(error).__name__)
            return None
        if answer is True:
            return Present()
        if answer is False:
            return Absent()
        return answer if isinstance(answer, (Present, Absent)) else None

    def settling(self, effect: Effect, since: int) -> float:
        """Seconds until a probe's answer about something begun at `since` is final."""
        tool = self.rein.tools.get(effect.name)
        settle = tool.info.settle_time if tool is not None else 30.0
        return max(0.0, settle - (self.rein.clock() - since) / 1e6)

    # -- undoing

    async def undo(
        self, io: IO, effect: Effect, cause: Cause, fence: int | None, *, dry_run: bool = False
    ) -> Action:
        """Take one effect back, or say why it stays."""
        if effect.undone:
            return self._action(effect, "undone", "already")
        if effect.state == "not_done":
            return self._action(effect, "absent", "it had no effect")
        if dry_run:
            return self._planned(effect)
        doubt = effect.undo_in_doubt
        if doubt is not None:
            found = await self._undo_in_doubt(io, effect, doubt.at, fence)
            if found is not None:
                return found
        elif effect.state == "unknown":
            found = await self._call_in_doubt(io, effect, fence)
            if found is not None:
                return found
        plan, why = await self._stored_plan(io, effect, cause, fence)
        if plan is None:
            return self._action(effect, "kept" if effect.skipped else "not_undoable", why)
        return await self._run(io, effect, plan, fence)

    def _action(self, effect: Effect, status: Status, detail: str = "", wait: float = 0.0) -> Action:
        return Action(effect.call, effect.name, effect.session, status, detail, wait)

    def _planned(self, effect: Effect) -> Action:
        if effect.state == "unknown" or effect.undo_in_doubt is not None:
            return self._action(effect, "in_doubt", "its effect is unknown: it will be probed")
        plan = payload_of(self.store, effect.plan_seq) if effect.plan_seq else None
        if plan is None:
            return self._action(effect, "not_undoable", effect.why_not or "no undo is declared")
        return self._action(effect, "planned", str(plan["plan"]["undo"]))

    async def _call_in_doubt(self, io: IO, effect: Effect, fence: int | None) -> Action | None:
        """None: go on and undo it."""
        tool = self.rein.tools.get(effect.name)
        answer = await self.probe(io, effect)
        if isinstance(answer, Absent):
            wait = self.settling(effect, effect.last_at)
            if wait > 0:
                return self._action(effect, "in_doubt", "not there yet; it may still land", wait)
            await self.resolve(io, effect, "not_done", fence)
            return self._action(effect, "absent", "the probe found no effect")
        if isinstance(answer, Present):
            await self.resolve(io, effect, "done", fence, result=answer.result)
            return None
        if tool is not None and tool.info.undo_safe_to_repeat:
            return None
        return await self._human(io, effect, fence, "nobody can tell whether it took effect")

    async def _undo_in_doubt(
        self, io: IO, effect: Effect, begun: int, fence: int | None
    ) -> Action | None:
        tool = self.rein.tools.get(effect.name)
        answer = await self.probe(io, effect)
        if isinstance(answer, Absent):
            wait = self.settling(effect, effect.last_at) if effect.state == "unknown" else 0.0
            if wait > 0:
                return self._action(effect, "in_doubt", "not there now; it may still land", wait)
            await self.resolve(io, effect, "undone", fence)
            return self._action(effect, "undone", "the probe found it gone")
        if isinstance(answer, Present):
            wait = self.settling(effect, begun)
            if wait > 0:
                return self._action(effect, "in_doubt", "an undo may still land", wait)
            return None
        if tool is not None and tool.info.undo_safe_to_repeat:
            return None
        return await self._human(io, effect, fence, "nobody can tell whether its undo worked")

    async def _human(self, io: IO, effect: Effect, fence: int | None, why: str) -> Action:
        event = self.rein.journal.event("needs_human", effect.call, name=effect.name, why=why)
        await io.commit(Batch(effect.session, (event,), event.at, fence))
        return self._action(effect, "needs_human", why)

    async def resolve(
        self, io: IO, effect: Effect, state: str, fence: int | None, *, result: Any = None
    ) -> None:
        """Record what a probe found out, and settle what the call still holds."""
        view: dict[str, Any] = {"state": state, "by": "probe"}
        payload: dict[str, Any] = {}
        if state == "done":
            payload, view = self._found(effect, result, view)
            effect.why_not = str(view.get("not_undoable", ""))
        # What could not be measured is charged in full; what had no effect is given back.
        known = Outcome("not_done" if state == "not_done" else "unknown")
        settles = [
            SettleRow(hold.id, accounts.actual(hold, known))
            for hold in self.store.holds(call=effect.call)
        ]
        event = self.rein.journal.event("resolved", effect.call, payload or None, **view)
        batch = Batch(effect.session, (event,), event.at, fence, settles=settles)
        committed = await io.commit(batch)
        self.rein.notify(committed, batch)
        if "plan" in view:
            effect.plan_seq = committed.seq
        if state != "undone":
            effect.state = "done" if state == "done" else "not_done"

    def _found(
        self, effect: Effect, result: Any, view: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The plan of a call whose result a probe brought back."""
        tool = self.rein.tools.get(effect.name)
        payload: dict[str, Any] = {}
        try:
            if result is not None:
                payload["result"] = codec.encode(result, "result")
            if tool is not None and tool.undo is not None:
                _, arguments = self.call_of(effect)
                bound = (
                    tool.undo.bind(arguments, result)
                    if result is not None
                    else tool.undo.bind(arguments)
                )
                payload["plan"] = {"undo": tool.undo.name, "arguments": codec.encode_arguments(bound)}
                view["plan"] = tool.undo.name
        except (NotUndoable, Unencodable) as error:
            view["not_undoable"] = str(error)
        return payload, view

    async def _stored_plan(
        self, io: IO, effect: Effect, cause: Cause, fence: int | None
    ) -> tuple[dict[str, Any] | None, str]:
        stored = payload_of(self.store, effect.plan_seq) if effect.plan_seq else None
        plan = stored["plan"] if stored is not None else None
        why = effect.why_not or "no undo is declared"
        if effect.plan_seq and stored is None:
            why = "its undo plan was erased"
        tool = self.rein.tools.get(effect.name)
        if plan is None and tool is not None and tool.undo is not None:
            try:
                _, arguments = self.call_of(effect)
                bound = tool.undo.bind(arguments)
                plan = {"undo": tool.undo.name, "arguments": codec.encode_arguments(bound)}
            except (NotUndoable, CheckreinError) as error:
                why = str(error)
        if not self.rein.plugins.chains["on_rollback"]:
            return plan, why
        call, _ = self.call_of(effect)
        outcome = Outcome(effect.state)
        for impl in self.rein.plugins.chains["on_rollback"]:
            try:
                verdict = await run_hook(io, impl, self.rein.hook_timeout, call, outcome, cause)
            except HookFailed as error:
                # A hook that fails must not keep a stored plan from running.
                self.rein.log.error("%s", error)
                continue
            if isinstance(verdict, Skip):
                event = self.rein.journal.event(
                    "undo_skipped", effect.call, reason=verdict.reason, plugin=impl.plugin
                )
                await io.commit(Batch(effect.session, (event,), event.at, fence))
                effect.skipped = verdict.reason
                return None, verdict.reason
            if isinstance(verdict, Undo) and plan is None:
                try:
                    given = codec.encode_arguments(verdict.arguments)
                except Unencodable as error:
                    return None, str(error)
                return {"undo": verdict.name, "arguments": given}, ""
        return plan, why

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
            except (HookFailed, Unencodable) as error:
                return None, str(error)
        return None, ""

    async def _run(
        self, io: IO, effect: Effect, plan: dict[str, Any], fence: int | None
    ) -> Action:
        name = str(plan["undo"])
        tool = self.rein.tools.get(name)
        if tool is None or tool.fn is None:
            return self._action(
                effect, "failed",
                f"its undo {name} is not declared in this process; name the application that "
                "declares it (--app module:rein)",
            )  # fmt: skip
        number = len(effect.attempts)
        problem = ""
        for attempt in range(self.rein.undo_tries):
            if attempt:
                await io.pause(0.05 * 2**attempt)
            number += 1
            try:
                entry = self._entry(effect, tool, plan, number, fence)
                outcome = await self.rein.engine.outcome(io, entry)
            except (Denied, InDoubt, StoreUnavailable, Unencodable, ValueError) as error:
                return self._action(effect, "failed", f"{name}: {error}")
            if outcome.state == "done":
                return self._action(effect, "undone", name)
            problem = type(outcome.error).__name__
            answer = await self.probe(io, effect)
            if isinstance(answer, Absent):
                await self.resolve(io, effect, "undone", fence)
                return self._action(effect, "undone", f"{name} raised {problem}, and it is gone")
        return self._action(
            effect, "failed", f"{name} raised {problem} in {self.rein.undo_tries} tries"
        )

    def _entry(
        self, effect: Effect, tool: Tool, plan: dict[str, Any], number: int, fence: int | None
    ) -> Entry:
        arguments = codec.decode_arguments(plan["arguments"], tool.classes, {})
        names = list(tool.parameters)
        for key in [k for k in arguments if k.startswith("$")]:
            arguments[names[int(key[1:])]] = arguments.pop(key)
        if "key" in names:
            arguments["key"] = f"{effect.call}.undo"
        if "call" in names:
            arguments["call"] = self.call_of(effect)[0]
            if "call" not in tool.opaque:
                info = dataclasses.replace(tool.info, opaque=(*tool.info.opaque, "call"))
                tool = Tool(info, tool.fn)
        return Entry(
            tool=tool,
            arguments=tool.complete(arguments),
            session=self.rein.rollbacks.session_of(effect.session),
            kind="undo",
            call_id=f"{effect.call}.undo.{number}",
            parent=effect.call,
            wait="block",
            admit=False,
            fence=fence,
        )


def _no_late(future: Any) -> None:
    """Probes have no timeout of their own."""
