"""Running the one call that waited for an approval, by its token, once."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from checkrein import codec, owner
from checkrein.call import Call
from checkrein.definition import differences, parts
from checkrein.effects import effect_of
from checkrein.entry import Entry
from checkrein.errors import ApprovalPending, ConfigError, Conflict, InDoubt, SessionClosed
from checkrein.questions import refusal_of
from checkrein.store import Batch, Put, Record
from checkrein.undo import is_generator

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.rein import Rein
    from checkrein.report import Action
    from checkrein.tool import Tool
    from checkrein.verdicts import Cause


class Resuming:
    """Resumes the calls of one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store
        self.approvals = rein.approvals

    async def run(self, io: IO, token: str) -> Any:
        """Run the call that waited for `token`, once; everybody else gets its outcome."""
        deadline = time.monotonic() + self.rein.hold_wait
        while True:
            record = self.approvals.fresh(token)
            await self._refuse(io, record)
            if record.body["kind"] == "undo":
                return await self._undo(io, record, deadline)
            entry = self._entry(record)
            left = record.state != "approved" and self._left(record)
            if (record.state != "approved" and not left) or record.body["kind"] == "after":
                found = await self.rein.recorded.other(io, entry, _call_of(entry, record))
                return found.value
            try:
                session = self.rein.lifecycle.take(record.session)
            except Conflict:
                continue  # somebody was faster by a moment
            except SessionClosed:
                if record.state != "done":
                    raise
                return (await self.rein.recorded.other(io, entry, _call_of(entry, record))).value
            if session is None:
                # Its owner may be running this very call; a session that is over is refused.
                moved = self._moves(token, record.session)
                if not await io.wait(moved, deadline, f"the owner of session {record.session}"):
                    raise self.rein.lifecycle.busy(record.session)
                continue
            try:
                entry.session = session
                entry.approved = (token,)
                with session.in_span():
                    return (await self.rein.engine.run(io, entry)).value
            except InDoubt as error:
                if left:
                    self._report(record, error)
                raise
            finally:
                self.rein.lifecycle.put_back(session)

    async def _refuse(self, io: IO, record: Record) -> None:
        """Raise what stands in the way of resuming."""
        call, name = record.body["call"], record.body["tool"]
        if record.state == "pending":
            raise ApprovalPending(record.id, call_id=call, tool=name)
        if record.state in ("rejected", "expired", "void"):
            if record.body["kind"] == "after" and record.state == "rejected":
                await self.rein.rollbacks.one(io, call, "rejected")
            error = refusal_of(record)
            row = self.store.session(record.session)
            recovery = self.rein.recovery
            if row is not None and row.state == "ACTIVE" and not self.rein.rollbacks.alive(row):
                refused = recovery.refused(row.id)
                if refused is not None and refused.id == record.id:
                    # Nobody is left to handle the refusal: the session fails of it.
                    report = await recovery.fail(io, row, refused)
                    if report is not None and report.actions:
                        error.add_note(f"checkrein: session {row.id}: {report.summary()}")
            raise error

    async def _undo(self, io: IO, record: Record, deadline: float) -> Action:
        """Go on with the rollback whose undo was approved; what became of that effect."""
        kept = self.approvals.kept(record)
        acted = str(kept["parent"])
        if kept["kind"] != "undo" or not record.body["call"].startswith(f"{acted}.undo."):
            raise ConfigError(
                f"approval {record.id}: {record.body['tool']} was called inside an undo, which "
                "waits for it itself; run the rollback again"
            )
        if effect_of(self.store, acted) is None:
            raise Conflict(f"approval {record.id}: {acted} is no effect that is recorded")
        while True:
            row = self.store.session(record.session)
            try:
                if row is not None and row.rollback != "none":
                    cause: Cause = "explicit"
                    report = await self.rein.rollbacks.run(io, record.session, cause=cause)
                    return next(a for a in report.actions if a.call == acted)
                action = await self.rein.rollbacks.one(io, acted, "explicit")
                if action is not None and (
                    action.status != "in_doubt" or self._state(record.id) == "done"
                ):
                    return action
            except Conflict:
                if time.monotonic() > deadline:
                    raise
            # Somebody else takes it back at this moment.
            await io.sleep(0.05)

    def _entry(self, record: Record) -> Entry:
        """The recorded call, as it was approved. Raises `ConfigError`, `Conflict`."""
        name = record.body["tool"]
        kept = self.approvals.kept(record)
        tool = self.rein.tools.get(name)
        if kept["kind"] != "tool" or tool is None or tool.fn is None:
            raise ConfigError(
                f"approval {record.id}: {name} is not a tool of this process; name the application "
                "that declares it (--app module:rein), or resume through its framework's adapter"
            )
        if name in self.rein.tools.ambiguous:
            raise ConfigError(
                f"approval {record.id}: several functions are called {name}; declare the one that "
                "is meant with rein.tool(name=...)"
            )
        if record.body["tool_digest"] != tool.info.digest():
            hint = "; resume a framework's run through its adapter" if record.body["keyed"] else ""
            changed = "; ".join(differences(kept.get("definition"), parts(tool.info)))
            raise Conflict(
                f"approval {record.id} is void here: {name} is defined otherwise in this process "
                f"than where it was asked about ({changed or 'how is not kept'}){hint}"
            )
        arguments = (
            kept["arguments"]
            if record.state in ("pending", "rejected", "expired", "void")
            else self.approvals.approved(record, kept)
        )
        wrong = tool.misfit(arguments)
        if wrong:
            raise Conflict(
                f"approval {record.id} is void: {name} is another function now ({wrong})"
            )
        entry = Entry(
            tool,
            codec.decode_arguments(arguments, tool.classes, {}),
            self.rein.session(id=record.session),
            call_id=record.body["call"],
            keyed=True,
            parent=kept["parent"],
            task=kept["task"],
            labels=kept["labels"],
        )
        if is_generator(tool.fn):
            # Nobody is left who would take its items one by one: all of them are the result.
            entry.run = _all_of(tool)
            entry.is_async = inspect.isasyncgenfunction(tool.fn)
        return entry

    def _left(self, record: Record) -> bool:
        """Whether whoever used the approval left the call, or its session, as it was."""
        row = self.store.session(record.session)
        if row is None or row.state != "ACTIVE" or row.rollback != "none":
            return False
        if not row.owner:
            return record.state == "started"
        return not owner.alive(self.store.owner(row.owner), self.rein.clock())

    def _report(self, record: Record, error: InDoubt) -> None:
        """Nobody can tell whether the call took effect: `recover`, or a person, goes on with it."""
        event = self.rein.journal.event(
            "needs_human", record.body["call"], name=record.body["tool"], why=str(error)
        )
        puts = (Put("doubt", record.session, "open", {}, record.session),)
        batch = Batch(record.session, (event,), event.at, puts=puts)
        self.rein.observers.notify(self.store.commit(batch), batch)

    def _moves(self, token: str, session: str) -> Callable[[], bool]:
        """Tells whether the approval was used, or its session got another owner, from now on."""
        fence = self._fence(session)
        return lambda: self._state(token) != "approved" or self._fence(session) != fence

    def _state(self, token: str) -> str:
        record = self.store.record("approval", token)
        return "" if record is None else record.state

    def _fence(self, session: str) -> tuple[str, int]:
        """Who owns a session, in a form that changes with the owner."""
        row = self.store.session(session)
        if row is None or not row.owner:
            return "", 0
        alive = owner.alive(self.store.owner(row.owner), self.rein.clock())
        return (row.owner if alive else ""), row.fence


def _all_of(tool: Tool) -> Callable[[Call, dict[str, Any]], Any]:
    """A generator, run to its end: what it gave."""
    made: Any = tool.fn

    def run(_: Call, exact: dict[str, Any]) -> Any:
        args, kwargs = tool.spread(exact)
        if not inspect.isasyncgenfunction(made):
            return list(made(*args, **kwargs))

        async def later() -> list[Any]:
            return [item async for item in made(*args, **kwargs)]

        return later()

    return run


def _call_of(entry: Entry, record: Record) -> Call:
    arguments: Mapping[str, Any] = entry.arguments
    return Call(
        record.body["call"], record.session, "tool", record.body["tool"], arguments,
        entry.tool.info,
    )  # fmt: skip
