"""What a channel elsewhere is sent about a request: the record in the shape of its receiver."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any

from checkrein.request import ApprovalRequest
from checkrein_plugins._webhooks import chat, escaped

BLOCK = 2_900
"""Characters of one Slack block: it takes 3,000."""

ACTIONS = {
    "checkrein.approve": "approve", "checkrein.approve_masked": "approve",
    "checkrein.reject": "reject",
}  # fmt: skip
"""Ids of Slack's buttons -> the answer that they give."""


def tree_of(request: ApprovalRequest, arguments: Any, link: str) -> dict[str, Any]:
    """A request as plain data."""
    return {
        "id": request.id,
        "status": request.status,
        "kind": request.kind,
        "session": request.session,
        "call": request.call,
        "agent": request.agent,
        "tool": request.tool,
        "arguments": arguments,
        "masked": list(request.masked),
        "reason": request.reason,
        "rule": request.rule,
        "risk": request.risk,
        "who": list(request.who),
        "quorum": request.quorum,
        "changed": list(request.changed),
        "escalated": request.escalated,
        "created": _iso(request.created),
        "expires": _iso(request.expires),
        **({"link": link} if link else {}),
    }


def standard(request: ApprovalRequest, arguments: Any, link: str) -> dict[str, Any]:
    """The body of a Standard Webhooks message."""
    what = "escalated" if request.escalated else "requested"
    return {
        "type": f"checkrein.approval.{what}",
        "timestamp": _iso(request.created),
        "data": tree_of(request, arguments, link),
    }


def text_of(request: ApprovalRequest, arguments: Any, link: str) -> tuple[str, str]:
    """(everything but the arguments, the arguments) for people."""
    kind = {"after": "Review", "undo": "Undo"}.get(request.kind, "Approval")
    who = ", ".join(request.who) or "anybody"
    lines = [
        f"{kind} {request.id}: {request.tool}" + (" (nobody answered yet)" * request.escalated),
        f"asked because {request.reason}" + (f" [{request.rule}]" if request.rule else ""),
        f"risk {request.risk}, agent {request.agent or '-'}, call {request.call}",
        f"may answer: {who}" + (f", {request.quorum} of them" if request.quorum > 1 else ""),
        *(f"CHANGED: {line}" for line in request.changed),
    ]
    if request.masked:
        lines.append(f"MASKED (not shown to you): {', '.join(request.masked)}")
    lines.append(f"decide: {link or f'checkrein approve {request.id}'}")
    shown = json.dumps(arguments, ensure_ascii=False, indent=1, default=str)
    return "\n".join(lines), shown


def discord(request: ApprovalRequest, arguments: Any, link: str) -> dict[str, Any]:
    """A Discord message; of what does not fit it says so."""
    head, shown = text_of(request, arguments, link)
    shown = shown.replace("```", "` ` `")
    room = 1_900 - len(head)
    if len(shown) > room:
        shown = f"{shown[: max(0, room)]}\n(cut: look before you decide)"
    return chat(f"{head}\n```json\n{shown}\n```", "discord")


def slack(request: ApprovalRequest, arguments: Any, link: str, *, buttons: bool) -> dict[str, Any]:
    """A Slack message, with buttons where all that there is to see fits into it."""
    head, shown = text_of(request, arguments, link)
    body, code = escaped(head), escaped(shown)
    whole = len(body) <= BLOCK and len(code) <= BLOCK - 10
    blocks: list[dict[str, Any]] = [_section(body[:BLOCK])]
    if whole:
        blocks.append(_section(f"```{code}```"))
        if buttons:
            masked = "_masked" if request.masked else ""
            label = "Approve without seeing what is masked" if masked else "Approve"
            blocks.append({
                "type": "actions",
                "elements": [
                    _button(f"checkrein.approve{masked}", label, request.id, "primary"),
                    _button("checkrein.reject", "Reject", request.id, "danger"),
                ],
            })  # fmt: skip
    else:
        blocks.append(_section("The arguments do not fit in here: look before you decide."))
    return {**chat(f"{head}\n{shown}" if whole else head, "slack"), "blocks": blocks}


def decided(request: ApprovalRequest, by: str) -> str:
    """What stands in the place of the question once it is answered."""
    return f"{request.id} {request.tool}: {request.state} by {request.by or by}"


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _button(action: str, label: str, value: str, style: str) -> Mapping[str, Any]:
    return {
        "type": "button", "action_id": action, "value": value, "style": style,
        "text": {"type": "plain_text", "text": label},
    }  # fmt: skip


def _iso(micros: int) -> str:
    at = dt.datetime.fromtimestamp(micros / 1_000_000, dt.UTC)
    return at.isoformat().replace("+00:00", "Z")
