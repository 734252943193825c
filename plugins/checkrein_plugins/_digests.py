"""One digest of a call's name and arguments, for the guards that compare calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkrein.call import Call
from checkrein.codec import digest, encode_arguments, is_flat

KEY_MARK = "crk_"
"""What idempotency keys that we have made begin with: they are in no digest, because they tell
one call from another where the question is whether the two are the same."""

_last: tuple[Any, bytes, str] = ({}, b"", "")


def digest_of(key: bytes, call: Call) -> str:
    """Keyed with the store's key, so that nobody can guess arguments from an account's name.

    Several guards ask for the same call one after the other: the last answer is kept. Raises
    `Unencodable` for arguments without an exact form.
    """
    global _last  # noqa: PLW0603 - one tuple, replaced whole: threads see the old or the new one
    arguments, known, found = _last
    if arguments is call.arguments and known is key:
        return found
    found = digest_arguments(key, call.arguments, call.tool.opaque)
    _last = (call.arguments, key, found)
    return found


def digest_arguments(key: bytes, arguments: Mapping[str, Any], opaque: tuple[str, ...] = ()) -> str:
    """Digest of exact arguments; `opaque` ones are in no digest."""
    given = {
        name: value
        for name, value in arguments.items()
        if not (type(value) is str and value.startswith(KEY_MARK))
    }
    if opaque or not is_flat(given):
        return digest(key, encode_arguments(given, frozenset(opaque)))[:32]
    return digest(key, given)[:32]
