"""One hook of one plugin: called, awaited where it has to be, and its answer judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from checkrein._io import Abandoned, forget, is_awaitable
from checkrein.call import Call, Usage
from checkrein.errors import WouldBlock
from checkrein.verdicts import (
    REFUSAL_CODES,
    SETTLES,
    UNITS,
    Always,
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
    Unchecked,
    Undo,
)

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.manager import Impl

ALLOWED: dict[str, tuple[type, ...]] = {
    "pre_call": (Rewrite, Deny, Ask, Answer, Hold, Unchecked),
    "post_call": (Replace, Retry, Fallback, Deny, Ask, Unchecked),
    "on_denied": (Answer, Deny),
    "on_approval": (Approved, Rejected),
    "on_rollback": (Undo, Skip),
}
VERDICTS = frozenset({type(None), tuple, *(t for ts in ALLOWED.values() for t in ts)})


NOTHING = object()


class HookFailed(Exception):
    """A hook raised, hung, or answered with something that is no verdict."""


async def run_hook(io: IO, impl: Impl, timeout: float | None, *values: Any) -> Any:
    """Call one hook of one plugin and return its verdict. Raises `HookFailed`."""
    verdict = asked(impl, *values) if impl.timeout is None else NOTHING
    if verdict is None:
        return None
    return await judged(io, impl, timeout, verdict, *values)


def asked(impl: Impl, *values: Any) -> Any:
    """What a hook without a timeout says at once; `judged` makes a verdict of it.

    Apart from `judged`, so that a hook with nothing to say costs no coroutine.
    """
    try:
        return impl.function(*values) if impl.whole else impl(*values)
    except WouldBlock:
        raise
    except Exception as error:
        raise _raised(impl, error) from error


async def judged(io: IO, impl: Impl, timeout: float | None, verdict: Any, *values: Any) -> Any:
    """The verdict of a hook: awaited where it has to be, and checked.

    `NOTHING`: the hook has a timeout and is called here.
    """
    try:
        if verdict is NOTHING:
            # Only a declared timeout pays for a thread: a sync hook cannot be interrupted.
            verdict = await io.call(
                lambda: impl(*values),
                timeout=impl.timeout,
                is_async=impl.is_async,
                late=forget,
                own=impl.own_loop,
            )
        elif type(verdict) not in VERDICTS and is_awaitable(verdict):
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
        raise _raised(impl, error) from error
    if verdict is not None:
        check_verdict(impl, verdict)
    return verdict


def check_verdict(impl: Impl, verdict: Any) -> None:
    """Raise `HookFailed` for what is no verdict, not one of this hook, or a malformed one."""
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


def _raised(impl: Impl, error: Exception) -> HookFailed:
    # A plugin may raise anything; its message may hold data, so only the type is told.
    return HookFailed(f"{impl.hook} of plugin {impl.plugin} raised {type(error).__name__}")


def malformed(verdict: Any) -> str:
    """Name of a field that holds something else than it should; empty if all is well."""
    if type(verdict) is Hold:
        if _SOUND.get(id(verdict)) is verdict:
            return ""
        if _sound(verdict):
            if len(_SOUND) >= _KEPT:
                _SOUND.clear()
            _SOUND[id(verdict)] = verdict
            return ""
    rules = _FIELDS.get(type(verdict))
    if rules is not None:
        for name, fits in rules.items():
            if not fits(getattr(verdict, name)):
                return name
    if type(verdict) is Ask and bool(verdict.then) != (verdict.after is not None):
        return "then" if verdict.after is None else "after"
    if type(verdict) is Hold and verdict.settle == "streak" and verdict.window is None:
        return "window"
    return ""


_SOUND: dict[int, Hold] = {}
"""Holds that were looked at, by identity. They are frozen, and a plugin often gives the same."""

_KEPT = 1024


def _sound(hold: Any) -> bool:
    """In one look what `_FIELDS` asks of a hold: most calls with a limit carry one."""
    return (
        type(hold.amount) is int
        and hold.amount >= 0
        and type(hold.limit) is int
        and hold.limit >= 0
        and type(hold.account) is str
        and hold.account != ""
        and hold.unit in UNITS
        and (hold.window is None or _positive(hold.window))
        and hold.settle in SETTLES
        and type(hold.rule) is str
        and type(hold.halt) is bool
        and hold.on_refused in ("deny", "wait")
        and type(hold.reason) is str
        and hold.code in REFUSAL_CODES
        and (hold.settle != "streak" or hold.window is not None)
    )


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
        "then": _people,
        "after": lambda v: v is None or _positive(v),
    },
    Answer: {
        "source": _text,
        "saved": lambda v: v is None or (isinstance(v, Usage) and v.sound()),
    },
    Hold: {
        "account": _named,
        "amount": _whole,
        "limit": _whole,
        "unit": UNITS.__contains__,
        "window": lambda v: v is None or _positive(v),
        "settle": SETTLES.__contains__,
        "rule": _text,
        "halt": _flag,
        "on_refused": lambda v: v in ("deny", "wait"),
        "reason": _text,
        "code": REFUSAL_CODES.__contains__,
    },
    Replace: {"error": lambda v: v is None or isinstance(v, BaseException)},
    Retry: {"after": _seconds, "reason": _text},
    Fallback: {"model": _named},
    Approved: {
        "by": _text,
        "arguments": lambda v: v is None or _mapping(v),
        "masked_ok": _flag,
        "always": lambda v: v is None or type(v) is Always,
    },
    Rejected: {"by": _text, "reason": _text},
    Undo: {"name": _named, "arguments": _mapping},
    Skip: {"reason": _text},
    Unchecked: {"what": _named, "reason": _text},
}
"""What each field of a verdict must be: a plugin that gets one wrong has not decided."""
