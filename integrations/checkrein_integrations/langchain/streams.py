"""Streamed answers: what `open_stream` filters let through, before anybody sees it.

A graph emits a model's tokens while the model runs, before any middleware returns. The model of
a request is therefore swapped for one that filters what the real one yields. Filters hold back
a tail of text; the arguments of tool calls are delivered once they are complete.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import cached_property
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables.config import ensure_config
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from pydantic import ConfigDict

from checkrein.errors import ConfigError
from checkrein_integrations.langchain.channels import TEXT, Channels, filtered
from checkrein_integrations.langchain.signals import ending


class _Delivery:
    """Chunks of one streamed answer on their way out."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._last_block: tuple[str, dict[str, Any]] | None = None
        self._calls: dict[int, dict[str, Any]] = {}
        self._held: list[Any] = []
        self._plain = False
        self._blocks = False

    def feed(self, chunk: ChatGenerationChunk) -> Iterator[ChatGenerationChunk]:
        """What may be delivered of a chunk."""
        message = chunk.message
        assert isinstance(message, AIMessageChunk)
        last = message.chunk_position == "last"
        content: Any
        if isinstance(message.content, str):
            self._plain = self._plain or bool(message.content)
            content = self._channels.channel("text").feed(message.content)
        else:
            self._blocks = True
            content = self._filtered(message.content)
        for piece in message.tool_call_chunks:
            self._collect(dict(piece))
        update: dict[str, Any] = {"content": content, "tool_call_chunks": [], "tool_calls": [],
                                  "invalid_tool_calls": []}  # fmt: skip
        extra = message.additional_kwargs
        if "tool_calls" in extra or "function_call" in extra:
            update["additional_kwargs"] = {
                k: v for k, v in extra.items() if k not in ("tool_calls", "function_call")
            }
        if last:
            update |= self._rest(content)
        yield _chunk(message.model_copy(update=update), chunk)

    def _filtered(self, blocks: list[Any]) -> list[Any]:
        out: list[Any] = []
        for block in blocks:
            if isinstance(block, str):
                out.append(self._channels.channel("text").feed(block))
                continue
            kind = str(block.get("type", ""))
            key = TEXT.get(kind)
            if key is None or not isinstance(block.get(key), str):
                if kind in ("tool_use", "input_json_delta", "tool_call_chunk", "function_call"):
                    self._held.append(block)
                else:
                    out += self._tail()
                    out.append(block)
                continue
            channel = "text" if kind == "text" else "reasoning"
            before = self._last_block
            if before is not None and before[1].get("index") != block.get("index"):
                out += self._tail()
            self._last_block = (channel, block)
            out.append({**block, key: self._channels.channel(channel).feed(block[key])})
        return out

    def _tail(self) -> list[Any]:
        """What the channel of the block that ends kept back."""
        if self._last_block is None:
            return []
        channel, block = self._last_block
        self._last_block = None
        text = self._channels.close(channel)
        if not text:
            return []
        kept = {k: v for k, v in block.items() if k in ("type", "index")}
        return [{**kept, TEXT[block["type"]]: text}]

    def _collect(self, piece: dict[str, Any]) -> None:
        index = piece.get("index")
        number = index if isinstance(index, int) else len(self._calls)
        known = self._calls.get(number)
        if known is None:
            self._calls[number] = {**piece, "args": piece.get("args") or ""}
            return
        known["args"] += piece.get("args") or ""
        known["name"] = known.get("name") or piece.get("name")
        known["id"] = known.get("id") or piece.get("id")

    def _rest(self, content: Any) -> dict[str, Any]:
        """Everything that is still kept back, for the last chunk."""
        if isinstance(content, str) and not self._blocks:
            rest: Any = content + self._channels.close("text")
        else:
            rest = ([content] if content else []) if isinstance(content, str) else list(content)
            rest += self._tail()
            text = self._channels.close("text")
            if text:
                rest.append({"type": "text", "text": text})
        calls = []
        changed = False
        for number, piece in enumerate(self._calls.values()):
            args = self._channels.arguments(number, piece["args"])
            changed = changed or args != piece["args"]
            calls.append({**piece, "args": args, "type": "tool_call_chunk"})
        # A provider's own form of calls whose arguments changed would bring the old ones back.
        if self._held and not changed and isinstance(rest, list):
            rest += self._held
        self._held.clear()
        self._calls.clear()
        return {"content": rest, **_parsed(calls)}

    def end(self) -> Iterator[ChatGenerationChunk]:
        """The stream ended without saying so: deliver the rest."""
        rest = self._rest([] if self._blocks else "")
        if rest["content"] or rest["tool_call_chunks"]:
            yield ChatGenerationChunk(message=AIMessageChunk(**rest))


