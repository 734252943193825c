"""The shape of a connector's table. Imported only where one is read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from checkrein.errors import ConfigError


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class MethodTable(_Strict):
    """`[methods."path.to.method"]`: what one method does, and how it is taken back."""

    operation: Literal["create", "read", "update", "delete"] | None = None
    undo: str | None = None
    """A template, the names in it without the connector's; `none`; or `python:module:function`,
    alone (it takes by name) or with arguments like a template."""
    why: str = ""
    """Why there is no undo, for `none`."""
    before: str | None = None
    """Reader of the state before: a template of a call on the client, or `python:module:function`,
    which takes the client (or the object that the method is of) and the call's arguments."""
    probe: str | None = None
    """`python:module:function`: it takes the client, and by name what a probe takes."""
    settle_time: float = 30.0
    undo_safe_to_repeat: bool = False
    idempotency: str | None = None
    """Where the call takes an idempotency key: `options.idempotency_key`."""
    idempotent: bool = False
    description: str = ""


class ClassTable(_Strict):
    """`[classes.Name]`: objects that the client gives."""

    type: str
    """`module:Class`."""
    locator: str | None = None


class ConnectorTable(_Strict):
    """A whole table."""

    connector: str
    package: str
    """The distribution that it is for."""
    tested: str
    """The version that it was checked against."""
    client: str
    """`module:Class` of the client that is wrapped."""
    classes: dict[str, ClassTable] = {}
    methods: dict[str, MethodTable] = Field(min_length=1)


def validate(data: dict[str, Any], where: str) -> ConnectorTable:
    """Check the shape. Raises `ConfigError` with the place of the first fault."""
    try:
        return ConnectorTable.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{where}: {place}: {first['msg']}") from None
