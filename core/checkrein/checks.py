"""Folding verdicts: what the plugins say before and after a call, taken together.

The strictest verdict wins in any order of plugins. A check that raises, hangs past its
timeout or returns something that is no verdict counts as a veto, and the others still run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkrein._io import Abandoned, is_awaitable
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


class HookFailed(Exception):  # noqa: N818 - internal; becomes a Denied with code check_failed
    """A hook raised, hung, or answered with something that is no verdict."""


async def run_hook(io: IO, impl: Impl, timeout: float | None, *values: Any) -> Any:
    """Call one hook of one plugin and return its verdict. Raises `HookFailed`."""
    limit = impl.timeout or timeout
    try:
        if impl.timeout is not None:
            # Only a declared timeout pays for a thread: a sync hook cannot be interrupted.
            verdict = await io.call(
                lambda: impl(*values), timeout=limit, is_async=False, late=_forget
            )
        else:
            verdict = impl(*values)
            if type(verdict) not in _VERDICTS and is_awaitable(verdict):
                verdict = await io.settle(
                    verdict,
                    what=f"the async hook {impl.hook} of plugin {impl.plugin}",
                    timeout=limit,
                    own=impl.own_loop,
                )
    except WouldBlock:
        raise
    except (Abandoned, TimeoutError):
        raise HookFailed(f"{impl.hook} of plugin {impl.plugin} gave no answer in {limit} s") from None
    except Exception as error:
        # A plugin may raise anything; its message may hold data, so only the type is told.
        raise HookFailed(
            f"{impl.hook} of plugin {impl.plugin} raised {type(error).__name__}"
        ) from error
    allowed = ALLOWED[impl.hook]
    parts: Sequence[Any] = verdict if type(verdict) is tuple else (verdict,)
    for part in parts:
        if part is not None and not isinstance(part, allowed):
            names = ", ".join(t.__name__ for t in allowed)
            raise HookFailed(
                f"{impl.hook} of plugin {impl.plugin} returned {type(part).__name__}; "
                f"verdicts are {names} or None"
            )
    return verdict


def _forget(future: Any) -> None:
    """A hook that comes back late has no say any more."""


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
        last_rewrite = -1
        checked = Checked(call)
        for index, impl in enumerate(self._chain):
            verdict = await self._evaluate(impl, call, checked)
            given.append(verdict)
            if verdict is not None:
                for part in verdict if type(verdict) is tuple else (verdict,):
                    if type(part) is Rewrite:
                        call = _rewritten(original, part.call)
                        last_rewrite = index
        # A guard that stands before a rewriter has not seen what will run. It is asked again
        # about the final call, so that the order of plugins cannot hide anything from it.
        for index in range(last_rewrite):
            again = await self._evaluate(self._chain[index], call, checked)
            kept = again if type(again) is tuple else (again,)
            given[index] = tuple(v for v in kept if type(v) not in (Rewrite, Answer))
        checked.call = call
        for impl, verdict in zip(self._chain, given, strict=True):
            if verdict is not None:
                for part in verdict if type(verdict) is tuple else (verdict,):
                    self._fold(impl.plugin, part, checked)
        return checked

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
        if part is None:
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
