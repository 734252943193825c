"""Approvals decided by a function of the application."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Never, TypeAlias

from checkrein.approval import ApprovalRequest
from checkrein.call import Call
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Approved, Decision, Rejected
from checkrein_plugins._config import refuse_unknown
from checkrein_plugins._objects import load_object

Verdict: TypeAlias = "Approved | Rejected | bool | None"
Approver: TypeAlias = Callable[[Call, ApprovalRequest], "Verdict | Awaitable[Verdict]"]


class CallableApprover(Plugin):
    """Asks `function(call, request)`, sync or async, about each waiting call.

    `function`: a callable, or `"module:name"` in a file. It returns True, False, `Approved`
    (which may carry edited arguments), `Rejected`, or None: it told somebody, and the answer
    comes through the record. Anything else it returns, and anything it raises, is an error and
    never an approval. `by`: who is named as having decided when it returns True or False.
    `masked_ok`: let its True approve calls with masked fields as well; without it they take an
    `Approved(..., masked_ok=True)`.

    Raises `ConfigError` where the function cannot be found or cannot take the two arguments.
    """

    def __init__(
        self,
        function: Approver | str | None = None,
        *,
        by: str = "",
        masked_ok: bool = False,
        **unknown: Never,
    ) -> None:
        where = "callable"
        refuse_unknown(unknown, where, ("function", "by", "masked_ok"))
        if function is None:
            raise ConfigError(f"{where}.function: is needed: a callable or 'module:name'")
        self._function: Any = (
            load_object(function, f"{where}.function") if isinstance(function, str) else function
        )
        if not callable(self._function):
            raise ConfigError(f"{where}.function: is not callable; use a callable or 'module:name'")
        if not isinstance(by, str):
            raise ConfigError(f"{where}.by: must be text")
        if not isinstance(masked_ok, bool):
            raise ConfigError(f"{where}.masked_ok: must be true or false")
        self._masked_ok = masked_ok
        _check_parameters(self._function, where)
        name = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        self._by = by or f"callable:{name}"

    def on_approval(self, call: Call, request: ApprovalRequest) -> Decision | Awaitable[Decision]:
        """Ask the function; its awaitable is awaited by whoever called."""
        verdict = self._function(call, request)
        if inspect.isawaitable(verdict):
            return self._later(verdict)
        return self._decision(verdict)

    async def _later(self, verdict: Awaitable[Any]) -> Decision:
        return self._decision(await verdict)

    def _decision(self, verdict: Any) -> Decision:
        if verdict is None or isinstance(verdict, (Approved, Rejected)):
            return verdict
        if verdict is True:
            return Approved(by=self._by, masked_ok=self._masked_ok)
        if verdict is False:
            return Rejected(by=self._by)
        raise TypeError(
            f"approver {self._by} returned {type(verdict).__name__}; "
            "allowed: True, False, Approved, Rejected or None"
        )


def _check_parameters(function: Any, where: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # Built-in callables may have no signature: found out at the first call.
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise ConfigError(f"{where}.function: is called with (call, request): {error}") from None
