"""Folding verdicts: what the plugins say before and after a call, taken together.

The strictest verdict wins in any order of plugins. A check that raises, hangs past its
timeout or returns something that is no verdict counts as a veto, and the others still run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkrein._io import Abandoned, forget, is_awaitable
from checkrein.call import Call, Outcome
from checkrein.errors import Denied, WouldBlock
from checkrein.verdicts import (
    Answer,
    Approved,
    Ask,
    Deny,
    Fallback,
    Hold,
    Rejected,
    Replace,
    Retry,
    Rewrite,
    Skip,
    Undo,
)

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.manager import Impl

ALLOWED: dict[str, tuple[type, ...]] = {
    "pre_call": (Rewrite, Deny, Ask, Answer, Hold),
    "post_call": (Replace, Retry, Fallback, Deny, Ask),
    "on_approval": (Approved, Rejected),
    "on_rollback": (Undo, Skip),
}
_VERDICTS = frozenset({type(None), tuple, *(t for ts in ALLOWED.values() for t in ts)})


class HookFailed(Exception):
    """A hook raised, hung, or answered with something that is no verdict."""


async def run_hook(io: IO, impl: Impl, timeout: float | None, *values: Any) -> Any:
    """Call one hook of one plugin and return its verdict. Raises `HookFailed`."""
    try:
        if impl.timeout is not None:
            # Only a declared timeout pays for a thread: a sync hook cannot be interrupted.
            verdict = await io.call(
                lambda: impl(*values),
                timeout=impl.timeout,
                is_async=impl.is_async,
                late=forget,
                own=impl.own_loop,
            )
        else:
            verdict = impl(*values)
            if type(verdict) not in _VERDICTS and is_awaitable(verdict):
                verdict = await io.settle(
                    verdict,
                    what=f"the async hook {impl.hook} of plugin {impl.plugin}",
                    timeout=timeout,
                    own=impl.own_loop,
                )
    except WouldBlock:
        raise
    except Abandoned:
        limit = impl.timeout or timeout
        raise HookFailed(
            f"{impl.hook} of plugin {impl.plugin} gave no answer in {limit} s"
        ) from None
    except Exception as error:
        # A plugin may raise anything; its message may hold data, so only the type is told.
        raise HookFailed(
            f"{impl.hook} of plugin {impl.plugin} raised {type(error).__name__}"
        ) from error
    if verdict is None:
        return None
    allowed = ALLOWED[impl.hook]
    parts: Sequence[Any] = verdict if type(verdict) is tuple else (verdict,)
    for part in parts:
        # Exact types: a subclass would be taken for a verdict here and pass unseen in the fold.
        if part is not None and type(part) not in allowed:
            names = ", ".join(t.__name__ for t in allowed)
            raise HookFailed(
                f"{impl.hook} of plugin {impl.plugin} returned {type(part).__name__}; "
                f"verdicts are {names} or None"
            )
        wrong = malformed(part)
        if wrong:
            raise HookFailed(
                f"{impl.hook} of plugin {impl.plugin} returned a {type(part).__name__} with a "
                f"wrong {wrong}"
            )
    return verdict


def malformed(verdict: Any) -> str:
    """Name of a field that holds something else than it should; empty if all is well."""
    rules = _FIELDS.get(type(verdict))
    if rules is not None:
        for name, fits in rules.items():
            if not fits(getattr(verdict, name)):
                return name
    return ""


def _whole(value: object) -> bool:
    return type(value) is int and value >= 0


def _positive(value: object) -> bool:
    return type(value) in (int, float) and 0 < value < 1e9  # type: ignore[operator]  # a number


def _seconds(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e9  # type: ignore[operator]  # a number


def _text(value: object) -> bool:
    return isinstance(value, str)


def _flag(value: object) -> bool:
    return type(value) is bool


def _named(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _people(value: object) -> bool:
    return isinstance(value, (tuple, list)) and all(_named(who) for who in value)


def _mapping(value: object) -> bool:
    return isinstance(value, Mapping)


_FIELDS: dict[type, dict[str, Callable[[object], bool]]] = {
    Rewrite: {"call": lambda v: isinstance(v, Call) and isinstance(v.arguments, Mapping)},
    Deny: {"reason": _text, "rule": _text, "halt": _flag},
    Ask: {
        "reason": _text,
        "rule": _text,
        "risk": lambda v: v in ("low", "medium", "high"),
        "expires": lambda v: v is None or _positive(v),
        "who": _people,
        "quorum": lambda v: _whole(v) and v != 0,
    },
    Answer: {"source": _text},
    Hold: {
        "account": _named,
        "amount": _whole,
        "limit": _whole,
        "unit": lambda v: v in ("usd", "tokens", "calls", "seconds"),
        "window": lambda v: v is None or _positive(v),
        "settle": lambda v: v in ("measured", "keep", "release"),
        "rule": _text,
        "halt": _flag,
        "on_refused": lambda v: v in ("deny", "wait"),
    },
    Retry: {"after": _seconds, "reason": _text},
    Fallback: {"model": _named},
    Approved: {"by": _text, "arguments": lambda v: v is None or _mapping(v)},
    Rejected: {"by": _text, "reason": _text},
    Undo: {"name": _named, "arguments": _mapping},
    Skip: {"reason": _text},
}
"""What each field of a verdict must be: a plugin that gets one wrong has not decided."""


CHANGES = 16
"""How often plugins may change a call again that another one has rewritten."""

Recall = Callable[["Impl", Call], Any]
Remember = Callable[["Impl", Call, Any], Awaitable[None]]
NOTHING = object()


@dataclass(slots=True)
class Checked:
    """All `pre_call` verdicts on one call, folded."""

    call: Call
    denied: Denied | None = None
    asks: list[tuple[str, Ask]] = field(default_factory=list)
    answer: tuple[str, Answer] | None = None
    holds: list[tuple[str, Hold]] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    """(plugin, verdict) for everything other than None, in order."""

    @property
    def waits(self) -> bool:
        """Whether a refused hold shall be waited for."""
        return any(hold.on_refused == "wait" for _, hold in self.holds)


class PreFold:
    """Folds `pre_call` over a chain of plugins."""

    def __init__(
        self,
        io: IO,
        chain: Sequence[Impl],
        timeout: float | None,
        recall: Recall | None = None,
        remember: Remember | None = None,
    ) -> None:
        self._io = io
        self._chain = chain
        self._timeout = timeout
        self._recall = recall
        self._remember = remember

    async def run(self, call: Call) -> Checked:
        """Evaluate every plugin; none is left out because another one said no."""
        given: list[Any] = []
        original = call
        last_rewrite = 0
        checked = Checked(call)
        for index, impl in enumerate(self._chain):
            verdict = await self._evaluate(impl, call, checked)
            given.append(verdict)
            if verdict is not None:
                for new in _rewrites(verdict, original):
                    call = new
                    last_rewrite = index
                    checked.notes.append((impl.plugin, "rewrite"))
        if call is not original:
            call = await self._agree(original, call, last_rewrite, given, checked)
        checked.call = call
        for impl, verdict in zip(self._chain, given, strict=True):
            if verdict is not None:
                for part in verdict if type(verdict) is tuple else (verdict,):
                    self._fold(impl.plugin, part, checked)
        return checked

    async def _agree(
        self, original: Call, call: Call, last: int, given: list[Any], checked: Checked
    ) -> Call:
        """Ask again whoever has not seen what will run, until nobody changes it any more.

        A plugin that stands before the one that rewrote last has judged another call. What
        counts is its verdict on the final one, so that the order of plugins hides nothing from
        anybody. Rewriters that never agree are refused.
        """
        stale = list(range(last))
        changes = 0
        while stale:
            index = stale.pop(0)
            impl = self._chain[index]
            given[index] = verdict = await self._evaluate(impl, call, checked)
            if verdict is None:
                continue
            for new in _rewrites(verdict, original):
                if _same(new, call):
                    continue
                call = new
                stale = [i for i in range(len(given)) if i != index]
                checked.notes.append((impl.plugin, "rewrite"))
                changes += 1
            if changes > CHANGES:
                given[index] = Deny(
                    "check failed: the plugins rewrite the call without end (what a plugin has "
                    "rewritten must not be rewritten by it again)",
                    rule="check_failed",
                )
                break
        return call

    async def _evaluate(self, impl: Impl, call: Call, checked: Checked) -> Any:
        try:
            if impl.external and self._recall is not None:
                known = self._recall(impl, call)
                if known is not NOTHING:
                    return known
            verdict = await run_hook(self._io, impl, self._timeout, call)
            if impl.external and self._remember is not None:
                await self._remember(impl, call, verdict)
        except HookFailed as error:
            if impl.allow_on_failure:
                if impl.plugin not in checked.unchecked:
                    checked.unchecked.append(impl.plugin)
                return None
            return Deny(f"check failed: {error}", rule="check_failed")
        return verdict

    def _fold(self, plugin: str, part: Any, checked: Checked) -> None:
        if part is None or type(part) is Rewrite:
            return
        checked.notes.append((plugin, type(part).__name__.lower()))
        if type(part) is Deny:
            if checked.denied is None or (part.halt and not checked.denied.halt):
                checked.denied = denial(part, checked.call, plugin)
        elif type(part) is Ask:
            checked.asks.append((plugin, part))
        elif type(part) is Hold:
            checked.holds.append((plugin, part))
        elif type(part) is Answer and checked.answer is None:
            checked.answer = (plugin, part)


def denial(verdict: Deny, call: Call, plugin: str) -> Denied:
    """The error for a veto."""
    return Denied(
        verdict.reason,
        rule=verdict.rule,
        tool=call.name,
        call_id=call.id,
        plugin=plugin,
        halt=verdict.halt,
        code="check_failed" if verdict.rule == "check_failed" else "denied",
    )


def _rewritten(original: Call, new: Call) -> Call:
    """A rewrite may change arguments, a model's name and a shorter timeout; nothing else."""
    tool = original.tool
    if new.tool is not original.tool:
        before, after = original.tool.timeout, new.tool.timeout
        if after is not None and (before is None or after < before):
            import dataclasses

            tool = dataclasses.replace(original.tool, timeout=after)
    name = new.name if original.kind == "model" else original.name
    return original.replace(arguments=new.arguments, name=name, tool=tool)


