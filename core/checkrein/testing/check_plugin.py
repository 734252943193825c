"""Does a plugin keep the rules that the engine relies on?"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

from checkrein import codec, verdicts
from checkrein.call import Call, Outcome, ToolInfo, Usage
from checkrein.errors import BudgetExceeded, CheckreinError, Denied
from checkrein.manager import Impl, Plugins
from checkrein.verdicts import Deny, Hold, Measured, Rewrite

SINKS = get_args(verdicts.Sink)
_ALLOWED: dict[str, tuple[type, ...]] = {
    "pre_call": (
        verdicts.Rewrite, verdicts.Deny, verdicts.Ask, verdicts.Answer, verdicts.Hold,
        verdicts.Unchecked,
    ),
    "post_call": (
        verdicts.Replace, verdicts.Retry, verdicts.Fallback, verdicts.Deny, verdicts.Ask,
        verdicts.Unchecked,
    ),
    "on_denied": (verdicts.Answer, verdicts.Deny),
    "on_rollback": (verdicts.Undo, verdicts.Skip),
    "measure": (verdicts.Measured,),
}  # fmt: skip

TEXTS = (
    "An ordinary sentence, with nothing in it.",
    "Write to casey@example.org or call 212-555-0143, from 192.0.2.7.",
    "Ünïcödé 日本語 \U0001f600 and a line\nbreak",
    "",
)
VALUES: tuple[Any, ...] = (
    *TEXTS, None, True, 0, -1.5, 10**12, b"bytes", [], {}, (1, "two", [3.0]), {"a", "b"},
    {"nested": {"list": [{"mail": "casey@example.org"}], "none": None}, 7: "seven"},
    {"role": "user", "parts": [{"type": "text", "content": "hello"}]},
)  # fmt: skip


class PluginFault(AssertionError):
    """A plugin breaks rules. `problems` lists all that were found, each with its hook."""

    def __init__(self, plugin: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"plugin {plugin}:\n" + "\n".join(f"  {p}" for p in problems))


def sample_call(
    name: str = "send_mail",
    arguments: Mapping[str, Any] | None = None,
    kind: Any = "tool",
    **changes: Any,
) -> Call:
    """A call to show to a plugin."""
    given = {"to": "casey@example.org", "body": "Hello", "copies": 2}
    changes.setdefault("tool", ToolInfo(name))
    changes.setdefault("agent", "sample")
    return Call(
        "call-1", "session-1", kind, name, given if arguments is None else arguments, **changes
    )


def sample_calls() -> list[Call]:
    """Calls of every kind, with ordinary and with odd arguments."""
    messages = [{"role": "user", "parts": [{"type": "text", "content": TEXTS[1]}]}]
    model = {"system": None, "messages": messages, "tools": []}
    return [
        sample_call(),
        sample_call("read", {"path": "../etc/passwd"}, tool=ToolInfo("read", effect="read")),
        sample_call("pay", {"amount": 10.5, "who": {"id": 7, "tags": ["a", None]}}),
        sample_call("nothing", {}),
        sample_call("pay.undo", {"amount": 10.5}, "undo", parent="call-0"),
        sample_call("gpt-4o-mini", model, "model", tool=ToolInfo("gpt-4o-mini", effect="read")),
    ]  # fmt: skip


def check_plugin(
    plugin: object,
    calls: Iterable[Call] = (),
    values: Iterable[Any] = (),
    *,
    start: bool = True,
) -> None:
    """Raise `PluginFault` unless the plugin keeps the rules; all faults at once.

    `calls` and `values` are shown to it beside the built-in samples: give those that its rules
    are about. Checked: names and signatures of hooks; a constructor that a file can call;
    `pre_call`, `measure`, `on_rollback` and `view` answer twice alike and change nothing that
    they are given; verdicts have the right types and contents; a stream filter gives the same
    text however it is cut. `on_approval` and `on_event` act on the outside and are not called.
    `start=False`: do not start it in a Rein (with a `memory:` store) first.
    """
    name = str(getattr(plugin, "name", "") or type(plugin).__name__)
    chain = Plugins()
    try:
        chain.register([plugin])
    except CheckreinError as error:
        raise PluginFault(name, [str(error)]) from error
    check = _Check(chain, [*sample_calls(), *calls], [*VALUES, *values])
    check.constructor(type(plugin))
    if not start:
        check.hooks()
    else:
        from checkrein.rein import Rein

        try:
            rein = Rein([plugin])
        except CheckreinError as error:
            raise PluginFault(name, [f"start: {error}"]) from error
        with rein:
            check.hooks()
    if check.problems:
        raise PluginFault(name, list(dict.fromkeys(check.problems)))


class _Check:
    def __init__(self, chain: Plugins, calls: list[Call], values: list[Any]) -> None:
        self.chain = chain
        self.calls = calls
        self.values = values
        self.problems: list[str] = []

    def constructor(self, cls: type) -> None:
        """A file gives a constructor keyword arguments of plain data."""
        for parameter in inspect.signature(cls).parameters.values():
            required = parameter.default is parameter.empty
            if parameter.kind is parameter.POSITIONAL_ONLY and required:
                self.problems.append(
                    f"constructor: {parameter.name} can only be given by position, and a file "
                    "gives names"
                )

    def hooks(self) -> None:
        """Every hook that may be called without acting on the outside."""
        for impl in self.chain.chains["pre_call"]:
            for call in self.calls:
                verdict = self._twice(impl, call, alike=not impl.external)
                for one in verdict if isinstance(verdict, tuple) else (verdict,):
                    self._verdict(impl, call, one)
        outcomes = _outcomes()
        given: tuple[Any, ...]
        for impl in self.chain.chains["on_denied"]:
            for call in self.calls:
                for denied in (Denied("no", rule="some/rule"), BudgetExceeded("none left")):
                    self._verdict(impl, call, self._twice(impl, call, denied, alike=True))
        for hook in ("post_call", "measure", "on_rollback"):
            for impl in self.chain.chains[hook]:
                for call in self.calls:
                    for outcome in outcomes:
                        given = (outcome, "plan") if hook == "on_rollback" else (outcome,)
                        alike = hook != "post_call"
                        self._verdict(impl, call, self._twice(impl, call, *given, alike=alike))
        for impl in self.chain.chains["view"]:
            for sink in SINKS:
                for call in self.calls[:2]:
                    for value in [*self.values, *(c.arguments for c in self.calls)]:
                        self._view(impl, call, value, sink)
        for impl in self.chain.chains["open_stream"]:
            for text in (*TEXTS, *(v for v in self.values if isinstance(v, str))):
                self._stream(impl, text)

    def _twice(self, impl: Impl, call: Call, *given: Any, alike: bool) -> Any:
        """Call a hook two times; report what it changed and where its answers differ."""
        before = copy.deepcopy(dict(call.arguments))
        about = f"{impl.hook} of {call.kind} {call.name}"
        try:
            first = _settled(impl(call, *given))
            second = _settled(impl(call, *given)) if alike else first
        except Exception as error:  # noqa: BLE001 - whatever a hook raises is the finding
            self.problems.append(f"{about}: raises {type(error).__name__}: {error}")
            return None
        if dict(call.arguments) != before:
            self.problems.append(f"{about}: changes the call's arguments; return a Rewrite")
        if first != second:
            self.problems.append(
                f"{about}: answers {_short(first)}, then {_short(second)} for the same call; it "
                "must be pure (count with Hold, or declare external=True)"
            )
        return first

    def _verdict(self, impl: Impl, call: Call, verdict: Any) -> None:
        about = f"{impl.hook} of {call.kind} {call.name}"
        allowed = _ALLOWED[impl.hook]
        if verdict is None:
            return
        if not isinstance(verdict, allowed):
            names = ", ".join(cls.__name__ for cls in allowed)
            self.problems.append(f"{about}: answers {_short(verdict)}; use {names} or None")
            return
        self.problems += [f"{about}: {text}" for text in _contents(call, verdict)]

    def _view(self, impl: Impl, call: Call, value: Any, sink: str) -> None:
        before = copy.deepcopy(value)
        try:
            shown = impl(call, value, sink)
            again = impl(call, value, sink)
            codec.describe(shown)
        except Exception as error:  # noqa: BLE001 - whatever a view raises is the finding
            self.problems.append(
                f"view for {sink}: raises {type(error).__name__} for a {type(value).__name__}; "
                "the whole value is then shown as [unviewable]"
            )
            return
        if value != before:
            self.problems.append(f"view for {sink}: changes the {type(value).__name__} it is given")
        if inspect.isawaitable(shown):
            self.problems.append("view: must not be async")
        elif codec.describe(shown) != codec.describe(again):
            self.problems.append(f"view for {sink}: shows the same value in two ways")

    def _stream(self, impl: Impl, text: str) -> None:
        found: list[Any] = []
        for size in (1, 7, max(1, len(text))):
            try:
                opened = impl(self.calls[-1], "text")
                if opened is None:
                    return
                if not isinstance(opened.holdback, int) or opened.holdback < 0:
                    self.problems.append("open_stream: holdback must be an integer, 0 or more")
                    return
                found.append(_fed(opened, text, size))
            except Exception as error:  # noqa: BLE001 - whatever a filter raises is the finding
                self.problems.append(f"open_stream: raises {type(error).__name__}: {error}")
                return
        if any(one != found[0] for one in found):
            self.problems.append(
                "open_stream: the same text, cut in other pieces, comes out differently"
            )


def _fed(opened: Any, text: str, size: int) -> str:
    """What a filter lets through of `text` in pieces; `<denied>` where it stops the stream.

    Raises `TypeError` where it answers with neither text nor a Deny.
    """
    out = ""
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    for step in [*(lambda p=p: opened.feed(p) for p in pieces), opened.flush]:
        answer = step()
        if isinstance(answer, Deny):
            # How much was let through before depends on the pieces; the end does not.
            return "<denied>"
        out += answer
    return out


def _contents(call: Call, verdict: Any) -> list[str]:
    """What is wrong inside a verdict of the right type."""
    found: list[str] = []
    if isinstance(verdict, Rewrite):
        found += [
            f"Rewrite changes {name}; only arguments, a model's name, a shorter timeout may differ"
            for name in ("id", "session", "kind", "tool")
            if getattr(verdict.call, name) != getattr(call, name)
            and not (name == "tool" and _only_sooner(verdict.call.tool, call.tool))
        ]
        try:
            codec.encode_arguments(verdict.call.arguments)
        except CheckreinError as error:
            found.append(f"Rewrite: {error}")
    if isinstance(verdict, Hold):
        if not verdict.account:
            found.append("Hold: account is empty")
        found += [
            f"Hold: {name} must be an integer, 0 or more"
            for name in ("amount", "limit")
            if type(getattr(verdict, name)) is not int or getattr(verdict, name) < 0
        ]
        if verdict.window is not None and not verdict.window > 0:
            found.append("Hold: window must be seconds above 0")
    if isinstance(verdict, verdicts.Ask):
        who: object = verdict.who
        if not isinstance(who, tuple):
            found.append("Ask: who must be a tuple of names")
        if verdict.quorum < 1:
            found.append("Ask: quorum must be 1 or more")
        if verdict.expires is not None and not verdict.expires > 0:
            found.append("Ask: expires must be seconds above 0")
    if isinstance(verdict, (Deny, verdicts.Ask)) and not verdict.reason:
        found.append(f"{type(verdict).__name__}: give a reason")
    if isinstance(verdict, Measured) and verdict.cost is not None and type(verdict.cost) is not int:
        found.append("Measured: cost is an integer of nano-dollars")
    if isinstance(verdict, verdicts.Undo):
        try:
            codec.encode_arguments(verdict.arguments)
        except CheckreinError as error:
            found.append(f"Undo: {error}")
    return found


def _only_sooner(new: ToolInfo, old: ToolInfo) -> bool:
    """Whether two declarations differ in nothing but a shorter timeout."""
    limit = new.timeout
    sooner = limit is not None and (old.timeout is None or limit < old.timeout)
    return sooner and dataclasses.replace(old, timeout=limit) == new


def _outcomes() -> list[Outcome]:
    usage = Usage(input_tokens=11, output_tokens=7, model="gpt-4o-mini", provider="openai")
    return [
        Outcome("done", {"text": TEXTS[1]}),
        Outcome("done", "plain", usage=usage),
        Outcome("unknown", error=TimeoutError("no answer")),
        Outcome("not_done", error=ValueError("refused")),
    ]


def _settled(answer: Any) -> Any:
    """The value of an answer; one that must be awaited is, on a loop of its own."""
    if not inspect.isawaitable(answer):
        return answer
    import asyncio

    async def wait() -> Any:
        return await answer

    # On a thread of its own, so that a test may run inside a loop.
    return _in_thread(lambda: asyncio.run(wait()))


def _in_thread(fn: Callable[[], Any]) -> Any:
    found: list[Any] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            found.append(fn())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            raised.append(error)

    thread = threading.Thread(target=work, name="check-plugin")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
