"""Configuration files: TOML and YAML 1.2 to plain data, and the line of every key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from checkrein.errors import ConfigError

Key: TypeAlias = "tuple[str | int, ...]"
"""Where a value stands: `("plugins", "scope", "rules", 0, "tool")`."""

SUFFIXES = (".toml", ".yaml", ".yml")
FOLDER: ContextVar[Path | None] = ContextVar("checkrein_folder", default=None)
"""Where the relative paths of a configuration begin: set while its plugins are built."""

MOST = 1_000_000
"""Largest file that is read, in bytes: a policy is written by people."""


@dataclass(slots=True)
class Document:
    """A configuration as plain data, and where each part of it was written."""

    data: dict[str, Any]
    name: str = "configuration"
    path: Path | None = None
    lines: dict[Key, int] = field(default_factory=dict)

    def line(self, key: Sequence[str | int]) -> int | None:
        """Line of `key`, or of the nearest thing around it that has one."""
        for length in range(len(key), 0, -1):
            line = self.lines.get(tuple(key[:length]))
            if line is not None:
                return line
        return None

    def error(self, key: Sequence[str | int], text: str) -> ConfigError:
        """An error about `key`, with file and line."""
        line = self.line(key)
        where = f"{self.name}:{line}" if line is not None else self.name
        return ConfigError(f"{where}: {dotted(key)}: {text}" if key else f"{where}: {text}")


def dotted(key: Sequence[str | int]) -> str:
    """`plugins.scope.rules[0].tool`."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"'
            text += f".{shown}" if text else shown
    return text


def read(path: Path) -> Document:
    """Read a file by its ending. Raises `ConfigError` with file and line."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"{path}: name it *.toml, *.yaml or *.yml: the ending says how to read it"
        )
    try:
        if path.stat().st_size > MOST:
            raise ConfigError(f"{path}: larger than {MOST:_} bytes: not a configuration")
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; `checkrein init` writes one") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 (byte {error.start})") from None
    document = Document({}, str(path), path)
    if path.suffix.lower() == ".toml":
        _toml(document, text)
    else:
        _yaml(document, text)
    return document


# -- TOML


def _toml(document: Document, text: str) -> None:
    try:
        document.data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        told = str(error)
        found = re.search(r" \(at line (\d+), column (\d+)\)$", told)
        if found is None:
            raise ConfigError(f"{document.name}: {told}") from None
        line = int(found[1])
        why = told[: found.start()]
        if why.startswith(("Cannot overwrite", "Cannot declare", "Cannot redefine")):
            key = text.splitlines()[line - 1].strip()
            why = f"{key}: defined twice; keep one of them ({why})"
        raise ConfigError(f"{document.name}:{line}: {why}") from None
    document.lines = dict(_toml_lines(text))


_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")


def _toml_key(text: str) -> tuple[list[str], str]:
    """A dotted key at the beginning of `text`, and what follows it."""
    parts: list[str] = []
    while True:
        found = _PART.match(text)
        if found is None:
            return parts, text
        parts.append(next(group for group in found.groups() if group is not None))
        text = text[found.end() :]
        if not text.startswith("."):
            return parts, text
        text = text[1:]


_SKIP = re.compile(
    r'"""(?:[^\\]|\\.)*?"""'
    r"|'''.*?'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[\]{}\n]",
    re.DOTALL,
)


def _toml_lines(text: str) -> Iterator[tuple[Key, int]]:
    """(key, line) of the tables and keys of a text that `tomllib` has accepted.

    A second, coarse reading, because `tomllib` keeps no places: it looks at where statements
    begin. What stands inside an inline value has the line at which its statement begins.
    """
    table: Key = ()
    counts: dict[Key, int] = {}
    for line, statement in _statements(text):
        if statement.startswith("[["):
            parts, _ = _toml_key(statement[2:])
            base = _place(parts, counts)
            counts[base] = counts.get(base, -1) + 1
            table = (*base, counts[base])
            yield base, line
            yield table, line
        elif statement.startswith("["):
            parts, _ = _toml_key(statement[1:])
            table = _place(parts, counts)
            yield table, line
        else:
            parts, _ = _toml_key(statement)
            for length in range(1, len(parts) + 1):
                yield (*table, *parts[:length]), line


def _place(parts: list[str], counts: dict[Key, int]) -> Key:
    """A header's key, with the number of the last element of each array of tables in it."""
    key: Key = ()
    for index, part in enumerate(parts):
        key = (*key, part)
        if key in counts and index < len(parts) - 1:
            key = (*key, counts[key])
    return key


def _statements(text: str) -> Iterator[tuple[int, str]]:
    depth = 0
    line = begun = 1
    start = 0
    header = False
    for token in _SKIP.finditer(text):
        what = token[0]
        if what == "\n":
            if depth <= 0:
                statement = text[start : token.start()].strip()
                if statement and not statement.startswith("#"):
                    yield begun, statement
                start, begun, depth, header = token.end(), line + 1, 0, False
            line += 1
            continue
        line += what.count("\n")
        if what in "[{":
            header = header or not text[start : token.start()].strip()
            depth += not header
        elif what in "]}":
            depth -= not header
    statement = text[start:].strip()
    if statement and not statement.startswith("#"):
        yield begun, statement


# -- YAML


def _yaml(document: Document, text: str) -> None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    reader = YAML(typ="safe", pure=True)
    try:
        data = reader.load(text)
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark is not None else 1
        why = str(error.problem or "cannot be read").splitlines()[0]
        if why.startswith("found duplicate key"):
            why = "defined twice; keep one of them (" + why.partition(" with value")[0] + ")"
        raise ConfigError(f"{document.name}:{line}: {why}") from None
    except YAMLError as error:
        raise ConfigError(f"{document.name}: {str(error).splitlines()[0]}") from None
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{document.name}:1: must hold keys such as `store:`, not one value")
    document.lines = dict(_yaml_lines(root, ()))
    _text_keys(document, data, ())
    document.data = data


def _yaml_lines(node: Any, key: Key) -> Iterator[tuple[Key, int]]:
    from ruamel.yaml.nodes import MappingNode, SequenceNode

    if isinstance(node, MappingNode):
        for name, value in node.value:
            inner = (*key, str(name.value))
            yield inner, name.start_mark.line + 1
            yield from _yaml_lines(value, inner)
    elif isinstance(node, SequenceNode):
        for index, value in enumerate(node.value):
            inner = (*key, index)
            yield inner, value.start_mark.line + 1
            yield from _yaml_lines(value, inner)


def _text_keys(document: Document, value: Any, key: Key) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise document.error((*key, str(name)), "a key must be text: put it in quotes")
            _text_keys(document, inner, (*key, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _text_keys(document, inner, (*key, index))
