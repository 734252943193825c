"""One digest of a call's name and arguments, for the guards that compare calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkrein.call import Call
from checkrein.codec import digest, encode_arguments, is_flat

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
    if opaque or not is_flat(arguments):
        return digest(key, encode_arguments(arguments, frozenset(opaque)))[:32]
    return digest(key, dict(arguments))[:32]
