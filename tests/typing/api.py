"""What the type checkers know of the public surface: read by mypy and pyright, never run.

Where a line is wrong on purpose it carries the error that both must find: an ignore that is not
needed is a fault for both.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

from checkrein import (
    Always,
    Answer,
    Approved,
    Ask,
    Call,
    Deny,
    Hold,
    Outcome,
    Plugin,
    Rein,
    Replace,
    Retry,
    Rewrite,
    Skip,
    Undo,
)
from checkrein.approval import ApprovalRequest
from checkrein.grants import Grant
from checkrein.session import Session, Spend
from checkrein.verdicts import Cause, Decision, PostVerdict, PreVerdict, UndoVerdict

rein = Rein()


def pay(amount: int, to: str = "shop") -> float:
    return float(amount)


async def fetch(url: str) -> bytes:
    return url.encode()


# A call has the type of what it calls, and takes its arguments.

assert_type(rein.call(pay, 5, to="x"), float)
rein.call(pay, "5")  # type: ignore[arg-type]  # an amount is a number
rein.call(pay, 5, frm="x")  # type: ignore[call-arg]  # no such parameter


async def asynchronous() -> None:
    assert_type(await rein.acall(fetch, "u"), bytes)
    assert_type(await rein.acall(pay, 5), float)
    await rein.acall(fetch, 5)  # type: ignore[call-overload]  # a URL is a text
    assert_type(await rein.amodel_call(fetch, model="m", messages=[]), bytes)


assert_type(rein.model_call(pay, model="m", messages=[]), float)


# A tool keeps its signature, declared with settings or without.


@rein.tool
def bare(amount: int) -> str:
    return str(amount)


@rein.tool(name="refund", undo=lambda amount: None, effect="write", timeout=5, idempotent=True)
def declared(amount: int) -> str:
    return str(amount)


@rein.tool
async def later(amount: int) -> str:
    return str(amount)


assert_type(bare(1), str)
assert_type(declared(1), str)
bare("1")  # type: ignore[arg-type]  # an amount is a number
declared()  # type: ignore[call-arg]  # an amount is needed
rein.tool(effect="destroy")  # type: ignore[call-overload]  # no such effect
rein.tool(retries=3)  # type: ignore[call-overload]  # no such setting
rein.declare("stripe.refunds.create", undo="stripe.refunds.cancel", sinks=["amount"])
rein.declare("x", timeout="soon")  # type: ignore[arg-type]  # seconds


async def awaits() -> None:
    assert_type(await later(1), str)


# A wrapped client is what it wraps; a function that was bound keeps its signature.


class Client:
    def create(self, name: str) -> int:
        return len(name)


assert_type(rein.wrap(Client(), connector="shop"), Client)
assert_type(rein.wrap(Client(), connector="shop").create("x"), int)

with rein.session(agent="desk", on_error="keep") as session:
    assert_type(session, Session)
    assert_type(session.spend(), Spend)
    assert_type(session.bind(pay)(5), float)
rein.session(on_error="ignore")  # type: ignore[arg-type]  # rollback or keep
Rein(mode="loud")  # type: ignore[arg-type]  # enforce or observe


# Hooks: each may be async, and may promise less than all verdicts; others are refused.


class Whole(Plugin):
    def pre_call(self, call: Call) -> PreVerdict:
        if call.kind == "model":
            return Ask("sure?"), Hold("calls", 1, "calls", 10)
        if "x" in call.arguments:
            return Rewrite(call.replace(arguments={}))
        return Answer(1) if call.name == "known" else None

    async def post_call(self, call: Call, outcome: Outcome) -> PostVerdict:
        return Replace(1) if outcome.error is None else Retry(after=1)

    async def on_approval(self, call: Call, request: ApprovalRequest) -> Decision:
        return Approved("anna")

    def on_rollback(self, call: Call, outcome: Outcome, cause: Cause) -> UndoVerdict:
        return Undo("shop.delete", {}) if cause == "plan" else Skip("kept")


class Narrow(Plugin):
    def pre_call(self, call: Call) -> Deny | None:
        return Deny("no")


class Wrong(Plugin):
    def pre_call(self, call: Call) -> bool:  # type: ignore[override]  # a verdict, not a flag
        return True

    async def post_call(self, call: Call, outcome: Outcome) -> Deny | Ask | str:  # type: ignore[override]  # a text
        return "no"

    def on_approval(self, call: Call, request: str) -> None:  # type: ignore[override]  # a request
        return None

    def close(self) -> int:  # type: ignore[override]  # nothing is returned
        return 1


make: Callable[[], Plugin] = Narrow
Deny()  # type: ignore[call-arg]  # why?
assert_type(rein.approvals.approve("ap-1", by="anna", always=Always(until=60.0)), str)
assert_type(rein.approvals.pending(), list[ApprovalRequest])
assert_type(rein.approvals.escalate(), list[str])
assert_type(rein.grants.standing(), list[Grant])
rein.grants.revoke("gr-1", by="anna")
Always(until="2h")  # type: ignore[arg-type]  # seconds
Approved("anna", always=True)  # type: ignore[arg-type]  # which calls, and how long?
