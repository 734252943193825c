"""Folding verdicts: what the plugins say before and after a call, taken together.

The strictest verdict wins in any order of plugins. A check that raises, hangs past its
timeout or returns something that is no verdict counts as a veto, and the others still run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkrein.call import Call, Outcome, ToolInfo
from checkrein.errors import Denied
from checkrein.judging import NOTHING, VERDICTS, HookFailed, asked, check_verdict, judged, run_hook
from checkrein.verdicts import (
    Answer,
    Ask,
    Deny,
    Fallback,
    Hold,
    Replace,
    Retry,
    Rewrite,
    Unchecked,
)

if TYPE_CHECKING:
    from logging import Logger

    from checkrein._io import IO
    from checkrein.manager import Impl

CHANGES = 16
"""How often plugins may change a call again that another one has rewritten."""

UNASKED = Deny("a guard's own call cannot wait for a person", "asked")

Recall = Callable[["Impl", Call], Any]
Remember = Callable[["Impl", Call, Any], Awaitable[None]]


@dataclass(slots=True)
class Checked:
    """All `pre_call` verdicts on one call, folded."""

    call: Call
    denied: Denied | None = None
    asks: list[tuple[str, Ask]] = field(default_factory=list)
    answer: tuple[str, Answer] | None = None
    holds: list[tuple[str, Hold]] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    """Plugins that failed and may, and what others could not check: see `unchecked`."""
    notes: list[tuple[str, str]] = field(default_factory=list)
    """(plugin, verdict) for everything other than None, in order."""

    @property
    def waits(self) -> bool:
        """Whether a refused hold shall be waited for."""
        return any(hold.on_refused == "wait" for _, hold in self.holds)

    @property
    def shares(self) -> bool:
        """Whether the result of a call that holds the same may be the answer to this one.

        Where more than the running call is counted, a second one finds no room; only what is
        given back at the end can be taken by both, one after the other.
        """
        return any(hold.on_refused == "wait" and hold.settle == "release" for _, hold in self.holds)


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

    async def run(self, call: Call, begun: Sequence[Any] = ()) -> Checked:
        """Evaluate every plugin; none is left out because another one said no.

        `begun`: what the first of them have answered already, or the `HookFailed` they raised.
        """
        given: list[Any] = []
        original = call
        last_rewrite = 0
        checked = Checked(call)
        for index, impl in enumerate(self._chain):
            if impl.external or impl.timeout is not None:
                verdict = await self._evaluate(impl, call, checked)
            else:
                try:
                    verdict = begun[index] if index < len(begun) else asked(impl, call)
                    if verdict is None:
                        given.append(None)
                        continue
                    if type(verdict) in VERDICTS:
                        check_verdict(impl, verdict)
                    elif type(verdict) is HookFailed:
                        raise verdict
                    else:
                        verdict = await judged(self._io, impl, self._timeout, verdict)
                except HookFailed as error:
                    verdict = self._failed(impl, error, checked)
            given.append(verdict)
            if type(verdict) is Rewrite or type(verdict) is tuple:
                for new in _rewrites(verdict, original):
                    if new.arguments is not call.arguments or new.name != call.name:
                        # A shorter timeout alone makes no other call of it for those before.
                        last_rewrite = index
                    call = new
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
            if impl.external and impl.concerns is not None and not _concerned(impl, call):
                return None
            if impl.external and self._recall is not None:
                known = self._recall(impl, call)
                if known is not NOTHING:
                    return known
            verdict = await run_hook(self._io, impl, self._timeout, call)
            if impl.external and self._remember is not None:
                await self._remember(impl, call, verdict)
        except HookFailed as error:
            return self._failed(impl, error, checked)
        return verdict

    def _failed(self, impl: Impl, error: HookFailed, checked: Checked) -> Deny | None:
        if not impl.allow_on_failure:
            return Deny(f"check failed: {error}", rule="check_failed")
        if impl.plugin not in checked.unchecked:
            checked.unchecked.append(impl.plugin)
            checked.notes.append((impl.plugin, "unchecked"))
        return None

    def _fold(self, plugin: str, part: Any, checked: Checked) -> None:
        if type(part) is Hold:
            checked.notes.append((plugin, "hold"))
            checked.holds.append((plugin, part))
            return
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
        elif type(part) is Unchecked:
            checked.unchecked.append(unchecked(plugin, part))
        elif type(part) is Answer and checked.answer is None:
            checked.answer = (plugin, part)


def _concerned(impl: Impl, call: Call) -> bool:
    """Whether a plugin wants to be asked. One that fails to tell is asked."""
    assert impl.concerns is not None
    try:
        return bool(impl.concerns(call))
    except Exception:  # noqa: BLE001 - a plugin may raise anything, and its check must not be lost
        return True


def unchecked(plugin: str, verdict: Unchecked) -> str:
    """How the journal shows what a plugin could not check."""
    why = f" ({verdict.reason})" if verdict.reason else ""
    return f"{plugin}: {verdict.what}{why}"


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
            tool = _limited(original.tool, after)
    name = new.name if original.kind == "model" else original.name
    return original.replace(arguments=new.arguments, name=name, tool=tool)


_LIMITED: dict[int, tuple[ToolInfo, float, ToolInfo]] = {}
"""By identity of a declaration: it, a timeout, and its copy with that timeout."""


def _limited(tool: ToolInfo, timeout: float) -> ToolInfo:
    """`tool` with another timeout; the same copy for every call, as long as that is."""
    known = _LIMITED.get(id(tool))
    if known is not None and known[0] is tool and known[1] == timeout:
        return known[2]
    import dataclasses

    limited = dataclasses.replace(tool, timeout=timeout)
    if len(_LIMITED) >= 1024:
        _LIMITED.clear()
    _LIMITED[id(tool)] = (tool, timeout, limited)
    return limited


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
    unchecked: list[str] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)


async def fold_post(
    io: IO,
    chain: Sequence[Impl],
    timeout: float | None,
    call: Call,
    outcome: Outcome,
    begun: Sequence[Any] = (),
) -> PostChecked:
    """Fold `post_call`. A check that fails withholds the result; the state stays.

    `begun`: as for `PreFold.run`.
    """
    folded = PostChecked(outcome)
    denied: Denied | None = None
    for index, impl in enumerate(chain):
        try:
            if index < len(begun):
                verdict = begun[index]
                if type(verdict) is HookFailed:
                    raise verdict
            else:
                verdict = NOTHING if impl.timeout is not None else asked(impl, call, folded.outcome)
            if verdict is not None:
                verdict = await judged(io, impl, timeout, verdict, call, folded.outcome)
        except HookFailed as error:
            verdict = Deny(f"check failed: {error}", rule="check_failed")
        if verdict is None:
            continue
        for part in verdict if type(verdict) is tuple else (verdict,):
            if part is None:
                continue
            folded.notes.append((impl.plugin, type(part).__name__.lower()))
            if type(part) is Replace:
                # The journal shows an error through `view`: other words for it are no news there.
                told = part.error is not None and folded.outcome.error is not None
                folded.changed = folded.changed or not told
                value = part.value if part.error is None else None
                folded.outcome = folded.outcome.replace(value=value, error=part.error)
            elif type(part) is Retry:
                folded.retry = part
            elif type(part) is Fallback:
                folded.fallback = part
            elif type(part) is Ask:
                folded.asks.append((impl.plugin, part))
            elif type(part) is Unchecked:
                folded.unchecked.append(unchecked(impl.plugin, part))
            elif type(part) is Deny and (denied is None or (part.halt and not denied.halt)):
                denied = denial(part, call, impl.plugin)
    if denied is not None:
        denied.ran = outcome.state != "not_done"
        folded.outcome = folded.outcome.replace(value=None, error=denied)
        folded.changed = True
        folded.retry = folded.fallback = None
    return folded


async def fold_denied(
    io: IO, chain: Sequence[Impl], timeout: float | None, call: Call, denied: Denied, log: Logger
) -> tuple[Outcome | None, list[tuple[str, str]]]:
    """Fold `on_denied`: what the caller gets instead of a refusal, if anything.

    A Deny is stricter than every Answer. A plugin that fails is logged: the refusal stands.
    """
    found: Outcome | None = None
    final = False
    notes: list[tuple[str, str]] = []
    for impl in chain:
        try:
            verdict = await run_hook(io, impl, timeout, call, denied)
        except HookFailed as error:
            log.error("%s %s: %s", call.name, call.id, error)
            continue
        for part in verdict if type(verdict) is tuple else (verdict,):
            if type(part) is Deny:
                notes.append((impl.plugin, "deny"))
                denied.halt = denied.halt or part.halt
                final = True
            elif type(part) is Answer:
                notes.append((impl.plugin, "answer"))
                source = part.source or impl.plugin
                found = found or Outcome("not_done", part.value, attempts=0, source=source)
    return (None if final else found), notes
