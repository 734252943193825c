"""What the two forms of a model call have in common: see `chat` and `responses`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from checkrein.errors import ConfigError
from checkrein_integrations._shared import requests

if TYPE_CHECKING:
    from checkrein.call import Usage
    from checkrein.streams.filters import Channels
    from checkrein_integrations._shared.retracting import AnswerRetracted

SETTINGS = ("metadata", "prediction", "prompt", "prompt_cache_key", "safety_identifier", "user")
"""Fields of a request that leave with it and may say something about a person."""


class Reader(Protocol):
    """The events of one streamed answer on their way out."""

    def feed(self, event: Any) -> Iterator[Any]:
        """What may be delivered of an event."""
        ...

    def end(self) -> Iterator[Any]:
        """The stream has ended: the rest."""
        ...

    def closes(self, event: Any) -> bool:
        """Whether a reader acts upon it: it waits for the judgement."""
        ...

    def shows(self, event: Any) -> bool:
        """Whether a person sees something of the answer by it."""
        ...

    def abort(self) -> None:
        """Forget what is kept back."""
        ...

    def report(self) -> Any:
        """What has come that tells its usage, for `Form.usage`."""
        ...

    def answer(self) -> Any:
        """The whole filtered answer, as the plain call would have given it."""
        ...

    def message(self) -> dict[str, Any]:
        """The same in the one message shape."""
        ...


class Form(Protocol):
    """One form of model calls: what is sent, and what comes back."""

    arguments: dict[str, Any]
    """The request in the one message shape."""
    outside: list[str]
    """What the provider does on its own, and nothing here can stop."""

    def changed(self, exact: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of the request that are others after the plugins."""
        ...

    def streaming(self) -> dict[str, Any]:
        """Fields that a streamed request gets in addition."""
        ...

    def told(self, answer: Any) -> dict[str, Any]:
        """An answer as one assistant message."""
        ...

    def filtered(self, answer: Any, channels: Callable[[], Channels]) -> Any:
        """An answer as the stream filters let it go."""
        ...

    def usage(self, answer: Any, model: str) -> Usage | None:
        """What an answer reports of its tokens; None if it reports nothing."""
        ...

    def replaced(self, answer: Any, message: Mapping[str, Any]) -> Any:
        """The answer for a message that plugins changed; untouched parts are the originals."""
        ...

    def made(self, message: Mapping[str, Any], model: str) -> Any:
        """An answer that no model gave."""
        ...

    def reader(self, channels: Callable[[], Channels], filtering: bool) -> Reader:
        """Reads one streamed answer."""
        ...

    def events(self, answer: Any, *, begun: bool) -> Iterator[Any]:
        """The events of an answer that came whole. `begun`: some of another have gone out."""
        ...

    def adjusted(self, kept: Sequence[Any], before: Any, after: Any) -> Sequence[Any] | None:
        """Events that were kept back, for an answer that changed; None if what was shown did."""
        ...

    def retracted(self, retracted: AnswerRetracted) -> Any:
        """The event by which the answer is taken back."""
        ...


def settings_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """`{"settings": {...}}` of a request; empty where it has none."""
    found = {name: body[name] for name in SETTINGS if body.get(name) is not None}
    return {"settings": found} if found else {}


def tools_left(
    body: Mapping[str, Any], fields: Sequence[str], before: Sequence[Any], after: Sequence[Any]
) -> dict[str, Any]:
    """Fields of a request after plugins took tools out of it."""
    offered = [tool for field in fields for tool in body.get(field) or ()]
    kept = requests.offered(offered, before, after)
    changes: dict[str, Any] = {}
    for field in fields:
        if body.get(field):
            changes[field] = [t for t in body[field] if any(t is k for k in kept)] or None
    if not kept:
        # Without tools the API takes no settings of them.
        changes |= dict.fromkeys(("tool_choice", "parallel_tool_calls", "function_call"))
    return changes


def message_of(value: Any) -> dict[str, Any]:
    """The assistant message that a plugin gave in place of an answer.

    Raises `ConfigError` for what is neither text nor a message of the one shape.
    """
    if isinstance(value, str):
        value = {"role": "assistant", "parts": [{"type": "text", "content": value}]}
    if not isinstance(value, dict) or not isinstance(value.get("parts"), list):
        raise ConfigError(
            "a plugin replaced a model's answer by something that is neither text nor a message "
            "{'role', 'parts'}"
        )
    return {**value, "role": "assistant"}
