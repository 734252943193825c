"""UrlGuard: where a call may reach out to, judged by what a client would make of the URL.

Looked at are URLs anywhere in the arguments: whole values, URLs inside longer texts, values of
arguments that are called like one (`url`, `host` ...) even without a scheme, and URLs that stand
in the query of another one, as open redirects take them. What two clients would read differently
(backslashes, escaped hosts, control characters) is refused.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Never
from urllib.parse import parse_qsl, unquote, urlsplit

import re2  # type: ignore[import-untyped]  # the package ships no type information
from pydantic import Field, StrictBool, StrictInt

from checkrein.call import Call, Outcome
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Deny, PostVerdict, PreVerdict
from checkrein_plugins._config import Name, Settings, Text, Texts, listed, read, refuse_unknown
from checkrein_plugins._patterns import globs
from checkrein_plugins._selection import selected
from checkrein_plugins.guardrails._arguments import leaves_of
from checkrein_plugins.guardrails._paths import Unreadable
from checkrein_plugins.guardrails._urls import Url, parse, split_patterns

URL_NAMES = frozenset(
    (
        "url", "uri", "href", "link", "endpoint", "host", "hostname", "domain", "site", "website",
        "webhook", "callback", "base_url", "origin", "proxy", "urls", "uris", "links",
        "hosts", "domains", "redirect", "redirect_uri",
    )
)  # fmt: skip
"""Names of arguments whose values are read as URLs, with or without a scheme."""

_IN_TEXT = re2.compile(r"(?i)(?:[a-z][a-z0-9+.\-]{1,20}:)?(?://|\\\\|/\\|\\/)[^\s\"'<>`|]+")
"""A URL in a text, also without a scheme, also with the backslashes that browsers take."""

_OPAQUE = re2.compile(r"(?i)\s*(?:javascript|data|vbscript|file|blob|about|view-source|jar):.*")
"""Schemes that need no `//`."""

_LOCAL = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".intranet", ".corp")
"""Ends of names that are resolved inside a network only."""

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}

LOOK_UP = 10.0
"""Seconds that looking names up may take; then the call is refused."""

_DEPTH = 4
"""How deep URLs in queries of URLs are followed; beyond, they are refused."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_6TO4 = ipaddress.ip_network("2002::/16")


class _Settings(Settings):
    allow: Texts | None = None
    block: Texts | None = None
    schemes: Texts = Field(default_factory=lambda: ["http", "https"])
    ports: Annotated[list[Annotated[StrictInt, Field(ge=1, le=65535)]], Field(min_length=1)] | None
    private: StrictBool = False
    userinfo: StrictBool = False
    in_text: StrictBool = True
    resolve: StrictBool = False
    arguments: list[Text] = Field(default_factory=list)
    tools: Texts | None = None
    exempt: Texts | None = None
    results: StrictBool = True
    name: Name = "urls"


