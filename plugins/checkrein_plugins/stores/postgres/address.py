"""Where a PostgreSQL store is: the server's address, and the schema inside its database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from checkrein.errors import ConfigError

SCHEMA = "checkrein"
"""The schema where none is named."""
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed URL."""

    server: str
    """What the driver connects to; may hold a password."""
    schema: str
    shown: str
    """The URL without its password."""


def address_of(url: str) -> Address:
    """Read `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME`.

    Further parameters are the driver's. Raises `ConfigError`; the URL is never in its text.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError("store: not a PostgreSQL address (is the port a number?)") from None
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = given.pop("schema", SCHEMA)
    if not _NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise ConfigError(
            "store: schema must be lower-case letters, digits and _, 41 at most, "
            "and not begin with pg_"
        )
    server = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(given), ""))
    host = (parts.hostname or "") + (f":{port}" if port else "")
    user = f"{parts.username}@" if parts.username else ""
    public: dict[str, Any] = {k: v for k, v in given.items() if "pass" not in k}
    if schema != SCHEMA:
        public["schema"] = schema
    shown = urlunsplit(("postgresql", user + host, parts.path, urlencode(public), ""))
    return Address(server, schema, shown)
