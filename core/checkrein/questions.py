"""What rules ask of people, put together into one question, and the error for its no."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from checkrein import codec, expiry
from checkrein.errors import ApprovalExpired, ApprovalRejected, ConfigError, Denied
from checkrein.store import Record
from checkrein.verdicts import Ask

if TYPE_CHECKING:
    from checkrein.call import Call
    from checkrein.rein import Rein


def refusal_of(record: Record) -> Denied:
    """The error for an approval that was not given."""
    body = record.body
    details = {"rule": body["rule"], "tool": body["tool"], "call_id": body["call"]}
    after = body["kind"] == "after"
    refusal: Denied
    if record.state == "void":
        refusal = ApprovalExpired(f"approval {record.id} is void: its session is over", **details)
    elif record.state in ("pending", "expired"):
        what = "was given, but not used in time" if "use_by" in body else "expired"
        stays = "; it had run and stays done, its result is withheld" if after else ""
        refusal = ApprovalExpired(f"approval {record.id} {what}{stays}", **details)
    else:
        by = str(body.get("by", ""))
        why = f": {body['reject_reason']}" if body.get("reject_reason") else ""
        undone = "; it had run, and was undone or is reported as left" if after else ""
        refusal = ApprovalRejected(f"rejected by {by}{why}{undone}", by=by, **details)
    refusal.review = after
    return refusal


def wanted(plugin: str, ask: Ask) -> list[Any]:
    """What one rule asks for: an approval covers it only if it was given for just that."""
    later = [sorted(ask.then), ask.after] if ask.then else []
    return [plugin, ask.rule, sorted(ask.who), ask.quorum, *later]


def people(rein: Rein, call: Call, asks: list[Ask]) -> dict[str, Any]:
    """Who may answer what several rules ask, now and later. Raises `ConfigError` for nobody."""
    first = [set(a.who) for a in asks if a.who]
    ever = [set(a.who) | set(a.then) for a in asks if a.who]
    who = set.intersection(*first) if first else set()
    later = set.intersection(*ever) if ever else {p for a in asks for p in a.then}
    if ever and not later:
        raise ConfigError(f"{call.name}: rules ask different people, and nobody is in all")
    if first and not who:
        return {"who": sorted(later)}
    waits = [a.after for a in asks if a.after is not None]
    if not waits or not later - who:
        return {"who": sorted(who)}
    return {
        "who": sorted(who), "then": sorted(later - who),
        **expiry.ends(rein, max(waits), "escalates"),
    }  # fmt: skip


def question_id(when: str, call: Call, digest: str, asks: list[tuple[str, Ask]]) -> str:
    """The same question about the same call has the same id, in whatever process."""
    key = [when, call.id, digest, sorted(codec.canonical(wanted(p, a)).hex() for p, a in asks)]
    return "ap-" + hashlib.sha256(codec.canonical(key)).hexdigest()[:24]
