"""The shape of a configuration. The only module of the core that imports pydantic."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, ValidationError

from checkrein._config_file import Document, Key
from checkrein.errors import ConfigError
from checkrein.http_undo import HttpUndo, http_delete

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _named(value: str) -> str:
    module, _, name = value.partition(":")
    if not module or not name:
        raise ValueError("must be module:rein, for example shop.agent:rein")
    return value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class HttpRequestSettings(_Strict):
    """`undo.http-request`: see `checkrein.http_undo`."""

    method: Literal["DELETE", "POST", "PUT", "PATCH"]
    url: str
    json_body: Any = Field(default=None, alias="json")
    headers: dict[str, str] = {}


class HttpUndoSettings(_Strict):
    """`undo = { http-delete = "https://..." }`, or `http-request` with method and body."""

    http_delete: str | None = Field(default=None, alias="http-delete")
    http_request: HttpRequestSettings | None = Field(default=None, alias="http-request")

    def made(self) -> HttpUndo:
        """The undo. Raises `ConfigError` unless one of the two is given."""
        if (self.http_delete is None) == (self.http_request is None):
            raise ConfigError("undo: give one of http-delete and http-request")
        if self.http_request is None:
            return http_delete(str(self.http_delete))
        request = self.http_request
        return HttpUndo(request.method, request.url, request.json_body, request.headers)


class ToolSettings(_Strict):
    """`[tools.NAME]`: what is declared about a tool (see `rein.declare`)."""

    description: str = ""
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    server: str = ""
    effect: Literal["read", "write", "egress"] = "write"
    idempotent: bool = False
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    undo: str | HttpUndoSettings | None = None
    """Name of a tool, a template (`"customers.delete(result.id)"`), `none`, or a request."""
    before: str | None = None
    """`module:function`: reads the state before the change."""
    on_capture: Literal["refuse", "ask", "go_on"] = "refuse"
    operation: Literal["create", "read", "update", "delete", ""] = ""
    irreversible: str = ""
    probe: str | None = None
    """`module:function`."""
    undo_safe_to_repeat: bool = False
    settle_time: Seconds = 30.0
    opaque: list[str] = []
    sinks: list[str] = []
    trusted_fields: list[str] = []
    no_effect_on: list[str] = []
    """Exception classes, each `module:Class`."""
    thread_affine: bool = False
    labels: dict[str, str] = {}


class Settings(_Strict):
    """A whole file."""

    store: str = "memory:"
    counters: str | None = None
    durability: Literal["process", "power"] = "process"
    mode: Literal["enforce", "observe"] = "enforce"
    record: Literal["all", "tools", "none"] = "all"
    encrypt: bool = False
    max_payload: Annotated[int, Field(ge=0)] = 8 * 1024 * 1024
    drain: Seconds = 30.0
    wait: Literal["auto", "block", "suspend"] = "auto"
    on_error: Literal["rollback", "keep"] = "rollback"
    on_rejected: Literal["raise", "rollback"] = "raise"
    on_failed: Literal["rollback", "keep"] = "rollback"
    on_drift: Literal["keep", "rollback"] = "keep"
    failure_mode: Literal["closed", "open"] = "closed"
    approvals: Literal["auto", "store", "channels"] = "auto"
    approval_expires: Seconds = 86_400.0
    approval_use: Seconds = 604_800.0
    unattributed: Literal["account", "refuse"] = "account"
    hook_timeout: Seconds = 30.0
    hold_wait: Seconds = 60.0
    undo_tries: Annotated[int, Field(ge=0)] = 3
    max_resumes: Annotated[int, Field(ge=0)] = 3
    idle_limit: Seconds = 86_400.0
    span_content: StrictBool = False
    semconv: list[Literal["openinference", "genai-427"]] = []
    app: Annotated[str, AfterValidator(_named)] | None = None
    """`module:rein`: where the command line finds the application's tools."""
    plugins: dict[str, dict[str, Any]] = {}
    tools: dict[str, ToolSettings] = {}


NOT_REIN = ("app", "plugins", "tools")
"""Keys that are no argument of `Rein`, or are built first."""


def validate(document: Document) -> Settings:
    """Check the shape. Raises `ConfigError` with file, line and key of the first fault."""
    try:
        return Settings.model_validate(document.data)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        located = sorted(faults, key=lambda f: document.line(f["loc"]) or 0)
        first = located[0]
        key = _known(document, first["loc"])
        text = _told(first, key)
        if len({_known(document, f["loc"]) for f in located}) > 1:
            others = {_known(document, f["loc"]) for f in located} - {key}
            text += f" (and {len(others)} more)"
        raise document.error(key, text) from None


def _known(document: Document, loc: Key) -> Key:
    """`loc` without what pydantic adds to it for unions."""
    value: Any = document.data
    key: Key = ()
    for part in loc:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            break
        key = (*key, part)
    return key


def _told(fault: Any, key: Key) -> str:
    kind = fault["type"]
    if kind == "extra_forbidden":
        name = str(key[-1])
        allowed = sorted(_fields(key[:-1]))
        return f"unknown key{near(name, allowed)}; allowed: {', '.join(allowed)}"
    if kind == "literal_error":
        return f"must be one of {fault['ctx']['expected'].replace(' or ', ', ')}"
    return plainly(str(fault["msg"]))


def plainly(message: str) -> str:
    """What pydantic says, in the words of this project's own messages."""
    text = message.removeprefix("Value error, ")
    for before, after in (
        ("Field required", "is needed"),
        ("Input should be a valid ", "must be a "),
        ("Input should be ", "must be "),
        ("a integer", "an integer"),
        ("dictionary", "table"),
    ):
        text = text.replace(before, after)
    # The class behind a table is no word of whoever writes the file.
    return re.sub(r" or instance of \w+", "", text)


def _fields(key: Key) -> list[str]:
    model = ToolSettings if key[:1] == ("tools",) else Settings
    return [field.alias or name for name, field in model.model_fields.items()]


def near(name: str, known: list[str]) -> str:
    """` (did you mean 'x'?)`, or nothing."""
    found = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""
