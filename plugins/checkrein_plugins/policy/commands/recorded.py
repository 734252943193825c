"""Recorded calls, as a policy can be asked about them again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from checkrein import codec
from checkrein.call import Call, ToolInfo
from checkrein.errors import CheckreinError
from checkrein.rein import Rein
from checkrein.store import Event, SessionRow

_ASKED = ("rejected", "expired", "no_approver")
"""Codes of refusals that came from people, or from nobody being there to ask."""


@dataclass(slots=True)
class Recorded:
    """One call of a session, and what was said of it then."""

    call: Call
    verdict: str
    """ALLOW, REQUIRE_APPROVAL or BLOCK."""
    rule: str
    plugin: str
    ran: bool
    exact: bool
    """False: only what people may see of the arguments is left, so conditions may differ."""


def calls_of(rein: Rein, row: SessionRow) -> Iterator[Recorded]:
    """The calls of a session, in the order in which they came. Undos are left out."""
    found: dict[str, Recorded] = {}
    for event in rein.read(row.id).events():
        if event.kind in ("intent", "denied", "answered"):
            if event.view.get("kind") == "undo":
                continue
            before = found.get(event.call)
            if event.kind != "denied":
                arguments, exact = _arguments(rein, event)
                verdict = "ALLOW" if before is None else before.verdict
                rule = "" if before is None else before.rule
                plugin = "" if before is None else before.plugin
                call = _call(row, event, arguments)
                ran = event.kind == "intent"
                found[event.call] = Recorded(call, verdict, rule, plugin, ran, exact)
                continue
            code = event.view["code"]
            verdict = "REQUIRE_APPROVAL" if code in _ASKED else "BLOCK"
            if before is None:
                call = _call(row, event, dict(event.view["arguments"]))
                before = found[event.call] = Recorded(call, verdict, "", "", False, _plain(event))
            before.verdict = verdict
            before.rule, before.plugin = str(event.view["rule"]), str(event.view["plugin"])
        elif event.kind == "approval_requested" and event.view.get("asked") == "before":
            payload = _payload(rein, event)
            if payload is None or payload.get("kind") == "undo":
                continue
            arguments = codec.decode(payload["arguments"])
            call = _call(row, event, arguments, str(payload["name"]), str(payload["kind"]))
            rule = str(event.view["rule"])
            found[event.call] = Recorded(call, "REQUIRE_APPROVAL", rule, "", False, exact=True)
    yield from found.values()


def _plain(event: Event) -> bool:
    """A denial keeps only the view of its arguments: exact where nothing was masked."""
    return not _masked(event.view["arguments"])


def _masked(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_masked, value.values()))
    if isinstance(value, list):
        return any(map(_masked, value))
    return isinstance(value, str) and ("[" in value or value.endswith("…"))


def _payload(rein: Rein, event: Event) -> dict[str, Any] | None:
    try:
        payload = rein.store.payload(event.seq)
    except CheckreinError:
        return None
    return payload if isinstance(payload, dict) else None


def _arguments(rein: Rein, event: Event) -> tuple[dict[str, Any], bool]:
    payload = _payload(rein, event)
    if payload is not None and "arguments" in payload:
        return codec.decode(payload["arguments"]), True
    return dict(event.view["arguments"]), _plain(event)


def _call(
    row: SessionRow, event: Event, arguments: dict[str, Any], name: str = "", kind: str = ""
) -> Call:
    view = event.view
    body = row.body
    name = name or str(view["name"])
    kinds: Any = kind or view["kind"]
    effect: Any = view.get("effect") or ("read" if kinds == "model" else "write")
    return Call(
        event.call, row.id, kinds, name, arguments, ToolInfo(name, effect=effect),
        agent=str(body.get("agent", "")), task=str(view.get("task", "") or body.get("task", "")),
        user=str(body.get("user", "")), tenant=str(body.get("tenant", "")),
        step=int(view.get("step") or 0), labels=view.get("labels") or {},
        guard=str(view.get("guard", "")),
    )  # fmt: skip
