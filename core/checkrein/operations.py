"""What kind of operation a method is, by the words of its name; connectors may say otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, TypeAlias

from checkrein.call import Effect

Operation: TypeAlias = Literal["create", "read", "update", "delete", ""]
"""Empty: it acts, and nothing is known of how."""

_VERBS: dict[Operation, tuple[str, ...]] = {
    "read": (
        "get", "list", "retrieve", "search", "read", "fetch", "find", "describe", "count",
        "exists", "head", "show", "view", "iter", "is", "has", "lookup", "peek", "download",
        "select", "scan",
    ),
    "delete": (
        "delete", "del", "remove", "destroy", "drop", "purge", "clear", "erase", "cancel",
        "archive", "revoke", "detach", "unlink", "leave", "kick", "abort", "void", "truncate",
    ),
    "update": (
        "update", "edit", "modify", "set", "patch", "put", "replace", "rename", "move", "merge",
        "mark", "add", "assign", "attach", "close", "reopen", "lock", "unlock", "pay", "apply",
        "acknowledge", "ack", "enable", "disable", "restore", "finalize", "capture", "confirm",
    ),
    "create": (
        "create", "new", "insert", "post", "send", "upload", "copy", "invite", "join", "open",
        "schedule", "start", "publish", "upsert", "write", "push", "import", "register", "acquire",
    ),
}  # fmt: skip
VERBS: dict[str, Operation] = {word: kind for kind, words in _VERBS.items() for word in words}
"""First word of a method's name -> what it does."""

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_ACTS = frozenset(
    word
    for kind in ("create", "update", "delete")
    for word in _VERBS[kind]
    if word not in ("new", "open", "copy", "history", "import")
)


def operation_of(name: str) -> Operation:
    """What the method `name` does, as far as its words say."""
    words = [word.lower() for word in _WORD.findall(name)]
    found: Operation = VERBS[words[0]] if words and words[0] in VERBS else ""
    if found == "read" and _ACTS.intersection(words[1:]):
        # `get_or_create`, `find_and_replace`: it begins with a look, and acts.
        acts: list[Operation] = [VERBS[word] for word in words[1:] if word in _ACTS]
        return acts[0] if acts else found
    return found


def effect_of(operation: str) -> Effect:
    """The effect of an operation, as tools declare it."""
    return "read" if operation == "read" else "write"


def known(operations: Iterable[str]) -> bool:
    """Whether these are all operations."""
    return all(operation in (*_VERBS, "") for operation in operations)
