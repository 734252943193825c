"""The plugin: what leaves for a model, a tool or a person is redacted on the way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from checkrein.call import Call, Outcome
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin, StreamFilter
from checkrein.verdicts import Deny, Replace, Rewrite, Sink
from checkrein_plugins.redaction import policy as rules
from checkrein_plugins.redaction.custom import detectors
from checkrein_plugins.redaction.engine import Engine
from checkrein_plugins.redaction.faults import Unredactable
from checkrein_plugins.redaction.findings import DEFAULT_CATEGORIES, Finding
from checkrein_plugins.redaction.leaves import BINARY, leaf_paths
from checkrein_plugins.redaction.memory import Memory, Recent
from checkrein_plugins.redaction.policy import Policy, ToolPolicy
from checkrein_plugins.redaction.stream import TextFilter
from checkrein_plugins.redaction.text import engine_with, known
from checkrein_plugins.redaction.tree import redacted

BLOBS = frozenset({"blob", "file", "uri", "image", "audio", "video"})
"""Types of message parts that are passed on byte for byte."""
_REMEMBERED = 512
"""Tools whose policy is kept."""


class Redaction(Plugin):
    """Finds private data and secrets, and redacts, keeps or blocks them.

    Args:
        categories: What to look for; None = `DEFAULT_CATEGORIES`.
        requests: What to do with what a model is sent: system text and the whole history, with
            the arguments and results of tools in it.
        responses: ... with what a model answers. Arguments of the tool calls in it follow the
            tool's own settings.
        arguments: ... with what a tool is given. Undo calls are never changed.
        results: ... with what a tool returns.
        per_tool: Settings by tool name or whole-name glob; later ones override earlier ones.
            `keep`: categories that the tool's arguments keep. `arguments`, `results`: as above.
            `fields`: the same by name of a top-level argument.
        custom: Categories of your own: name to `pattern` (RE2 syntax) or `words`, with
            `ignore_case` and `check` (called with the matched text). Values lie within a line.
        binary: `refuse` bytes that are not UTF-8, or `keep` them unchecked.

    Each of `requests`, `responses`, `arguments` and `results` is one of the actions `redact`,
    `keep`, `block`, or a mapping of category to action, where what is not named is redacted.

    Raises:
        ConfigError: names the key, and what is wrong with it.
    """

    rewrites = True

    def __init__(
        self,
        categories: Iterable[str] | None = None,
        *,
        requests: str | Mapping[str, str] = "redact",
        responses: str | Mapping[str, str] = "redact",
        arguments: str | Mapping[str, str] = "redact",
        results: str | Mapping[str, str] = "redact",
        per_tool: Mapping[str, Mapping[str, Any]] | None = None,
        custom: Mapping[str, Mapping[str, Any]] | None = None,
        binary: str = "refuse",
    ) -> None:
        own = detectors(custom)
        built_in = known(categories, DEFAULT_CATEGORIES)
        chosen = built_in | own.keys()
        if not chosen:
            raise ConfigError("categories: at least one is needed")
        if binary not in BINARY:
            raise ConfigError(f"binary: {binary!r} is none of {', '.join(BINARY)}")
        self.categories = chosen
        self._engine = engine_with(built_in, own)
        self._requests = rules.policy(rules.actions(requests, "requests", chosen))
        self._responses = rules.policy(rules.actions(responses, "responses", chosen))
        self._arguments = rules.actions(arguments, "arguments", chosen)
        self._results = rules.actions(results, "results", chosen)
        self._rules = rules.tool_rules(per_tool, chosen)
        self._tools: dict[str, ToolPolicy] = {}
        self._binary = binary
        self._memory = Memory()
        self._recent = Recent()

    def start(self, rein: Any) -> None:
        """Compile the patterns, so that the first call does not wait for it."""
        self._engine.compile()

    def pre_call(self, call: Call) -> Rewrite | Deny | None:
        """Redact what a model or a tool is about to be given."""
        if call.kind == "model":
            return self._model_request(call)
        if call.kind == "undo":
            return None  # runs exactly as planned, from what was recorded
        return self._tool_arguments(call)

    def post_call(self, call: Call, outcome: Outcome) -> Replace | Deny | None:
        """Redact what a model or a tool has returned."""
        value = outcome.value
        if value is None or outcome.error is not None:
            return None
        if call.kind == "model":
            return self._model_response(value)
        if call.kind == "undo":
            return None
        chosen = self._tool(call.name).results
        if chosen.off:
            return None
        new, denial = self._apply(value, chosen, "result")
        return denial or (None if new is value else Replace(new))

    def view(self, call: Call, value: Any, sink: Sink) -> Any:
        """Mask every category, whatever the tool itself may keep."""
        if isinstance(value, BaseException):
            text = str(value)
            new = redacted(text, self._engine)[0]
            return value if new == text else f"{type(value).__name__}: {new}"
        return redacted(value, self._engine, binary=self._binary, recent=self._recent)[0]

    def open_stream(self, call: Call, channel: str) -> StreamFilter | None:
        """Filter text and reasoning as they arrive; tool arguments arrive whole."""
        if channel.startswith("tool:") or self._responses.off:
            return None
        return Stream(self._engine, self._responses, channel)

    def _tool(self, name: str) -> ToolPolicy:
        found = self._tools.get(name)
        if found is None:
            if len(self._tools) >= _REMEMBERED:
                self._tools.clear()
            found = rules.tool_policy(name, self._rules, self._arguments, self._results)
            self._tools[name] = found
        return found

    def _tool_arguments(self, call: Call) -> Rewrite | Deny | None:
        chosen = self._tool(call.name)
        if not chosen.fields:
            if chosen.arguments.off:
                return None
            new, denial = self._apply(call.arguments, chosen.arguments, "")
            return denial or (
                None if new is call.arguments else Rewrite(call.replace(arguments=new))
            )
        made, denial = self._by_field(call.arguments, chosen)
        return denial or (None if made is call.arguments else Rewrite(call.replace(arguments=made)))

    def _by_field(
        self, arguments: Mapping[str, Any], chosen: ToolPolicy
    ) -> tuple[Any, Deny | None]:
        rest = {name: arguments[name] for name in arguments if name not in chosen.fields}
        made = dict(arguments)
        changed = False
        if not chosen.arguments.off:
            new, denial = self._apply(rest, chosen.arguments, "")
            if denial:
                return arguments, denial
            changed = new is not rest
            made.update(new)
        for name, field in chosen.fields.items():
            if name in arguments and not field.off:
                new, denial = self._apply(arguments[name], field, name)
                if denial:
                    return arguments, denial
                changed = changed or new is not arguments[name]
                made[name] = new
        return (made if changed else arguments), None

    def _apply(
        self,
        value: Any,
        chosen: Policy,
        path: str,
        skipped: frozenset[str] = frozenset(),
        memory: Memory | None = None,
    ) -> tuple[Any, Deny | None]:
        """Return (redacted value, None), or a denial if a blocked category is in it."""
        try:
            new, found = redacted(
                value, self._engine, chosen.kept, self._binary, skipped, memory, self._recent
            )
        except Unredactable as error:
            place = f"{path}{error.path}" or "arguments"
            return value, Deny(f"{place}: {error.why}", rule="redaction.unchecked")
        if found and chosen.blocked:
            denial = _blocked(value, found, chosen.blocked, path, skipped)
            if denial:
                return value, denial
        return new, None

    def _model_request(self, call: Call) -> Rewrite | Deny | None:
        if self._requests.off:
            return None
        arguments = call.arguments
        checked = {name: arguments[name] for name in arguments if name != "tools"}
        new, denial = self._apply(checked, self._requests, "", BLOBS, self._memory)
        if denial or new is checked:
            return denial
        if "tools" in arguments:
            new["tools"] = arguments["tools"]
        return Rewrite(call.replace(arguments=new))

    def _model_response(self, value: Any) -> Replace | Deny | None:
        new, denial = self._message(value)
        return denial or (None if new is value else Replace(new))

    def _message(self, value: Any) -> tuple[Any, Deny | None]:
        """A message or a list of messages; anything else as a plain tree."""
        if type(value) is list:
            return self._each(value, self._message)
        if type(value) is dict and type(value.get("parts")) is list:
            parts, denial = self._each(value["parts"], self._part)
            rest = {name: value[name] for name in value if name != "parts"}
            new = rest
            if denial is None and not self._responses.off:
                new, denial = self._apply(rest, self._responses, "response", BLOBS)
            if denial:
                return value, denial
            same = parts is value["parts"] and new is rest
            return (value if same else {**new, "parts": parts}), None
        if self._responses.off:
            return value, None
        return self._apply(value, self._responses, "response", BLOBS)

    def _part(self, part: Any) -> tuple[Any, Deny | None]:
        if type(part) is dict and part.get("type") == "tool_call":
            chosen = self._tool(str(part.get("name", "")))
            arguments = part.get("arguments")
            if type(arguments) is dict:
                made, denial = self._by_field(arguments, chosen)
            elif chosen.arguments.off:
                return part, None
            else:
                made, denial = self._apply(arguments, chosen.arguments, "tool_call.arguments")
            if denial or made is arguments:
                return part, denial
            return {**part, "arguments": made}, None
        if self._responses.off:
            return part, None
        return self._apply(part, self._responses, "response", BLOBS)

    def _each(self, items: list[Any], one: Any) -> tuple[Any, Deny | None]:
        made = []
        changed = False
        for item in items:
            new, denial = one(item)
            if denial:
                return items, denial
            changed = changed or new is not item
            made.append(new)
        return (made if changed else items), None


def _blocked(
    value: Any,
    found: Mapping[int, list[Finding]],
    blocked: Collection[str],
    path: str,
    skipped: frozenset[str],
) -> Deny | None:
    for index, findings in found.items():
        for finding in findings:
            if finding.category in blocked:
                inner = leaf_paths(value, skipped)[index]
                joint = "." if path and inner and inner[0] not in "[<" else ""
                place = f"{path}{joint}{inner}" or "the text"
                return Deny(f"{finding.category} in {place}", rule=f"redaction.{finding.category}")
    return None


class Stream:
    """Redacts one channel, or ends it with a denial where a category is blocked."""

    def __init__(self, engine: Engine, chosen: Policy, channel: str) -> None:
        self._filter = TextFilter(engine, chosen.kept)
        self._blocked = chosen.blocked
        self._channel = channel
        self._denied: Deny | None = None
        self.holdback = self._filter.holdback

    def feed(self, text: str) -> str | Deny:
        """Return what may be delivered, or a denial: then nothing more may be."""
        return self._denied or self._checked(self._filter.feed(text))

    def flush(self) -> str | Deny:
        """Return the rest, or a denial."""
        return self._denied or self._checked(self._filter.flush())

    def abort(self) -> None:
        """Forget what was kept back."""
        self._filter.abort()

    def _checked(self, out: str) -> str | Deny:
        found = self._filter.found
        for category in found:
            if category in self._blocked:
                self._filter.abort()
                self._denied = Deny(f"{category} in {self._channel}", rule=f"redaction.{category}")
                return self._denied
        found.clear()
        return out
