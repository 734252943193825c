"""The shape of a policy file. `json_schema()` gives it to editors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictBool, StrictInt, StrictStr

from checkrein_plugins._config import Escalates, Number, Seconds, Settings


def _filled(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _not_negative(value: float) -> float:
    if value < 0:
        raise ValueError("must not be negative")
    return value


Limit = Annotated[Number, AfterValidator(_not_negative)]
Text = Annotated[StrictStr, AfterValidator(_filled)]
Texts = Annotated[list[Text], Field(min_length=1)]
Identifier = Annotated[StrictStr, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
Action = Literal["ALLOW", "REQUIRE_APPROVAL", "BLOCK"]
Level = Literal["organisation", "team", "agent"]
Effects = Annotated[list[Literal["read", "write", "egress"]], Field(min_length=1)]
Kinds = Annotated[list[Literal["tool", "model", "undo"]], Field(min_length=1)]
Per = Literal["session", "agent", "user", "tenant"]

STRICTNESS: dict[str, int] = {"ALLOW": 0, "REQUIRE_APPROVAL": 1, "BLOCK": 2}
LEVELS: dict[str, int] = {"organisation": 0, "team": 1, "agent": 2}


class RuleSettings(Escalates):
    """One rule: for which calls, on what condition, what to do."""

    tool: Text | Texts
    """A glob over the tool's whole name, or several."""
    action: Action
    """Of all rules that fire the strictest wins: BLOCK, then REQUIRE_APPROVAL, then ALLOW."""
    name: Text | None = None
    """How reasons and records call the rule. Default: its globs."""
    when: Text | None = None
    """A condition, such as `args.amount > 100 and call.agent == "desk"`. Default: always."""
    effects: Effects | None = None
    """Only tools that are declared with one of these effects."""
    kinds: Kinds = Field(default=["tool"])
    """Which calls: tools, models (by the model's name), undos."""
    reason: Text | None = None
    """What people and models are told."""
    halt: StrictBool = False
    """BLOCK ends the whole run, not only this call."""
    risk: Literal["low", "medium", "high"] = "medium"
    who: Texts | None = None
    """Who may approve; default: anybody who can reach the record."""
    quorum: Annotated[StrictInt, Field(ge=1)] = 1
    """How many different people must approve."""
    expires: Seconds | None = None
    """Seconds until an approval request lapses."""


class CounterSettings(Settings):
    """Counts calls that ran, or adds up a number of theirs."""

    tool: Text | Texts
    """A glob over the tool's whole name, or several."""
    sum: Text | None = None
    """Name of the argument to add up, such as `amount`; default: calls are counted."""
    per: Per = "session"
    window: Seconds | None = None
    """Seconds after which a call no longer counts."""
    limit: Limit | None = None
    """The most that may come together: exact, also over processes."""


class PolicySettings(Settings):
    """A whole policy file."""

    version: Literal[1] = 1
    name: Text | None = None
    """Default: the file's name without its ending."""
    layer: Level = "organisation"
    """A lower layer (organisation, then team, then agent) can only narrow what is above it."""
    agents: Texts | None = None
    """Only calls of these agents (globs). Default: all."""
    default: Action | None = None
    """What of a tool call for which no rule of this file fires. Default: ALLOW."""
    guards: list[Text] = Field(default_factory=list)
    """Installed plugins that must run beside this policy."""
    counters: dict[Identifier, CounterSettings] = Field(default_factory=dict)
    """Numbers that conditions know as `counters.NAME`."""
    rules: list[RuleSettings] = Field(default_factory=list)


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a policy file, for editors."""
    schema = PolicySettings.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "checkrein policy",
        "properties": {
            # Editors look for this key in TOML and YAML files.
            "$schema": {"type": "string"},
            **schema["properties"],
        },
    }
