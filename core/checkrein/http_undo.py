"""Undo by an HTTP request: what a call made over there is deleted, or put back, over there.

    undo=http_delete("https://api.example.org/items/{result.id}")
    undo=HttpUndo("PUT", "https://api.example.org/items/{item}", json={"name": "{before.name}"})

Paths in braces are filled when the call ends, and the finished request is stored. `${NAME}` in a
header is read from the environment when the undo runs: no secret is stored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from checkrein.call import ToolInfo
from checkrein.errors import ConfigError
from checkrein.undo import MISSING, NotUndoable, Path, encoded_plan, parse_path, value_at

if TYPE_CHECKING:
    from checkrein.tool import Tool

TOOL = "checkrein.http"
"""Name of the tool that sends stored requests."""

METHODS = ("DELETE", "POST", "PUT", "PATCH")
TIMEOUT = 30.0
"""Seconds that an undo waits for an answer."""

_BRACES = re.compile(r"\{([^{}$]*)\}")
_ENVIRONMENT = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class HttpUndo:
    """A request that takes a call back. Every attempt carries one `Idempotency-Key`."""

    method: str
    url: str
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


def http_delete(url: str, headers: Mapping[str, str] | None = None) -> HttpUndo:
    """`DELETE url`. An answer of 404 or 410 means that it is gone, which is what was wanted."""
    return HttpUndo("DELETE", url, None, headers or {})


class HttpPlan:
    """An `HttpUndo` of one tool, before a call gives it values."""

    name = TOOL

    def __init__(self, undo: HttpUndo, tool: Tool) -> None:
        where = f"tool {tool.info.name}: undo {undo.method} {undo.url}"
        if undo.method not in METHODS:
            raise ConfigError(f"{where}: use one of {', '.join(METHODS)}")
        parts = urlsplit(undo.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(f"{where}: not an http or https address")
        if "{" in parts.netloc:
            raise ConfigError(f"{where}: its host must be fixed: a result must not choose it")
        self.undo = undo
        paths: list[Path] = []
        for text in _texts([undo.url, undo.json, dict(undo.headers)]):
            for inside in _BRACES.findall(_ENVIRONMENT.sub("", text)):
                path = parse_path(inside, where)
                known = (*tool.parameters, "result", "key", *(("before",) if tool.before else ()))
                if tool.signature_known and path[0] not in known:
                    raise ConfigError(
                        f"{where}: {path[0]!r} is neither `result`"
                        + (", `before`" if tool.before else "")
                        + " nor a parameter of the tool"
                    )
                paths.append(path)
        self.parameters = tuple((".".join(map(str, path)), path) for path in paths)

    def stored(
        self, arguments: Mapping[str, Any], result: Any = MISSING, before: Any = MISSING
    ) -> dict[str, Any]:
        """The finished request, as it is recorded. Raises `NotUndoable`."""

        def at(inside: str) -> Any:
            path: Path = parse_path(inside, "undo")
            return value_at(path, arguments, result, before, TOOL)

        request = {
            "method": self.undo.method,
            "url": _filled(self.undo.url, lambda inside: quote(str(at(inside)), safe="")),
            "json": _tree(self.undo.json, at),
            "headers": {
                name: _filled(text, lambda inside: str(at(inside)))
                for name, text in self.undo.headers.items()
            },
        }
        for name, text in request["headers"].items():
            if "\n" in text or "\r" in text:
                raise NotUndoable(f"undo {TOOL}: header {name} would hold a line break")
        return encoded_plan(TOOL, request, {"key": "key"})


def _texts(tree: Any) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    if isinstance(tree, Mapping):
        return [text for value in tree.values() for text in _texts(value)]
    if isinstance(tree, (list, tuple)):
        return [text for value in tree for text in _texts(value)]
    return []


def _filled(text: str, value: Callable[[str], str]) -> str:
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match.group())
        return f"\0{len(kept) - 1}\0"

    filled = _BRACES.sub(lambda m: value(m.group(1)), _ENVIRONMENT.sub(keep, text))
    return re.sub("\0(\\d+)\0", lambda m: kept[int(m.group(1))], filled)


def _tree(tree: Any, at: Callable[[str], Any]) -> Any:
    if isinstance(tree, str):
        whole = _BRACES.fullmatch(tree)
        return at(whole.group(1)) if whole else _filled(tree, lambda inside: str(at(inside)))
    if isinstance(tree, Mapping):
        return {key: _tree(value, at) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_tree(value, at) for value in tree]
    return tree


def send(method: str, url: str, json: Any, headers: Mapping[str, str], key: str) -> int:
    """Send a stored request; the answer's status. Raises `OSError` for one that failed."""
    import http.client
    from json import dumps

    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    given = {name: _ENVIRONMENT.sub(_from_environment, text) for name, text in headers.items()}
    given.setdefault("Idempotency-Key", key)
    body = None
    if json is not None:
        body = dumps(json)
        given.setdefault("Content-Type", "application/json")
    connection = kind(parts.netloc, timeout=TIMEOUT)
    try:
        target = parts.path or "/"
        connection.request(
            method, f"{target}?{parts.query}" if parts.query else target, body, given
        )
        answer = connection.getresponse()
        answer.read()
    finally:
        connection.close()
    gone = method == "DELETE" and answer.status in (404, 410)
    if not gone and not 200 <= answer.status < 300:
        raise OSError(f"{method} {parts.netloc} answered {answer.status}")
    return answer.status


def _from_environment(match: re.Match[str]) -> str:
    found = os.environ.get(match.group(1))
    if found is None:
        raise OSError(f"the environment has no {match.group(1)}, which the undo's header needs")
    return found


def tool() -> Tool:
    """The tool that sends stored requests."""
    from checkrein.tool import Tool as ToolClass

    return ToolClass(ToolInfo(TOOL, "Sends the request that undoes a call.", server="http"), send)
