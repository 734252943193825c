"""Trees to text and back, and the canonical bytes that digests are made of."""

from __future__ import annotations

import json
import math
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from typing import Any

from checkrein.codec._paths import TAG, Refused, key_step
from checkrein.errors import Undecodable, Unencodable
from checkrein.store import Tree


def _writer(*, sort_keys: bool) -> Callable[[Tree], str]:
    """A function that writes compact JSON and refuses what is not a tree.

    `JSONEncoder.encode` builds its C encoder anew for each text, which costs 1 us of the 2 that
    a small one takes (CPython 3.11). So it is built once, where the interpreter has one.
    """
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(
            ensure_ascii=False,
            check_circular=False,
            allow_nan=False,
            separators=(",", ":"),
            sort_keys=sort_keys,
        ).encode
    quote: Any = json.encoder.encode_basestring
    chunks: Callable[[Tree, int], tuple[str, ...]] = make(
        None, _no_tree, quote, None, ":", ",", sort_keys, False, False
    )
    return lambda tree: "".join(chunks(tree, 0))


def _no_tree(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} is not part of a tree")


_compact = _writer(sort_keys=False)
_sorted = _writer(sort_keys=True)
sort_key: Callable[[Tree], str] = json.JSONEncoder(
    check_circular=False, separators=(",", ":"), sort_keys=True
).encode
"""A text to sort trees by; takes every tree, also one that `canonical` refuses."""


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_read = json.JSONDecoder(parse_constant=_no_constant).decode


def dumps(tree: Tree) -> str:
    """A tree as compact JSON that is always valid UTF-8.

    Raw NaN, infinity and strings with lone surrogates are written as tags, so that `decode`
    gives them back exactly. Raises `Unencodable` for what is not a tree.
    """
    return _write(tree, _compact)


def loads(text: str) -> Tree:
    """The tree that `dumps` wrote. Raises `Undecodable`."""
    try:
        return _read(text)
    except RecursionError:
        raise Undecodable("", "text", "nested too deep for the stack") from None
    except ValueError as error:
        # `from None`: the error holds the whole text, which may be a payload.
        raise Undecodable("", "text", f"it is not JSON: {error}") from None


def canonical(tree: Tree) -> bytes:
    """The bytes of a tree that digests are made of: equal for equal values.

    Keys are sorted, also those that are not strings. Raises `Unencodable` for NaN, infinity
    and lone surrogates: they have no form that everybody agrees on.
    """
    text = _write(tree, _sorted)
    # A quote inside a string is escaped: these texts can only be tags.
    if f'{{"{TAG}":' in text:
        if f'{{"{TAG}":"float"' in text or f'{{"{TAG}":"str"' in text:
            try:
                _refuse_inexact(json.loads(text))
            except Refused as refused:
                raise Unencodable(refused.path(), refused.kind, refused.why) from None
        if f'{{"{TAG}":"dict"' in text:
            text = _sorted(_ordered(json.loads(text)))
    return text.encode()


def digest(key: bytes, tree: Tree) -> str:
    """HMAC-SHA-256 over the canonical bytes, hex. Without the key it cannot be guessed."""
    import hmac

    return hmac.digest(key, canonical(tree), "sha256").hex()


def _write(tree: Tree, write: Callable[[Tree], str]) -> str:
    try:
        try:
            text = write(tree)
        except ValueError:  # NaN, infinity, or an integer too long for decimal digits
            text = write(_safe(tree))
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                text = write(_safe(tree))
        return text
    except Refused as refused:
        raise Unencodable(refused.path(), refused.kind, refused.why) from None
    except RecursionError:
        raise Unencodable("", "tree", "nested too deep for the stack") from None
    except TypeError as error:
        raise Unencodable("", "tree", str(error)) from None


def surrogate(text: str) -> bool:
    """Whether a string has lone surrogates."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def text_of(tree: Tree) -> str:
    """A string from a tree: plain, or as the tag for strings with lone surrogates."""
    if type(tree) is str:
        return tree
    if type(tree) is dict and tree.get(TAG) == "str":
        return a2b_base64(tree["v"]).decode("utf-8", "surrogatepass")
    raise ValueError("not a string")


def _safe(tree: Tree) -> Tree:
    """The same tree with tags for what JSON cannot hold."""
    kind = type(tree)
    if kind is str and surrogate(tree):
        raw = tree.encode("utf-8", "surrogatepass")
        return {TAG: "str", "v": b2a_base64(raw, newline=False).decode()}
    if kind is float and not math.isfinite(tree):
        return {TAG: "float", "v": repr(tree)}
    if kind is int and tree.bit_length() > 1024:
        return {TAG: "int", "v": hex(tree)}
    if kind is list:
        return [_safe(item) for item in tree]
    if kind is dict:
        if any(surrogate(key) for key in tree if type(key) is str):
            return {TAG: "dict", "v": [[_safe(key), _safe(tree[key])] for key in tree]}
        return {key: _safe(item) for key, item in tree.items()}
    return tree


def _refuse_inexact(tree: Tree) -> None:
    kind = type(tree)
    if kind is dict:
        tag = tree.get(TAG)
        if tag == "float":
            raise Refused("float", "NaN and infinity are in no digest")
        if tag == "str":
            raise Refused("str", "lone surrogates are in no digest")
        items = [("" if tag else key_step(key, tree), item) for key, item in tree.items()]
    elif kind is list:
        items = [(f"[{n}]", item) for n, item in enumerate(tree)]
    else:
        return
    for step, item in items:
        try:
            _refuse_inexact(item)
        except Refused as refused:
            refused.at(step, tree)
            raise


def _ordered(tree: Tree) -> Tree:
    """The same tree with the pairs of dicts sorted."""
    kind = type(tree)
    if kind is list:
        return [_ordered(item) for item in tree]
    if kind is dict:
        out = {key: _ordered(item) for key, item in tree.items()}
        if out.get(TAG) == "dict":
            out["v"] = sorted(out["v"], key=sort_key)
        return out
    return tree