class UrlGuard(Plugin):
    """Refuses calls with a URL that leads where they may not go.

    `allow`, `block`: hosts (`example.com`, `*.example.com`), hosts with a port (`host:8443`) or
    globs of whole URLs (`https://example.com/api/*`). `schemes`: which there may be. `ports`: which
    there may be beside the scheme's own; None: any. `private`: allow addresses of this machine
    and of local networks, and names that are resolved there. `userinfo`: allow `user@host`.
    `in_text`: look at URLs inside longer texts. `resolve`: also look names up, and refuse those
    with a private address (the client looks them up again, so this closes no race).
    `arguments`: further names of arguments that hold a URL. `results`: withhold a result that
    tells of a redirect to a refused place (`url`, `location`, `history`).

    A redirect is followed by the client, out of sight of any check of arguments: give the client
    `check(url)` to ask before it follows one.

    Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        allow: Sequence[str] | None = None,
        block: Sequence[str] | None = None,
        schemes: Sequence[str] = ("http", "https"),
        ports: Sequence[int] | None = None,
        private: bool = False,
        userinfo: bool = False,
        in_text: bool = True,
        resolve: bool = False,
        arguments: Sequence[str] = (),
        tools: Sequence[str] | None = None,
        exempt: Sequence[str] | None = None,
        results: bool = True,
        name: str = "urls",
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "urls", tuple(_Settings.model_fields))
        settings = read(
            _Settings,
            {
                "allow": listed(allow),
                "block": listed(block),
                "schemes": listed(schemes),
                "ports": listed(ports),
                "private": private,
                "userinfo": userinfo,
                "in_text": in_text,
                "resolve": resolve,
                "arguments": listed(arguments),
                "tools": listed(tools),
                "exempt": listed(exempt),
                "results": results,
                "name": name,
            },
            "urls",
        )
        both = {p.lower() for p in settings.allow or ()} & {p.lower() for p in settings.block or ()}
        if both:
            raise ConfigError(f"urls: {min(both)!r} is both allowed and blocked")
        if settings.private and settings.resolve:
            raise ConfigError("urls.resolve: has no meaning where private addresses are allowed")
        self.name = settings.name
        self._allow = (
            None if settings.allow is None else _matcher(settings.allow, "urls.allow", block=False)
        )
        self._block = _matcher(settings.block or [], "urls.block", block=True)
        if settings.resolve:
            # Looking a name up takes a while: on a thread, and not for ever.
            self.timeout = LOOK_UP
        self._schemes = frozenset(scheme.lower() for scheme in settings.schemes)
        self._ports = None if settings.ports is None else frozenset(settings.ports)
        self._private = settings.private
        self._userinfo = settings.userinfo
        self._in_text = settings.in_text
        self._resolve = settings.resolve
        self._names = URL_NAMES | {argument.lower() for argument in settings.arguments}
        self._looks = selected(settings.tools, settings.exempt, "urls")
        self._results = settings.results
        self._rule = f"{self.name}/url"

    def pre_call(self, call: Call) -> PreVerdict:
        """Deny where one of the URLs may not be reached."""
        if call.kind != "tool" or not self._looks(call.name):
            return None
        names = self._names
        for name, value in call.arguments.items():
            named = name in names or name.lower() in names
            if type(value) is str:
                if not named and not _suspicious(value):
                    continue
                problem = self._text(value, named)
            elif value is None or type(value) in (int, float, bool):
                # An integer is an address to some clients.
                problem = self._text(str(value), True) if named and type(value) is int else None
            else:
                problem = self._tree(value, named)
            if problem is not None:
                return Deny(f"argument {name!r} {problem}", rule=self._rule)
        return None

    def post_call(self, call: Call, outcome: Outcome) -> PostVerdict:
        """Withhold what was fetched from a place that a redirect led to."""
        if not self._results or call.kind != "tool" or outcome.error is not None:
            return None
        value = outcome.value
        if value is None or type(value) in (str, int, float, bool, bytes, list, tuple):
            return None
        if not self._looks(call.name):
            return None
        for url in _led_to(value):
            problem = self.check(url)
            if problem is not None:
                return Deny(f"its result comes by a redirect that {problem}", rule=self._rule)
        return None

    def check(self, url: str) -> str | None:
        """What is wrong with a URL; None if it may be reached."""
        return self._url(url, 0)

    def _tree(self, value: Any, named: bool) -> str | None:
        try:
            for key, leaf in _named_leaves(value, named, self._names):
                problem = self._text(leaf, key)
                if problem is not None:
                    return problem
        except Unreadable as error:
            return str(error)
        return None

    def _text(self, text: str, named: bool) -> str | None:
        """Every URL in a text."""
        bare = text.strip()
        if not bare:
            return None
        if named and not _IN_TEXT.match(bare) and not _OPAQUE.fullmatch(bare):
            if "://" in bare:
                return self._url(bare, 0)
            return self._url("//" + bare, 0) if _like_host(bare) else None
        if _OPAQUE.fullmatch(bare):
            return self._url(bare, 0)
        whole = _IN_TEXT.fullmatch(bare)
        if whole is not None or named:
            return self._url(bare, 0)
        if not self._in_text:
            return None
        for found in _IN_TEXT.finditer(text):
            url = str(found.group()).rstrip(".,;:!?)]}")
            # A path or a comment in a text is no URL: without a scheme only a name counts.
            if url.startswith("//") and "." not in url.partition("?")[0][2:].partition("/")[0]:
                continue
            problem = self._url(url, 0)
            if problem is not None:
                return problem
        return None

    def _url(self, text: str, depth: int) -> str | None:
        if depth > _DEPTH:
            return "has URLs inside URLs, too deeply"
        if text.startswith("//"):
            text = "https:" + text
        scheme = text.partition(":")[0].strip().lower()
        if scheme not in self._schemes:
            return f"has a scheme other than {', '.join(sorted(self._schemes))}"
        try:
            url = parse(text)
        except Unreadable as error:
            return str(error)
        if not self._userinfo and "@" in urlsplit(text.strip(" ")).netloc:
            return "is a URL with a user name before the host"
        if url.port is not None and self._ports is not None and url.port not in self._ports:
            return "is a URL with a port that is not allowed"
        if self._block(url):
            return "leads to a blocked place"
        if self._allow is not None and not self._allow(url):
            return "leads outside what is allowed"
        if not self._private and (problem := self._inside(url)) is not None:
            return problem
        return self._query(text, depth)

    def _inside(self, url: Url) -> str | None:
        """Whether a host is of this machine or a local network."""
        host = url.host
        address = _address(host)
        if address is not None:
            return None if public(address) else "leads to a private address"
        if host == "localhost" or host.endswith(_LOCAL) or "." not in host:
            return "leads to a name of a private network"
        if self._resolve:
            try:
                found = {str(info[4][0]) for info in socket.getaddrinfo(host, url.port or 443)}
            except OSError:
                return "has a host that cannot be looked up"
            for text in found:
                if not public(ipaddress.ip_address(text.partition("%")[0])):
                    return "has a host with a private address"
        return None

    def _query(self, text: str, depth: int) -> str | None:
        """URLs that stand in the query or fragment: where an open redirect would lead."""
        parts = urlsplit(text)
        if not parts.query and not parts.fragment:
            return None
        values = [value for _, value in parse_qsl(parts.query, keep_blank_values=False)]
        values += [unquote(parts.fragment)] if parts.fragment else []
        for value in values:
            bare = value.strip()
            if _IN_TEXT.match(bare) or _OPAQUE.fullmatch(bare):
                problem = self._url(bare, depth + 1)
                if problem is not None:
                    return problem
        return None


def public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is of the open internet, whatever it is wrapped in."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return public(inner)
    return address.is_global and not address.is_multicast


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    last = host.rpartition(".")[2]
    if ":" not in host and not last.isdigit():
        return None
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _matcher(patterns: Sequence[str], where: str, *, block: bool) -> Callable[[Url], bool]:
    """A matcher of parsed URLs.

    A path that can be read in several ways is allowed if all of them are, blocked if any is.
    """
    for index, pattern in enumerate(patterns):
        bare = pattern.strip().rstrip(".")
        if not bare or ("/" in pattern and "://" not in pattern):
            raise ConfigError(f"{where}[{index}]: neither a host, host:port nor a whole URL")
    try:
        plain, ported, whole = split_patterns(list(patterns))
    except UnicodeError:
        raise ConfigError(f"{where}: a host that cannot be written in ASCII") from None
    host, with_port, url = globs(plain), globs(ported), globs(whole)
    fits = any if block else all

    def matches(parsed: Url) -> bool:
        if host(parsed.host):
            return True
        if ported:
            port = parsed.port or _PORTS.get(parsed.scheme, 0)
            if with_port(f"{parsed.host}:{port}"):
                return True
        return bool(whole) and fits(url(text) for text in parsed.texts)

    return matches


def _suspicious(text: str) -> bool:
    """Whether there can be a URL in a text: two characters tell most texts apart."""
    return "//" in text or "\\" in text or (":" in text and _OPAQUE.fullmatch(text) is not None)


def _like_host(text: str) -> bool:
    """Whether a text without a scheme begins with something that a client takes for a host."""
    head = text.partition("/")[0].partition("?")[0].rpartition("@")[2]
    if not head or any(c.isspace() for c in head):
        return False
    host = head.rstrip(".")
    return (
        "." in host or ":" in host or host.isdigit() or host.lower() == "localhost" or "@" in text
    )


def _named_leaves(value: Any, named: bool, names: Iterable[str]) -> Iterator[tuple[bool, str]]:
    """(is it named like a URL, text) for every text inside a value, keys included."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            is_named = named
            if isinstance(key, str):
                is_named = named or key.lower() in names
                yield False, key
            yield from _named_leaves(item, is_named, names)
        return
    for is_key, leaf in leaves_of(value, 0):
        if isinstance(leaf, bytes):
            yield False, leaf.decode("utf-8", "replace")
        elif isinstance(leaf, str):
            yield named and not is_key, leaf


def _led_to(value: Any) -> Iterator[str]:
    """URLs that a response says it came from, or would lead to."""
    history = _part(value, "history")
    for response in [value, *(history if isinstance(history, (list, tuple)) else ())]:
        url = _part(response, "url")
        if url is not None and type(url) not in (int, float, bool, dict, list):
            yield str(url)
        headers = _part(response, "headers")
        if isinstance(headers, Mapping):
            for key, location in headers.items():
                if isinstance(key, str) and key.lower() == "location":
                    text = str(location)
                    if "//" in text:
                        yield text


def _part(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)
