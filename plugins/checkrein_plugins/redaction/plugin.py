"""The plugin: what leaves for a model, a tool or a person is redacted on the way."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import Any

from checkrein.call import Call, Outcome
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin, StreamFilter
from checkrein.verdicts import (
    Deny,
    PostVerdict,
    PreVerdict,
    Replace,
    Rewrite,
    Sink,
    Unchecked,
)
from checkrein_plugins.redaction import policy as rules
from checkrein_plugins.redaction.custom import detectors
from checkrein_plugins.redaction.exceptions import redacted_error
from checkrein_plugins.redaction.faults import Unredactable
from checkrein_plugins.redaction.findings import DEFAULT_CATEGORIES
from checkrein_plugins.redaction.inspection import (
    BLOBS,
    Inspection,
    Shared,
    Stream,
    with_book,
)
from checkrein_plugins.redaction.leaves import BINARY
from checkrein_plugins.redaction.marks import SHORTEST_KEY, Hashes
from checkrein_plugins.redaction.memory import Memory, Recent
from checkrein_plugins.redaction.policy import Policy, ToolPolicy
from checkrein_plugins.redaction.pseudonyms import Books, escaped
from checkrein_plugins.redaction.text import engine_with, known
from checkrein_plugins.redaction.tree import redacted

_REMEMBERED = 512
"""Tools whose policy is kept, and streams that are open."""


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
        custom: Categories of your own: name to `pattern` (RE2 syntax), `words` or `find` (a
            function), with the settings that `custom.detectors` names.
        binary: `refuse` bytes that are not UTF-8, or `keep` them unchecked.
        hash_key: Key of the action `hash`, 16 bytes or more; None = the store's key, so that
            hashes can be compared within one store.
        trusted: Names or whole-name globs of tools that get real values for the placeholders of
            `pseudonym`, and keep values of those categories.

        nlp: What finds `person`, `location`, `organisation` and `address`: `"spacy:MODEL"`,
            `"presidio"`, a table with `engine`, `model`, `language`, `score`, `timeout` and
            `on_failure`, or the loaded model itself (extra `nlp`).

    Each of `requests`, `responses`, `arguments` and `results` is an action, or a mapping of
    category to action, where what is not named is redacted:

    `pseudonym`  a placeholder of the session stands in its place, `<EMAIL_1>`, and is restored
              in the arguments of `trusted` tools
    `redact`  the category stands in its place: `[EMAIL]`
    `mask`    the last four letters or digits stay visible, or as many as `{"action": "mask",
              "first": 2, "last": 2}` says
    `hash`    a keyed digest stands in its place, the same for equal values: `[EMAIL#kqm…]`
    `warn`    it is passed on, and a warning logged (logger `checkrein.redaction`)
    `keep`    it is passed on
    `block`   the call is denied

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
        hash_key: str | bytes | None = None,
        trusted: Iterable[str] = (),
        nlp: Any = None,
    ) -> None:
        language: Any = None
        if nlp is not None:
            from checkrein_plugins.redaction import nlp as language
        more: tuple[str, ...] = language.NLP_CATEGORIES if language else ()
        own = detectors(custom, more)
        built_in = known(categories, DEFAULT_CATEGORIES, more)
        chosen = built_in | own.keys()
        if not chosen:
            raise ConfigError("categories: at least one is needed")
        if binary not in BINARY:
            raise ConfigError(f"binary: {binary!r} is none of {', '.join(BINARY)}")
        self.categories = chosen
        finders = language.finders(nlp, built_in) if language else ()
        self._engine = engine_with(built_in - set(more), own, finders)
        self._hashes = Hashes(_key(hash_key))
        self._own_key = hash_key is not None
        self._books = Books()
        self._trusted = _globs(trusted)
        self._requests = self._policy(requests, "requests")
        self._responses = self._policy(responses, "responses")
        self._arguments = rules.actions(arguments, "arguments", chosen)
        self._results = rules.actions(results, "results", chosen)
        self._rules = rules.tool_rules(per_tool, chosen)
        self._pseudonyms = (
            self._requests.pseudonyms
            | self._responses.pseudonyms
            | frozenset(
                name
                for table in (self._arguments, self._results, *rules.tables(self._rules))
                for name, action in table.items()
                if action.name == "pseudonym"
            )
        )
        if self._trusted and not self._pseudonyms:
            raise ConfigError("trusted: no category has the action pseudonym")
        self._tools: dict[str, ToolPolicy] = {}
        self._memory = Memory()
        self._missed: dict[str, set[str]] = {}
        """Finders that failed and may, by the call whose answer streams."""
        self._shared = Shared(
            self._engine, binary, Recent(), self._responses, self._tool, self._books
        )

    def start(self, rein: Any) -> None:
        """Compile the patterns, so that the first call does not wait for it."""
        self._engine.compile()
        self._books.rein = rein
        if not self._own_key:
            self._hashes.key = rein.store.key

    def pre_call(self, call: Call) -> PreVerdict:
        """Redact what a model or a tool is about to be given."""
        verdict = self._before(call)
        if self._pseudonyms:
            self._books.keep(call.session, call.id)
        return verdict

    def _before(self, call: Call) -> PreVerdict:
        if call.kind == "model":
            return self._model_request(call)
        if call.kind == "undo":
            return None  # runs exactly as planned, from what was recorded
        arguments = call.arguments
        seen = Inspection(self._shared, call)
        made, denial = seen.fields(arguments, self._tool(call.name))
        if self._pseudonyms and not denial:
            book = self._books.of(call.session)
            if book.unknown(made, self._shared.binary):
                return Deny(
                    "a placeholder in its arguments stands for nothing in this session",
                    rule="redaction.placeholder",
                )
            if self._is_trusted(call.name):
                made = book.restored(made, self._shared.binary)
        if denial:
            return denial
        verdict = None if made is arguments else Rewrite(call.replace(arguments=made))
        return (verdict, *_unchecked(seen.missed)) if seen.missed else verdict

    def post_call(self, call: Call, outcome: Outcome) -> PostVerdict:
        """Redact what a model or a tool has returned."""
        verdict = self._after(call, outcome)
        if self._pseudonyms:
            self._books.keep(call.session, call.id)
        return verdict

    def _after(self, call: Call, outcome: Outcome) -> PostVerdict:
        value = outcome.value
        if outcome.error is not None:
            return self._told(call, outcome.error)
        if value is None:
            return None
        seen = Inspection(self._shared, call)
        if call.kind == "model":
            seen.missed |= self._missed.pop(call.id, set())
            new, denial = seen.message(value)
            return _said(seen, denial or (None if new is value else Replace(new)))
        if call.kind == "undo":
            return None
        chosen = self._tool(call.name).results
        if chosen.off and not self._pseudonyms:
            return None
        try:
            shown = escaped(value, self._shared.binary) if self._pseudonyms else value
        except Unredactable as error:
            return Deny(f"result{error.path}: {error.why}", rule="redaction.unchecked")
        new, denial = seen.value(shown, chosen, "result")
        return _said(seen, denial or (None if new is value else Replace(new)))

    def _told(self, call: Call, error: BaseException) -> PostVerdict:
        """Redact the words of an error as a result would be."""
        chosen = self._responses if call.kind == "model" else self._tool(call.name).results
        if call.kind == "undo" or (chosen.off and not self._pseudonyms):
            return None
        seen = Inspection(self._shared, call)
        denials: list[Deny] = []

        def change(tree: Any) -> Any:
            shown = escaped(tree, self._shared.binary) if self._pseudonyms else tree
            new, denial = seen.value(shown, chosen, "error")
            if denial is None:
                return new
            if denial.rule == "redaction.unchecked":
                raise Unredactable("", denial.reason)
            denials.append(denial)
            return tree

        made = redacted_error(error, change, lambda text: seen.value(text, chosen, "")[0] is text)
        if denials:
            return denials[0]
        return _said(seen, None if made is error else Replace(error=made))

    def view(self, call: Call, value: Any, sink: Sink) -> Any:
        """Mask every category, whatever the tool itself may keep."""
        if isinstance(value, BaseException):
            text = str(value)
            new = redacted(text, self._engine, missed=set())[0]
            return value if new == text else f"{type(value).__name__}: {new}"
        shared = self._shared
        return redacted(
            value, self._engine, binary=shared.binary, recent=shared.recent, missed=set()
        )[0]

    def open_stream(self, call: Call, channel: str) -> StreamFilter | None:
        """Filter text and reasoning as they arrive; tool arguments arrive whole."""
        if channel.startswith("tool:") or self._responses.off:
            return None
        chosen = with_book(self._responses, self._books.of(call.session))
        missed: set[str] = set()
        if self._engine.finders:
            if len(self._missed) >= _REMEMBERED:
                self._missed.clear()  # streams that were given up
            missed = self._missed.setdefault(call.id, missed)
        return Stream(self._engine, chosen, channel, call, missed)

    def close(self) -> None:
        """Forget what placeholders stand for."""
        self._books.close()

    def _is_trusted(self, name: str) -> bool:
        return any(pattern.match(name) for pattern in self._trusted)

    def _policy(self, value: Any, key: str) -> Policy:
        return rules.policy(rules.actions(value, key, self.categories), self._hashes)

    def _tool(self, name: str) -> ToolPolicy:
        found = self._tools.get(name)
        if found is None:
            if len(self._tools) >= _REMEMBERED:
                self._tools.clear()
            keep = self._pseudonyms if self._is_trusted(name) else frozenset()
            found = rules.tool_policy(
                name, self._rules, self._arguments, self._results, self._hashes, keep
            )
            self._tools[name] = found
        return found

    def _model_request(self, call: Call) -> PreVerdict:
        if self._requests.off:
            return None
        arguments = call.arguments
        checked = {name: arguments[name] for name in arguments if name != "tools"}
        if self._pseudonyms:
            try:
                checked = self._told_apart(checked)
            except Unredactable as error:
                return Deny(f"request{error.path}: {error.why}", rule="redaction.unchecked")
        seen = Inspection(self._shared, call)
        new, denial = seen.value(checked, self._requests, "", BLOBS, self._memory)
        verdict: Rewrite | Deny | None = denial
        if not denial and not (new is checked and all(new[n] is arguments[n] for n in new)):
            if "tools" in arguments:
                new["tools"] = arguments["tools"]
            verdict = Rewrite(call.replace(arguments=new))
        return (verdict, *_unchecked(seen.missed)) if seen.missed else verdict

    def _told_apart(self, arguments: Any) -> Any:
        """Escape what looks like a placeholder in texts that neither a model nor a tool wrote."""
        made = dict(arguments)
        for name in ("system", "messages"):
            part = made.get(name)
            if name == "messages" and type(part) is list:
                rows = [
                    escaped(row, self._shared.binary, BLOBS)
                    if type(row) is dict and row.get("role") in ("user", "system", "developer")
                    else row
                    for row in part
                ]
                if any(new is not old for new, old in zip(rows, part, strict=True)):
                    made[name] = rows
            elif part is not None:
                made[name] = escaped(part, self._shared.binary, BLOBS)
        return made


def _unchecked(missed: Iterable[str]) -> list[Unchecked]:
    return [Unchecked(name) for name in sorted(missed)]


def _said(seen: Inspection, verdict: Replace | Deny | None) -> PostVerdict:
    """A verdict, and what could not be checked."""
    return (verdict, *_unchecked(seen.missed)) if seen.missed else verdict


def _globs(given: Any) -> tuple[re.Pattern[str], ...]:
    """Read `trusted`."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError("trusted: give a list of names of tools")
    names = list(given)
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigError("trusted: names of tools are strings")
    return tuple(re.compile(fnmatch.translate(name)) for name in names)


def _key(given: Any) -> bytes | None:
    """Read `hash_key`."""
    key = given.encode("utf-8") if isinstance(given, str) else given
    if key is not None and (not isinstance(key, bytes) or len(key) < SHORTEST_KEY):
        raise ConfigError(f"hash_key: give a string or bytes, {SHORTEST_KEY} bytes or more")
    return key
