"""SchemaValidator: arguments and results against JSON Schema, before and after the call."""

from __future__ import annotations

import datetime as dt
import enum
import math
import os
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, Never, TypeAlias

import jsonschema_rs
from pydantic import Field, StrictBool

from checkrein.call import Call, Outcome
from checkrein.codec import is_flat, is_flat_value
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Deny, PostVerdict, PreVerdict
from checkrein_plugins._config import Name, Settings, Text, read, refuse_unknown
from checkrein_plugins._selection import first_match
from checkrein_plugins.guardrails._arguments import DEPTH, fields_of

Schema: TypeAlias = bool | dict[str, Any]


class _Settings(Settings):
    arguments: dict[Text, Schema] = Field(default_factory=dict)
    results: dict[Text, Schema] = Field(default_factory=dict)
    declared: StrictBool = True
    missing: Literal["allow", "deny"] = "allow"
    formats: StrictBool = True
    name: Name = "schema"


class NotPlain(ValueError):
    """A value has no JSON form, so no schema can say anything of it."""


class SchemaValidator(Plugin):
    """Refuses arguments, and withholds results, that do not fit their JSON Schema.

    `arguments`, `results`: schemas (2020-12 unless `$schema` says otherwise) by glob of the tool.
    `declared`: hold arguments also against the schema that the tool was declared with.
    `missing`: what of a tool without any schema for its arguments. `formats`: `format` is held
    to as well (email, uri, date-time ...). Patterns run in linear time; look-around is refused,
    and a `$ref` is never fetched.

    Raises `ConfigError`, with the place, for a schema that cannot be used.
    """

    def __init__(
        self,
        *,
        arguments: Mapping[str, Schema] | None = None,
        results: Mapping[str, Schema] | None = None,
        declared: bool = True,
        missing: Literal["allow", "deny"] = "allow",
        formats: bool = True,
        name: str = "schema",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "schema", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "arguments": dict(arguments or {}),
                "results": dict(results or {}),
                "declared": declared,
                "missing": missing,
                "formats": formats,
                "name": name,
            },
            "schema",
        )
        if not declared and not settings.arguments and not settings.results:
            raise ConfigError("schema: states no schema and takes none from tools: it checks none")
        self.name = settings.name
        self._declared = settings.declared
        self._missing = settings.missing == "deny"
        self._formats = settings.formats
        self._arguments = first_match(
            self._compiled(settings.arguments, "schema.arguments"), "schema.arguments"
        )
        self._results = first_match(
            self._compiled(settings.results, "schema.results"), "schema.results"
        )
        self._any_result = bool(settings.results)
        self._of_tools: dict[int, tuple[Mapping[str, Any], Any]] = {}

    def pre_call(self, call: Call) -> PreVerdict:
        """Deny arguments that do not fit."""
        if call.kind != "tool":
            return None
        stated = self._arguments(call.name)
        schema = call.tool.schema if self._declared else None
        if stated is None and schema is None:
            if self._missing:
                return Deny("no schema is known for its arguments", rule=f"{self.name}/missing")
            return None
        arguments = call.arguments
        given: Any = arguments
        if call.tool.opaque or not is_flat(arguments):
            hidden = call.tool.opaque
            try:
                given = {k: plain(v) for k, v in arguments.items() if k not in hidden}
            except NotPlain as error:
                return Deny(f"an argument {error}", rule=f"{self.name}/arguments")
        elif type(arguments) is not dict:
            given = dict(arguments)
        if stated is not None:
            found = _fault(stated, given)
            if found is not None:
                return Deny(f"arguments do not fit the schema: {found}", f"{self.name}/arguments")
        if schema is not None:
            validator = self._of_tool(schema)
            if validator is None:
                return Deny("the tool's own schema cannot be used", rule=f"{self.name}/declared")
            found = _fault(validator, given)
            if found is not None:
                return Deny(
                    f"arguments do not fit the tool's schema: {found}", f"{self.name}/declared"
                )
        return None

    def post_call(self, call: Call, outcome: Outcome) -> PostVerdict:
        """Withhold a result that does not fit."""
        if not self._any_result or outcome.error is not None or call.kind != "tool":
            return None
        validator = self._results(call.name)
        if validator is None:
            return None
        value = outcome.value
        try:
            found = _fault(validator, value if is_flat_value(value) else plain(value))
        except NotPlain as error:
            found = str(error)
        if found is None:
            return None
        return Deny(f"its result does not fit the schema: {found}", rule=f"{self.name}/results")

    def _compiled(self, schemas: Mapping[str, Schema], where: str) -> dict[str, Any]:
        return {
            tool: _compile(schema, self._formats, f"{where}.{tool}")
            for tool, schema in schemas.items()
        }

    def _of_tool(self, schema: Mapping[str, Any]) -> Any:
        """The validator of a declared tool; None where its schema cannot be used."""
        known = self._of_tools.get(id(schema))
        if known is not None and known[0] is schema:
            return known[1]
        try:
            validator = _compile(plain(schema), self._formats, "schema")
        except (ConfigError, NotPlain):
            validator = None
        if len(self._of_tools) >= 4096:
            self._of_tools.clear()
        self._of_tools[id(schema)] = (schema, validator)
        return validator


def _compile(schema: Any, formats: bool, where: str) -> Any:
    try:
        return jsonschema_rs.validator_for(
            schema,
            validate_formats=formats,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except jsonschema_rs.ValidationError as error:
        place = "/".join(str(step) for step in error.instance_path)
        told = error.message.splitlines()[0]
        raise ConfigError(f"{where}{'/' + place if place else ''}: {told}") from None
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise ConfigError(f"{where}: not a JSON Schema: {error}") from None


def _fault(validator: Any, value: Any) -> str | None:
    """Which part of the schema is broken. Neither values nor keys of the data are told."""
    if validator.is_valid(value):
        return None
    error = next(iter(validator.iter_errors(value)))
    return "at " + "/".join(str(step) for step in error.schema_path)


def plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON data. Raises `NotPlain` for what has no such form, NaN included."""
    if depth > DEPTH:
        raise NotPlain("is nested too deeply")
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (float, Decimal)):
        if not math.isfinite(value):
            raise NotPlain("is not a finite number")
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, os.PathLike)):
        return str(value)
    fields = fields_of(value)
    if fields is None:
        raise NotPlain("has no JSON form")
    if not all(isinstance(key, str) for key in fields):
        raise NotPlain("has a key that is not text")
    return {key: plain(item, depth + 1) for key, item in fields.items()}
