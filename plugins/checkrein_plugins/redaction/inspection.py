"""One call under inspection: its values are redacted, refused, or told of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from checkrein.call import Call
from checkrein.verdicts import Deny
from checkrein_plugins.redaction.engine import Engine
from checkrein_plugins.redaction.faults import DetectorFailed, Unredactable
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.leaves import leaf_paths
from checkrein_plugins.redaction.memory import Memory, Recent
from checkrein_plugins.redaction.policy import Policy, ToolPolicy
from checkrein_plugins.redaction.pseudonyms import Book, Books
from checkrein_plugins.redaction.stream import TextFilter
from checkrein_plugins.redaction.tree import redacted

BLOBS = frozenset({"blob", "file", "uri", "image", "audio", "video"})
"""Types of message parts that are passed on byte for byte."""
UNAVAILABLE = "checker_unavailable"
"""Rule of a denial because nobody could check."""
Seen: TypeAlias = tuple[Any, Deny | None]
"""The value as it may go on, itself if nothing changed; or a denial."""

_log = logging.getLogger("checkrein.redaction")


@dataclass(slots=True)
class Shared:
    """What all inspections of one plugin have in common."""

    engine: Engine
    binary: str
    recent: Recent
    responses: Policy
    tool: Callable[[str], ToolPolicy]
    books: Books


class Inspection:
    """Looks at the values of one call."""

    __slots__ = ("_call", "_shared", "missed")

    def __init__(self, shared: Shared, call: Call) -> None:
        self._shared = shared
        self._call = call
        self.missed: set[str] = set()
        """Finders that failed and may."""

    def value(
        self,
        value: Any,
        chosen: Policy,
        path: str,
        skipped: frozenset[str] = frozenset(),
        memory: Memory | None = None,
    ) -> Seen:
        """Look at one value; `path` says in messages where it stands."""
        shared = self._shared
        if chosen.pseudonyms:
            book = shared.books.of(self._call.session)
            chosen = with_book(chosen, book)
            memory = book.memory if memory is not None else None
        try:
            new, found = redacted(
                value, shared.engine, chosen, shared.binary, skipped, memory, shared.recent,
                self.missed,
            )  # fmt: skip
        except Unredactable as error:
            place = f"{path}{error.path}" or "arguments"
            return value, Deny(f"{place}: {error.why}", rule="redaction.unchecked")
        except DetectorFailed as error:
            return value, Deny(f"{path or 'arguments'}: {error}", rule=UNAVAILABLE)
        if found and chosen.blocked:
            for category, place in _places(value, found, chosen.blocked, path, skipped):
                return value, Deny(f"{category} in {place}", rule=f"redaction.{category}")
        if found and chosen.warned:
            for category, place in _places(value, found, chosen.warned, path, skipped):
                warn(self._call, category, place)
        return new, None

    def fields(self, arguments: Mapping[str, Any], chosen: ToolPolicy) -> Seen:
        """Look at the arguments of a tool, some of them with settings of their own."""
        if not chosen.fields:
            if chosen.arguments.off:
                return arguments, None
            return self.value(arguments, chosen.arguments, "")
        rest = {name: arguments[name] for name in arguments if name not in chosen.fields}
        made = dict(arguments)
        changed = False
        if not chosen.arguments.off:
            new, denial = self.value(rest, chosen.arguments, "")
            if denial:
                return arguments, denial
            changed = new is not rest
            made.update(new)
        for name, field in chosen.fields.items():
            if name in arguments and not field.off:
                new, denial = self.value(arguments[name], field, name)
                if denial:
                    return arguments, denial
                changed = changed or new is not arguments[name]
                made[name] = new
        return (made if changed else arguments), None

    def message(self, value: Any) -> Seen:
        """A message that a model answered, or a list of them; anything else as a plain tree."""
        responses = self._shared.responses
        if type(value) is list:
            return self._each(value, self.message)
        if type(value) is dict and type(value.get("parts")) is list:
            parts, denial = self._each(value["parts"], self._part)
            rest = {name: value[name] for name in value if name != "parts"}
            new = rest
            if denial is None and not responses.off:
                new, denial = self.value(rest, responses, "response", BLOBS)
            if denial:
                return value, denial
            same = parts is value["parts"] and new is rest
            return (value if same else {**new, "parts": parts}), None
        if responses.off:
            return value, None
        return self.value(value, responses, "response", BLOBS)

    def _part(self, part: Any) -> Seen:
        if type(part) is dict and part.get("type") == "tool_call":
            chosen = self._shared.tool(str(part.get("name", "")))
            arguments = part.get("arguments")
            if type(arguments) is dict:
                made, denial = self.fields(arguments, chosen)
            elif chosen.arguments.off:
                return part, None
            else:
                made, denial = self.value(arguments, chosen.arguments, "tool_call.arguments")
            if denial or made is arguments:
                return part, denial
            return {**part, "arguments": made}, None
        if self._shared.responses.off:
            return part, None
        return self.value(part, self._shared.responses, "response", BLOBS)

    def _each(self, items: list[Any], one: Callable[[Any], Seen]) -> Seen:
        made = []
        changed = False
        for item in items:
            new, denial = one(item)
            if denial:
                return items, denial
            changed = changed or new is not item
            made.append(new)
        return (made if changed else items), None


def with_book(chosen: Policy, book: Book) -> Policy:
    """The policy with the placeholders of one session."""
    if not chosen.pseudonyms:
        return chosen
    return chosen._replace(marks={**(chosen.marks or {}), **book.marks(chosen.pseudonyms)})


def warn(call: Call, category: str, place: str) -> None:
    """Tell that a value was passed on."""
    _log.warning("%s in %s of %s (call %s) passed on", category, place, call.name, call.id)


def _places(
    value: Any,
    found: Mapping[int, list[Finding]],
    wanted: Collection[str],
    path: str,
    skipped: frozenset[str],
) -> list[tuple[str, str]]:
    """Category and place of findings of the `wanted` categories."""
    places: list[tuple[str, str]] = []
    paths: list[str] | None = None
    for index in sorted(found):
        for finding in found[index]:
            if finding.category in wanted:
                paths = leaf_paths(value, skipped) if paths is None else paths
                inner = paths[index]
                joint = "." if path and inner and inner[0] not in "[<" else ""
                places.append((finding.category, f"{path}{joint}{inner}" or "the text"))
    return places


class Stream:
    """Redacts one channel, or ends it with a denial where a category is blocked."""

    def __init__(
        self, engine: Engine, chosen: Policy, channel: str, call: Call, missed: set[str]
    ) -> None:
        self._filter = TextFilter(engine, chosen, missed)
        self._chosen = chosen
        self._channel = channel
        self._call = call
        self._denied: Deny | None = None
        self.holdback = self._filter.holdback

    def feed(self, text: str) -> str | Deny:
        """Return what may be delivered, or a denial: then nothing more may be."""
        return self._denied or self._checked(lambda: self._filter.feed(text))

    def flush(self) -> str | Deny:
        """Return the rest, or a denial."""
        return self._denied or self._checked(self._filter.flush)

    def abort(self) -> None:
        """Forget what was kept back."""
        self._filter.abort()

    def _checked(self, step: Callable[[], str]) -> str | Deny:
        try:
            out = step()
        except DetectorFailed as error:
            self._filter.abort()
            self._denied = Deny(f"{self._channel}: {error}", rule=UNAVAILABLE)
            return self._denied
        found = self._filter.found
        for _, _, category, _ in found:
            if category in self._chosen.blocked:
                self._filter.abort()
                self._denied = Deny(f"{category} in {self._channel}", rule=f"redaction.{category}")
                return self._denied
            if category in self._chosen.warned:
                warn(self._call, category, self._channel)
        found.clear()
        return out
