"""Standing grants: what a person allowed once for calls like the one that they saw.

A grant is narrow. It holds for one tool as it was defined then, for one agent, user and tenant,
with exactly the arguments that were seen or those that rules admit, in one session or until a
time. It answers only what its giver was asked: a veto, and a question of another rule, stand.
Every use is written down in the transaction of the intent.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkrein import codec, expiry, manager, seals
from checkrein._locks import Lock
from checkrein.call import Call, ToolInfo, definition_digest
from checkrein.definition import differences, parts
from checkrein.errors import CheckreinError, ConfigError, Conflict
from checkrein.questions import wanted
from checkrein.store import Batch, NewEvent, Put, Record
from checkrein.verdicts import Always, Ask

if TYPE_CHECKING:
    from checkrein.entry import Entry
    from checkrein.rein import Rein

SESSION = 10 * 365 * 86_400.0
"""Seconds that a grant for a session lasts at most: the session ends it."""

Fits = Callable[[Call], bool]


@dataclass(frozen=True, slots=True)
class Grant:
    """A standing grant, for lists."""

    id: str
    tool: str
    agent: str
    session: str
    """Empty: whatever session of the agent."""
    arguments: Mapping[str, Any]
    """As the giver saw them."""
    like: Mapping[str, Any] | None
    by: str
    rule: str
    approval: str
    created: int
    """Microseconds since the epoch."""
    expires: int | None
    state: str
    """`active`, `revoked` or `expired`."""


class Grants:
    """The standing grants of one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store
        self._lock = Lock()
        self._fits: dict[str, Fits] = {}

    # -- for people

    def standing(self, *, every: bool = False, limit: int = 1000) -> list[Grant]:
        """Grants that hold, oldest first; `every`: those that do not hold any more as well."""
        state = None if every else "active"
        rows = self.store.records("grant", state=state, limit=limit).rows
        whole = (r for r in rows if seals.intact(self.store.key, r))
        return [_grant(r) for r in whole if every or not self._over(r)]

    def revoke(self, id: str, *, by: str) -> None:
        """End a grant: the next call is asked about. Raises `Conflict` if there is none."""
        record = self.store.record("grant", id)
        if record is None:
            raise Conflict(f"grant {id} is unknown here; `checkrein grants` lists them")
        seals.check(self.store.key, record)
        if record.state != "active":
            raise Conflict(f"grant {id} is {record.state} already")
        self._move(record, "revoked", "grant_revoked", by=by)

    # -- giving

    def draft(self, record: Record, by: str, always: Always, tree: Mapping[str, Any]) -> Record:
        """A grant for calls like that of an approval, not written yet.

        Raises `ConfigError` for rules that cannot be used, `Conflict` for what cannot be granted.
        """
        body, id = record.body, f"gr-{os.urandom(12).hex()}"
        if body["kind"] != "before":
            raise Conflict(f"approval {record.id}: only calls can be allowed for good")
        if body["quorum"] > 1:
            raise Conflict(
                f"approval {record.id} takes {body['quorum']} people: none may allow it for good"
            )
        kept = self.rein.approvals.kept(record)
        definition = kept.get("definition")
        if not isinstance(definition, list) or definition_digest(definition) != body["tool_digest"]:
            raise Conflict(f"approval {record.id}: the tool's definition is not kept")
        until = None if always.until is None else _seconds(always.until)
        like = None if always.like is None else {n: dict(r) for n, r in always.like.items()}
        for name in like or ():
            if name not in tree:
                raise ConfigError(f"like: {body['tool']} was not called with an argument {name!r}")
        fixed = {name: value for name, value in tree.items() if name not in (like or {})}
        grant = {
            "session": record.session if until is None else "",
            "tool": body["tool"],
            "tool_digest": body["tool_digest"],
            "definition": definition,
            "agent": body["agent"],
            "user": body["user"],
            "tenant": body["tenant"],
            "asks": body["asks"],
            "rule": body["rule"],
            "arguments": body["arguments"],
            "like": like,
            "fixed": self._digest(body["tool"], fixed),
            "by": by,
            "approval": record.id,
            **expiry.ends(self.rein, SESSION if until is None else until),
        }
        drafted = Record("grant", id, "active", grant["session"], body["tool"], 0, 0, grant)
        if like is not None and not self._seen(drafted, tree):
            raise ConfigError("like: the rules do not fit the call that was approved")
        return drafted

    def _seen(self, drafted: Record, tree: Mapping[str, Any]) -> bool:
        """Whether a grant covers the call that its giver saw."""
        name = drafted.body["tool"]
        try:
            arguments = codec.decode_arguments(tree, {}, {})
        except CheckreinError as error:
            raise ConfigError(f"like: {error}") from error
        info = ToolInfo(name)
        return self._admits(drafted, Call("", "", "tool", name, arguments, info), dict(tree))

    def give(self, drafted: Record, record: Record) -> Grant:
        """Write a drafted grant, under which calls run from now on."""
        body = seals.sealed(self.store.key, drafted.id, "active", drafted.body)
        event = self.rein.journal.event(
            "grant_given", record.body["call"], id=drafted.id, tool=drafted.label,
            by=body["by"], approval=record.id, agent=body["agent"], scope=body["session"],
            like=body["like"], expires=body["expires"],
        )  # fmt: skip
        put = Put("grant", drafted.id, "active", body, drafted.session, drafted.label, ("",))
        batch = Batch(record.session, (event,), event.at, puts=(put,))
        self.rein.observers.notify(self.store.commit(batch), batch)
        found = self.store.record("grant", drafted.id)
        return _grant(found or drafted)

    # -- using

    def covering(
        self, call: Call, tree: Mapping[str, Any], asks: list[tuple[str, Ask]]
    ) -> tuple[tuple[str, ...], list[tuple[str, Ask]], list[str]]:
        """(ids of the grants that answer, the questions left, how the tool changed since)."""
        used: list[str] = []
        changed: list[str] = []
        after: str | None = None
        while asks:
            page = self.store.records("grant", state="active", label=call.name, after=after)
            for record in page.rows:
                left = [pair for pair in asks if wanted(*pair) not in record.body.get("asks", ())]
                if len(left) == len(asks) or not self._holds(record, call, tree):
                    continue
                if record.body["tool_digest"] != call.tool.digest():
                    told = differences(record.body["definition"], parts(call.tool))
                    changed += [f"{record.id} was given for another definition: {d}" for d in told]
                    continue
                asks = left
                used.append(record.id)
            after = page.next
            if after is None:
                break
        return tuple(used), asks, changed

    def _holds(self, record: Record, call: Call, tree: Mapping[str, Any]) -> bool:
        body = record.body
        if not seals.intact(self.store.key, record):
            self.rein.log.error(
                "grant %s was altered in the store: it counts for nothing", record.id
            )
            return False
        who = (call.agent, call.user, call.tenant)
        if who != (body["agent"], body["user"], body["tenant"]):
            return False
        if body["session"] and body["session"] != call.session:
            return False
        return not self._over(record) and self._admits(record, call, tree)

    def _over(self, record: Record) -> bool:
        if record.state != "active":
            return True
        if expiry.left(self.rein, record.body) > 0:
            return False
        with contextlib.suppress(Conflict):  # revoked at this moment
            self._move(record, "expired", "grant_expired")
        return True

    def _admits(self, record: Record, call: Call, tree: Mapping[str, Any]) -> bool:
        """Whether the arguments are like those that were seen."""
        like = record.body["like"] or {}
        fixed = {name: value for name, value in tree.items() if name not in like}
        if self._digest(record.body["tool"], fixed) != record.body["fixed"]:
            return False
        if not like:
            return True
        with self._lock:
            fits = self._fits.get(record.id)
        if fits is None:
            fits = _fits(like)
            with self._lock:
                if len(self._fits) >= 1000:
                    self._fits.clear()
                self._fits[record.id] = fits
        return fits(call)

    def gone(self, entry: Entry) -> bool:
        """Whether one that an entry counts on was revoked; then it counts on none."""
        found = [self.store.record("grant", id) for id in entry.grants]
        if all(record is not None and record.state == "active" for record in found):
            return False
        entry.grants = ()
        return True

    def using(self, ids: tuple[str, ...], call: Call) -> tuple[list[NewEvent], list[Put]]:
        """What records the use of grants, on the condition that nobody has revoked them."""
        events: list[NewEvent] = []
        puts: list[Put] = []
        for id in ids:
            record = self.store.record("grant", id)
            if record is None:
                raise Conflict(f"grant {id} is gone from the store")
            events.append(
                self.rein.journal.event(
                    "grant_used", call.id, id=id, tool=call.name, by=record.body["by"]
                )
            )
            puts.append(
                Put("grant", id, "active", record.body, record.session, record.label, ("active",))
            )
        return events, puts

    def _digest(self, tool: str, tree: Mapping[str, Any]) -> str:
        return codec.digest(self.store.key, ["grant", tool, dict(tree)])

    def _move(self, record: Record, state: str, kind: str, **said: Any) -> None:
        body = seals.sealed(self.store.key, record.id, state, {**record.body, **said})
        put = Put("grant", record.id, state, body, record.session, record.label, ("active",))
        event = self.rein.journal.event(kind, "", id=record.id, tool=record.label, **said)
        approval = self.store.record("approval", record.body["approval"])
        session = record.session or ("" if approval is None else approval.session)
        batch = Batch(session, (event,), event.at, puts=(put,))
        self.rein.observers.notify(self.store.commit(batch), batch)


def _seconds(value: object) -> float:
    """How long a grant shall hold. Raises `ConfigError` for other than a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < SESSION:
        raise ConfigError("until: must be seconds, more than 0 and less than ten years")
    return float(value)


def _fits(like: Mapping[str, Any]) -> Fits:
    """Whether a call passes the rules: those of the installed plugin `scope`, as they are there.

    Raises `ConfigError` for rules that cannot be used.
    """
    # A tool's name may hold what globs read otherwise.
    rules = [{"tool": "*", "arguments": dict(like)}]
    scope = manager.load("scope")(rules=rules, name="grant")

    def fits(call: Call) -> bool:
        # A question of the rules, or something to count, is no yes.
        return scope.pre_call(call) is None

    return fits


def _grant(record: Record) -> Grant:
    body = record.body
    return Grant(
        id=record.id,
        tool=body["tool"],
        agent=body["agent"],
        session=body["session"],
        arguments=body["arguments"],
        like=body["like"],
        by=body["by"],
        rule=body["rule"],
        approval=body["approval"],
        created=record.created,
        expires=None if body["session"] else body["expires"],
        state=record.state,
    )