def _parsed(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Tool call fields of a chunk: a copy does not parse them anew."""
    made = AIMessageChunk(content="", tool_call_chunks=cast("Any", calls))
    return {
        "tool_call_chunks": made.tool_call_chunks,
        "tool_calls": made.tool_calls,
        "invalid_tool_calls": made.invalid_tool_calls,
    }


def _chunk(message: Any, like: ChatGenerationChunk) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=message, generation_info=like.generation_info)


class FilteredChatModel(BaseChatModel):
    """Calls another chat model and filters what it answers."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    inner: BaseChatModel
    openers: Any
    """Returns the `Channels` of one answer."""
    told: Any = None
    """Called with each answer before it is filtered: one that is blocked has been paid for."""
    shows: Any = None
    """Called when something of the answer has been delivered."""
    hold: bool = False
    """No reader of a stream hears of the call."""
    model_name: str = ""

    @property
    def _llm_type(self) -> str:
        return self.inner._llm_type  # noqa: SLF001 - a chat model calls another one's methods

    @property
    def _identifying_params(self) -> Any:
        return self.inner._identifying_params  # noqa: SLF001 - as above

    @cached_property
    def _serialized(self) -> dict[str, Any]:
        # What callbacks are told of the model: of the inner one, which has it ready. A new
        # stand-in for every call would describe itself anew each time.
        return self.inner._serialized  # noqa: SLF001 - as above

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return self.inner._get_ls_params(stop=stop, **kwargs)  # noqa: SLF001 - as above

    def _should_stream(self, *, async_api: bool, run_manager: Any = None, **kwargs: Any) -> bool:
        return self.inner._should_stream(  # noqa: SLF001 - as above
            async_api=async_api, run_manager=run_manager, **kwargs
        )

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        """As any chat model."""
        return super().invoke(input, _unstreamed(config) if self.hold else config, **kwargs)

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        """As any chat model."""
        return await super().ainvoke(input, _unstreamed(config) if self.hold else config, **kwargs)

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Bind tools as the inner model does."""
        bound: Any = self.inner.bind_tools(tools, **kwargs)
        if bound is self.inner:
            # A model that keeps its tools itself, or a stand-in that needs none.
            return self
        inner = getattr(bound, "bound", None)
        if inner is not self.inner:
            raise ending(
                ConfigError(
                    f"{type(self.inner).__name__}.bind_tools returns another model: its streams "
                    "cannot be filtered; let it return self.bind(tools=...) or self"
                )
            )
        return self.bind(**bound.kwargs)

    def _reported(self, chunk: ChatGenerationChunk, run_manager: Any) -> ChatGenerationChunk:
        if self.shows is not None and (chunk.text or _calls_of(chunk)):
            self.shows()
        if run_manager is not None:
            run_manager.on_llm_new_token(chunk.text, chunk=chunk)
        return chunk

    async def _areported(self, chunk: ChatGenerationChunk, run_manager: Any) -> ChatGenerationChunk:
        self._reported(chunk, None)
        if run_manager is not None:
            await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
        return chunk

    def _tell(self, message: Any) -> None:
        if self.told is not None:
            self.told(message)

    def _finished(self, result: ChatResult) -> ChatResult:
        channels = self.openers()
        for generation in result.generations:
            self._tell(generation.message)
        return ChatResult(
            generations=[
                ChatGeneration(
                    message=filtered(generation.message, channels),
                    generation_info=generation.generation_info,
                )
                for generation in result.generations
            ],
            llm_output=result.llm_output,
        )

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        # Without the run manager: it would report the unfiltered tokens.
        return self._finished(self.inner._generate(messages, stop=stop, **kwargs))  # noqa: SLF001 - as a model calls another

    async def _agenerate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        result = await self.inner._agenerate(messages, stop=stop, **kwargs)  # noqa: SLF001 - as a model calls another
        return self._finished(result)

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        channels = self.openers()
        delivery = _Delivery(channels)
        try:
            for chunk in self.inner._stream(messages, stop=stop, **kwargs):  # noqa: SLF001 - as a model calls another
                self._tell(chunk.message)
                for out in delivery.feed(chunk):
                    yield self._reported(out, run_manager)
            for out in delivery.end():
                yield self._reported(out, run_manager)
        finally:
            channels.abort()

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        channels = self.openers()
        delivery = _Delivery(channels)
        try:
            async for chunk in self.inner._astream(messages, stop=stop, **kwargs):  # noqa: SLF001 - as a model calls another
                self._tell(chunk.message)
                for out in delivery.feed(chunk):
                    yield await self._areported(out, run_manager)
            for out in delivery.end():
                yield await self._areported(out, run_manager)
        finally:
            channels.abort()


def written(message: Any) -> list[str]:
    """What the model wrote in a message or a chunk of one: text, and arguments of calls."""
    calls = getattr(message, "tool_call_chunks", ())
    return [str(message.text), *(piece.get("args") or "" for piece in calls)]


def _unstreamed(config: Any) -> Any:
    """The config without those who read a stream: they are told of the final message."""
    config = ensure_config(config)
    callbacks = config.get("callbacks")
    if isinstance(callbacks, list):
        return {**config, "callbacks": _not_streaming(callbacks)}
    if callbacks is None:
        return config
    manager = callbacks.copy()
    manager.handlers = _not_streaming(manager.handlers)
    manager.inheritable_handlers = _not_streaming(manager.inheritable_handlers)
    return {**config, "callbacks": manager}


def _not_streaming(handlers: list[Any]) -> list[Any]:
    return [h for h in handlers if not isinstance(h, _StreamingCallbackHandler)]


def _calls_of(chunk: ChatGenerationChunk) -> Any:
    return getattr(chunk.message, "tool_call_chunks", None)


def filtering(
    model: Any,
    openers: Callable[[], Channels],
    hold: bool,
    told: Callable[[Any], None] | None = None,
    shows: Callable[[], None] | None = None,
) -> BaseChatModel:
    """A model whose answers are filtered. Raises `ConfigError` for what is no chat model.

    `hold`: nobody who reads a stream hears of the call; the graph emits the final message.
    """
    if not isinstance(model, BaseChatModel):
        raise ending(
            ConfigError(
                f"{type(model).__name__} is no BaseChatModel: its streams cannot be filtered"
            )
        )
    return FilteredChatModel(
        inner=model,
        openers=openers,
        told=told,
        shows=shows,
        hold=hold,
        model_name=str(getattr(model, "model_name", "") or getattr(model, "model", "") or ""),
        cache=model.cache,
        rate_limiter=model.rate_limiter,
        disable_streaming=model.disable_streaming,
        profile=model.profile,
        metadata=model.metadata,
        callbacks=model.callbacks,
        tags=model.tags,
    )
