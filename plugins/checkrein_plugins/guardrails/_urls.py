"""URLs as a rule compares them: parsed strictly, in one normal form.

Anything that different clients read differently (backslashes, spaces, control characters, an
escaped host) is refused rather than guessed at.
"""

from __future__ import annotations

import ipaddress
import posixpath
import socket
import unicodedata
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from checkrein_plugins.guardrails._paths import Unreadable

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
WEB = frozenset({"http", "https"})


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL. `texts` holds each way its path may be read."""

    scheme: str
    host: str
    port: int | None
    """None where it is the scheme's own."""
    texts: tuple[str, ...]


def parse(value: str) -> Url:
    """Parse an absolute URL. Raises `Unreadable` where its host is not beyond doubt."""
    value = value.strip(" ")
    if any(c == "\\" or c.isspace() or not c.isprintable() for c in value):
        raise Unreadable("is a URL with a backslash, space or control character")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise Unreadable("is not a URL") from None
    scheme = parts.scheme.lower()
    if not scheme or not parts.hostname:
        raise Unreadable("is not an absolute URL with a host")
    host = _host(parts.hostname)
    if port == _PORTS.get(scheme):
        port = None
    shown = f"[{host}]" if ":" in host else host
    base = f"{scheme}://{shown}" + (f":{port}" if port is not None else "")
    query = f"?{parts.query}" if parts.query else ""
    path = parts.path or "/"
    paths = dict.fromkeys(_clean(p) for p in (path, unquote(path), unquote(unquote(path))))
    return Url(scheme, host, port, tuple(base + p + query for p in paths))


def _clean(path: str) -> str:
    """The path without dot segments; a trailing slash stays."""
    cleaned = posixpath.normpath("/" + path.lstrip("/"))
    return cleaned + "/" if path.endswith("/") and cleaned != "/" else cleaned


def _host(host: str) -> str:
    """The host in lower case and ASCII, without a trailing dot; addresses in one spelling."""
    if "%" in host:
        raise Unreadable("is a URL with an escaped host")
    host = unicodedata.normalize("NFKC", host).lower().rstrip(".")
    if not host:
        raise Unreadable("is a URL without a host")
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            raise Unreadable("is a URL with an invalid host") from None
    last = host.rpartition(".")[2]
    if ":" not in host and not last.isdigit() and not last.startswith("0x"):
        return host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return str(getattr(address, "ipv4_mapped", None) or address)
    # Clients read 2130706433, 0x7f.1 and 127.1 as addresses, as inet_aton does.
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        raise Unreadable("is a URL with an invalid address") from None


def split_patterns(patterns: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Patterns for a host (`*.example.com`), for host and port (`host:8443`), for whole URLs."""
    whole = [p for p in patterns if "://" in p]
    hosts = [_ascii(p.lower().rstrip(".")) for p in patterns if "://" not in p]
    ported = [p for p in hosts if p.count(":") == 1]
    return [p for p in hosts if p not in ported], ported, whole


def _ascii(pattern: str) -> str:
    """The pattern with each non-ASCII label as it stands in a parsed host."""
    labels = [
        label if label.isascii() or "*" in label else label.encode("idna").decode()
        for label in unicodedata.normalize("NFKC", pattern).split(".")
    ]
    return ".".join(labels)
