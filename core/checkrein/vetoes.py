"""Vetoes of the engine itself: on what plugins did to a call."""

from __future__ import annotations

from typing import Any

from checkrein.call import Call
from checkrein.codec import encode_arguments
from checkrein.errors import Denied, Unencodable


def misfit(call: Call, wrong: str) -> Denied:
    """The veto on arguments that a plugin rewrote so that the tool does not take them."""
    return Denied(
        f"check failed: a plugin rewrote the arguments so that they do not fit: {wrong}",
        rule="check_failed",
        tool=call.name,
        call_id=call.id,
        code="check_failed",
    )


def untouched(shown: Any, exact: Any, tree: Any, opaque: Any) -> bool:
    """Whether no plugin changed the arguments in place: then others judged another call."""
    if shown is tree:
        return True
    try:
        if shown == exact:
            return True
    except Exception:  # noqa: BLE001, S110 - values of any type; the exact way is below
        pass
    try:
        return bool(encode_arguments(shown, opaque) == tree)
    except Unencodable:
        return False


def changed_in_place(call: Call) -> Denied:
    """The veto on arguments that a plugin changed in place."""
    return Denied(
        "check failed: a plugin changed the arguments in place, so others have judged another "
        "call than the one that would run; plugins change a call by returning Rewrite",
        rule="check_failed",
        tool=call.name,
        call_id=call.id,
        code="check_failed",
    )
