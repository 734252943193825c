"""What a hook may answer. Small frozen values: no exceptions, no dicts.

Strictness of `pre_call` verdicts: Deny > Ask > Answer > Rewrite. In any order of
plugins the strictest wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from checkrein.call import Call, CostState, Usage, draft_of

Unit: TypeAlias = Literal["usd", "tokens", "calls", "seconds", "amount"]
Settle: TypeAlias = Literal["measured", "keep", "release", "once", "streak"]
RefusalCode: TypeAlias = Literal[
    "budget_exceeded", "rate_limited", "iteration_limit", "possible_duplicate", "repeated_call",
    "circuit_open",
]  # fmt: skip
"""What kind of limit refused a call, for people, models and alerts."""

REFUSAL_CODES: tuple[str, ...] = get_args(RefusalCode)
UNITS: tuple[str, ...] = get_args(Unit)
SETTLES: tuple[str, ...] = get_args(Settle)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Go on with another call: arguments, model name or a shorter timeout may differ."""

    call: Call


@dataclass(frozen=True, slots=True)
class Deny:
    """Veto. `halt` ends the whole run, not only this call."""

    reason: str
    rule: str = ""
    halt: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody must approve: before the call, or (from `post_call`) after it."""

    reason: str
    rule: str = ""
    risk: Literal["low", "medium", "high"] = "medium"
    expires: float | None = None
    """Seconds until the request lapses; None = the Rein's default."""
    who: tuple[str, ...] = ()
    """Who may answer; empty = anybody who can reach the record."""
    quorum: int = 1
    """How many different people must approve."""
    then: tuple[str, ...] = ()
    """Who may answer as well once `after` seconds have passed; every channel is told again."""
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Short-circuit: `value` is the result and nothing runs. Later guards still run."""

    value: Any
    source: str = ""
    saved: Usage | None = None
    """What the call would have used."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Take `amount` from `account` when, and only when, the call is about to run.

    Amounts are integers: nano-dollars for `usd`, microseconds for `seconds`, billionths for
    `amount`, tokens, counts. A window is sliding and in seconds. What it settles at:

    `measured`  what was measured (`Measured.amounts` names the account, else usage and cost)
    `keep`      the amount
    `release`   nothing
    `once`      the amount, and record `once` of the account tells which call it was
    `streak`    the amount after a failure; a success empties the account, unless a failure was
                booked after it had begun. A full account lets one call at a time through once
                `window` seconds have passed since the last failure
    """

    account: str
    amount: int
    unit: Unit
    limit: int
    window: float | None = None
    settle: Settle = "measured"
    rule: str = ""
    halt: bool = False
    on_refused: Literal["deny", "wait"] = "deny"
    """`wait`: as long as calls that are running hold what is missing, wait for them."""
    reason: str = ""
    """What people and models are told instead of the account's figures."""
    code: RefusalCode = "budget_exceeded"


_HoldDraft: Any = draft_of(Hold)


def new_hold(*fields: Any) -> Hold:
    """`Hold(*fields)`, without the price of a frozen `__init__`: for plugins that make many."""
    draft = _HoldDraft(*fields)
    draft.__class__ = Hold
    return draft  # type: ignore[no-any-return]  # it has become one


@dataclass(frozen=True, slots=True)
class Replace:
    """The caller sees `value` instead of the result, or `error` instead of the tool's error."""

    value: Any = None
    error: BaseException | None = None
    """What is raised instead: an error in other words. The state of the call stays."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Run it again after `after` seconds: idempotent tools and model calls only."""

    after: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Fallback:
    """Run the whole chain again for another model (model calls only)."""

    model: str


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A check that could not be made, and whose rule lets the call pass all the same.

    From `pre_call` and `post_call`. The journal and the span show it; it is never "passed".
    A rule that may not be missed answers Deny with the rule `checker_unavailable` instead.
    """

    what: str
    """The rule or the detector; no data of the call."""
    reason: str = ""
    """Why, such as the type of an error; no data of the call."""


@dataclass(frozen=True, slots=True)
class Always:
    """Allow calls like this one from now on.

    `like`: rules for arguments, as a rule of the plugin `scope` has them
    (`{"amount": {"maximum": 100}}`); arguments that they do not name, and without `like` all of
    them, must be exactly those of the call. `until`: for so many seconds, in whatever session
    of the agent; without it in this session only.
    """

    like: Mapping[str, Mapping[str, Any]] | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Approved:
    """A decision: yes, and with other `arguments` if they were edited."""

    by: str
    arguments: Mapping[str, Any] | None = None
    masked_ok: bool = False
    """Whoever decided has seen the masked fields, or does without. A call with masked fields
    is not approved otherwise."""
    always: Always | None = None
    """Allow calls like this one from now on."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A decision: no."""

    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Undo:
    """How to take an effect back: the name of a declared tool and its arguments."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Skip:
    """Leave the effect in place; it is reported."""

    reason: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What a call used and cost. Fields left None are somebody else's to fill."""

    usage: Usage | None = None
    cost: int | None = None
    """Nano-dollars."""
    state: CostState | None = None
    amounts: Mapping[str, int] | None = None
    """What holds of `measured` and `streak` settle at, by account."""
    price: str | None = None
    """Where the price is from, and which version of it."""


Cause: TypeAlias = Literal["plan", "error", "rejected", "explicit", "recover"]
Sink: TypeAlias = Literal["journal", "span", "person", "log", "webhook"]

PreOne: TypeAlias = "Rewrite | Deny | Ask | Answer | Hold | Unchecked | None"
PreVerdict: TypeAlias = "PreOne | tuple[PreOne, ...]"
PostOne: TypeAlias = "Replace | Retry | Fallback | Deny | Ask | Unchecked | None"
PostVerdict: TypeAlias = "PostOne | tuple[PostOne, ...]"
DeniedVerdict: TypeAlias = "Answer | Deny | None"
Decision: TypeAlias = "Approved | Rejected | None"
UndoVerdict: TypeAlias = "Undo | Skip | None"
