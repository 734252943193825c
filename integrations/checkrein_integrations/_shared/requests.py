"""A request of a framework's own objects after plugins changed its plain form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from checkrein.errors import ConfigError

Message = Mapping[str, Any]


def history(
    messages: Sequence[Any],
    before: Sequence[Message],
    after: Sequence[Message],
    rebuilt: Callable[[Any, Message, Message], Any],
    created: Callable[[Message], Any],
) -> list[Any]:
    """The messages of a request after plugins changed them; untouched ones are the originals.

    `rebuilt` makes a changed message from the original, `created` one that a plugin added.
    """
    if len(before) == len(after):
        return [rebuilt(m, o, n) for m, o, n in zip(messages, before, after, strict=True)]
    # Some were added or taken out: what is equal to an original, in order, is that original.
    result: list[Any] = []
    start = 0
    for new in after:
        for index in range(start, len(before)):
            if before[index] == new:
                result.append(messages[index])
                start = index + 1
                break
        else:
            result.append(created(new))
    return result


def offered(tools: Sequence[Any], before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """The tools of a request after plugins took some out. Raises `ConfigError` for others."""
    if list(before) == list(after):
        return list(tools)
    kept: list[Any] = []
    for new in after:
        if new not in before:
            raise ConfigError("a plugin changed a tool's definition: tools can only be taken out")
        kept.append(tools[list(before).index(new)])
    return kept
