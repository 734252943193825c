"""The shape of Scope's rules, as a file or code states them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from checkrein_plugins._config import (
    Count,
    Escalates,
    Number,
    Positive,
    Seconds,
    Settings,
    Text,
    Texts,
)

ArgumentType = Literal["text", "path", "url", "number"]
Action = Literal["allow", "ask", "deny"]


class ArgumentSettings(Settings):
    """What one argument must be. Every element of a list and every leaf of a tree must pass."""

    type: ArgumentType | None = None
    """How the value is read. Default: `number` where a bound is given, else `text`."""
    allow: Texts | None = None
    """Globs of which one must match."""
    block: Texts | None = None
    """Globs of which none may match, compared without regard to case and width."""
    match: Text | None = None
    """A regular expression (RE2) for the whole value."""
    one_of: (
        Annotated[list[StrictStr | StrictInt | StrictFloat | StrictBool], Field(min_length=1)]
        | None
    ) = None
    """The only values that pass; 1 and True differ."""
    minimum: Number | None = None
    maximum: Number | None = None
    ask_above: Number | None = None
    """Somebody must approve a number above this."""
    total: Positive | None = None
    """The sum of the number over all calls of the session, over all tools of the rule. A number
    below 0 is then refused."""
    optional: StrictBool = False
    """Missing, None or empty passes. Without this it is refused."""
    root: Text | None = None
    """What relative paths are read against; default: the Scope's."""


class RuleSettings(Escalates):
    """What holds for the tools that `tool` matches."""

    tool: Text | Texts
    """One glob or several, over the whole name."""
    name: Text | None = None
    """How the rule is called in reasons, records and accounts. Default: its globs."""
    action: Action = "allow"
    """`allow` lists the tools (the other parts of the rule still hold), `ask` and `deny`."""
    arguments: dict[Text, ArgumentSettings] = Field(default_factory=dict)
    """By parameter name; `order.amount` reaches into a nested value."""
    other_arguments: Literal["allow", "deny"] = "allow"
    """What of arguments that the rule does not name."""
    calls_per_minute: Count | None = None
    """Per session, over all tools of the rule."""
    max_calls: Count | None = None
    """Per session, over all tools of the rule."""
    reason: Text | None = None
    """What people are told when `action` asks or denies."""
    risk: Literal["low", "medium", "high"] = "medium"
    who: Texts | None = None
    quorum: Annotated[StrictInt, Field(ge=1)] = 1
    expires: Seconds | None = None


class ScopeSettings(Settings):
    """The arguments of `Scope`."""

    rules: list[RuleSettings] = Field(default_factory=list)
    allow: Texts | None = None
    block: Texts | None = None
    unlisted: Action | None = None
    root: Text | None = None
    undo: StrictBool = False
    name: Text = "scope"