def _rewrites(verdict: Any, original: Call) -> list[Call]:
    """The calls that a plugin's verdict asks for."""
    return [
        _rewritten(original, part.call)
        for part in (verdict if type(verdict) is tuple else (verdict,))
        if type(part) is Rewrite
    ]


def _same(new: Call, old: Call) -> bool:
    """Whether a rewrite changes nothing."""
    try:
        return bool(
            new.name == old.name
            and new.tool.timeout == old.tool.timeout
            and new.arguments == old.arguments
        )
    except Exception:  # noqa: BLE001 - values of anybody's types: what cannot be compared differs
        return False


@dataclass(slots=True)
class PostChecked:
    """All `post_call` verdicts on one outcome, folded."""

    outcome: Outcome
    changed: bool = False
    retry: Retry | None = None
    fallback: Fallback | None = None
    asks: list[tuple[str, Ask]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)


async def fold_post(
    io: IO, chain: Sequence[Impl], timeout: float | None, call: Call, outcome: Outcome
) -> PostChecked:
    """Fold `post_call`. A check that fails withholds the result; the state stays."""
    folded = PostChecked(outcome)
    denied: Denied | None = None
    for impl in chain:
        try:
            verdict = await run_hook(io, impl, timeout, call, folded.outcome)
        except HookFailed as error:
            verdict = Deny(f"check failed: {error}", rule="check_failed")
        if verdict is None:
            continue
        for part in verdict if type(verdict) is tuple else (verdict,):
            if part is None:
                continue
            folded.notes.append((impl.plugin, type(part).__name__.lower()))
            if type(part) is Replace:
                folded.outcome = folded.outcome.replace(value=part.value, error=None)
                folded.changed = True
            elif type(part) is Retry:
                folded.retry = part
            elif type(part) is Fallback:
                folded.fallback = part
            elif type(part) is Ask:
                folded.asks.append((impl.plugin, part))
            elif type(part) is Deny and (denied is None or (part.halt and not denied.halt)):
                denied = denial(part, call, impl.plugin)
    if denied is not None:
        folded.outcome = folded.outcome.replace(value=None, error=denied)
        folded.changed = True
        folded.retry = folded.fallback = None
    return folded
