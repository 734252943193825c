"""Model calls of a client in terms of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkrein.call import Usage
from checkrein.engine import Entry
from checkrein.errors import ConfigError
from checkrein.streams.filters import Channels
from checkrein_integrations._shared.model_tools import model_tool
from checkrein_integrations._shared.responses import text_of as arguments_text
from checkrein_integrations.openai.chat import Chat
from checkrein_integrations.openai.forms import Form, Reader, message_of
from checkrein_integrations.openai.framework import NOT_GIVEN, RAW_RESPONSE_HEADER, UNBILLED
from checkrein_integrations.openai.responses import Responses

if TYPE_CHECKING:
    from checkrein.call import Call, Outcome
    from checkrein.session import Session
    from checkrein_integrations.openai.client import Supervision

FORMS: Mapping[str, Callable[[Mapping[str, Any]], Form]] = {
    "/chat/completions": Chat,
    "/responses": Responses,
}
"""Path of a `POST` -> the form of its model calls."""
_RAW = {"type": "blob", "modality": "raw response"}


@dataclass(frozen=True, slots=True)
class Request:
    """What a client is about to send."""

    send: Callable[..., Any]
    """The client's own `request`."""
    cast_to: Any
    options: Any
    stream: bool
    stream_cls: Any

    @property
    def path(self) -> str:
        """Path below the base URL, without a query."""
        return "/" + str(self.options.url).partition("?")[0].strip("/")

    @property
    def raw(self) -> str:
        """What kind of raw HTTP response is asked for; empty for none."""
        headers = self.options.headers
        return str(headers.get(RAW_RESPONSE_HEADER, "")) if isinstance(headers, Mapping) else ""

    def body(self) -> dict[str, Any]:
        """The JSON that will be sent, `extra_body` in it."""
        given = self.options.json_data
        if given is not None and not isinstance(given, Mapping):
            raise ConfigError(f"{self.path}: the body of the request is no JSON object")
        return {**(given or {}), **(self.options.extra_json or {})}


class ModelJob:
    """One model call on its way."""

    def __init__(self, owner: Supervision, session: Session, request: Request) -> None:
        self.owner = owner
        self.rein = owner.rein
        self.session = session
        self.request = request
        self.body = request.body()
        self.name = str(self.body.get("model") or "")
        self.form = FORMS[request.path](self.body)
        chains = self.rein.plugins.chains
        self.openers = chains["open_stream"]
        filtering = {impl.plugin for impl in self.openers}
        self.judged = bool(chains["post_call"])
        self.whole = [impl.plugin for impl in chains["post_call"] if impl.plugin not in filtering]
        """Plugins that look at an answer only when it is complete."""
        parser = request.options.post_parser
        self._parser = parser if callable(parser) else None
        self.received: Any = None
        self.message: Any = None
        self._reader: Reader | None = None
        self.spent: Usage | None = None
        self.came: list[str] = []
        """What the model wrote, before it was filtered, where nobody reports its tokens."""

    def entry(self, *, is_async: bool, **how: Any) -> Entry:
        """The engine's entry; `run` or `stream` makes the call.

        Raises `ConfigError` for what nothing here can stop.
        """
        outside = list(self.form.outside)
        if self.request.raw:
            outside.append("raw response")
        return Entry(
            model_tool(self.name, UNBILLED),
            dict(self.form.arguments),
            self.session,
            kind="model",
            name=self.name,
            is_async=is_async,
            only_reads=True,
            wait="block",
            labels=self.owner.allowed(outside),
            usage=lambda value: self.spent,
            paid=lambda: self.spent,
            said=lambda: "".join(self.came) if self.came and self.spent is None else None,
            **how,
        )

    def channels(self, call: Call) -> Channels:
        """The stream filters of one answer, or of one choice of it."""
        return Channels(call, self.openers, lambda denied: denied)

    def sent(self, call: Call, exact: Mapping[str, Any], *, stream: bool) -> Any:
        """Send the request that the plugins left."""
        self.received = self.message = self.spent = self._reader = None
        self.came = []
        request = self.request
        changes = self.form.changed(exact) if exact != self.form.arguments else {}
        if stream:
            changes |= self.form.streaming()
        send = request.send
        if call.name != self.name:
            changes["model"] = call.name
            send = self.owner.other(call.name, send)
        options = request.options
        if not changes and self._parser is None and options.extra_json is None:
            return send(request.cast_to, options, stream=stream, stream_cls=request.stream_cls)
        update: dict[str, Any] = {"json_data": self.body, "extra_json": None}
        if changes:
            body = {**self.body, **changes}
            # What a plugin took out is left out.
            update["json_data"] = {
                k: v for k, v in body.items() if v is not None or k not in changes
            }
        if self._parser is not None:
            update["post_parser"] = NOT_GIVEN
        options = options.model_copy(update=update)
        return send(request.cast_to, options, stream=stream, stream_cls=request.stream_cls)

    def take(self, call: Call, answer: Any) -> Any:
        """Keep an answer as it came; the value that plugins see."""
        if self.request.raw:
            self.received = answer
            answer = self._parsed(answer)
            if answer is None:
                self.message = {"role": "assistant", "parts": [_RAW]}
                return self.message
            self.spent = self.form.usage(answer, call.name)
            self.message = self.form.told(answer)
            return self.message
        self.spent = self.form.usage(answer, call.name)
        if self.spent is None:
            self.came = [_text(part) for part in self.form.told(answer)["parts"]]
        if self.openers:
            answer = self.form.filtered(answer, lambda: self.channels(call))
        return self.keep(answer)

    def _parsed(self, raw: Any) -> Any:
        """What a raw response holds; None where it has not been read."""
        return raw.parse() if self.request.raw == "true" and not self.request.stream else None

    def keep(self, answer: Any) -> Any:
        """Keep a filtered answer; the value that plugins see."""
        self.received = answer
        self.message = self.form.told(answer)
        return self.message

    def read(self, reader: Reader) -> Any:
        """Keep an answer that was read from a stream; the value that plugins see."""
        self._reader = reader
        self.message = reader.message()
        return self.message

    def given(self, outcome: Outcome) -> Any:
        """The answer for an outcome: as it came, or as plugins want it."""
        value = outcome.value
        if self.received is None and self._reader is not None:
            # Few want it: it is made here, not for every stream.
            self.received = self._reader.answer()
        if self.received is not None and value is self.message:
            return self.received
        message = message_of(value)
        if self.request.raw:
            raise ConfigError("a plugin replaced an answer that was asked for as a raw response")
        if self.received is None:
            return self.form.made(message, self.name)
        return self.form.replaced(self.received, message)

    def final(self, outcome: Outcome) -> Any:
        """What the caller gets."""
        answer = self.given(outcome)
        if self._parser is None or self.request.raw:
            return answer
        return self._parser(answer)

    # -- plain calls

    def run(self) -> Any:
        """Make the call."""

        def send(call: Call, exact: dict[str, Any]) -> Any:
            return self.take(call, self.sent(call, exact, stream=self.request.stream))

        return self.final(self.rein.enter(self.entry(is_async=False, run=send)))

    async def arun(self) -> Any:
        """The async twin of `run`."""

        async def send(call: Call, exact: dict[str, Any]) -> Any:
            return self.take(call, await self.sent(call, exact, stream=self.request.stream))

        return self.final(await self.rein.aenter(self.entry(is_async=True, run=send)))


def _text(part: Mapping[str, Any]) -> str:
    """The text of a part of an answer, for the counting of its tokens."""
    if part["type"] == "tool_call":
        return f"{part['name']} {arguments_text(part['arguments'])}"
    return str(part.get("content") or "")
