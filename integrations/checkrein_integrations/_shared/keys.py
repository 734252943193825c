"""Ids of calls that stay the same when a framework runs a step again."""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Mapping
from typing import Any

from checkrein.codec import is_flat

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=repr).encode


def key_digest(secret: bytes, arguments: Mapping[str, Any], *place: str | None) -> str:
    """32 hex digits of what makes a call this one. Keyed: values cannot be guessed from it.

    The order of the arguments makes no difference: a store may change it.
    """
    if is_flat(arguments):
        # Format 2 knows no references: equal values give equal bytes. A third of JSON's price.
        text = marshal.dumps((place, sorted(arguments.items())), 2)
    else:
        text = _encode((place, arguments)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16, key=secret[:64]).hexdigest()
