"""Token counts out of a response, whichever provider it came from.

Providers disagree about what their totals hold. `Usage.input_tokens` includes cached tokens
and `Usage.output_tokens` includes reasoning; here each style is brought to that:

    OpenAI, LangChain   input includes cached, output includes reasoning
    Anthropic           cache reads and writes come on top of the input
    Google              thoughts come on top of the output, tool prompts on top of the input

The shapes are told apart by their keys, because a response seldom says where it comes from and
a gateway often answers in another provider's shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkrein.call import Usage
from checkrein.errors import ConfigError

_PROVIDERS = ("", "openai", "anthropic", "google", "langchain")
_USAGE_KEYS = ("usage", "usage_metadata", "usageMetadata")
_COUNT_KEYS = frozenset(
    {"input_tokens", "prompt_tokens", "promptTokenCount", "prompt_token_count"}
)


def usage_of(response: Any, provider: str = "") -> Usage | None:
    """The usage that `response` reports; None if it reports none.

    `response`: a response object or dict, a chat message of LangChain, or the usage part
    alone. `provider` (`openai`, `anthropic`, `google`, `langchain`) settles the style where the
    keys would mislead.

    Raises `ValueError` where a count is negative, not finite or not a number, and
    `ConfigError` for another provider.
    """
    if provider not in _PROVIDERS:
        raise ConfigError(f"provider {provider!r}: use one of {', '.join(_PROVIDERS[1:])}")
    raw = next((u for key in _USAGE_KEYS if (u := _get(response, key)) is not None), None)
    if raw is None:
        if not any(_get(response, key) is not None for key in _COUNT_KEYS):
            return None
        raw = response
    counts = _google(raw) if _is_google(raw, provider) else _common(raw, provider)
    if counts is None:
        return None
    return Usage(**counts, model=_model(response), provider=provider)


def check_usage(usage: Usage) -> bool:
    """Whether every count of `usage` is a whole number of at least 0."""
    return all(
        type(count) is int and count >= 0
        for count in (
            usage.input_tokens, usage.output_tokens, usage.cache_read_tokens,
            usage.cache_write_tokens, usage.reasoning_tokens, usage.input_audio_tokens,
            usage.output_audio_tokens,
        )
    )


def _get(source: Any, *path: str) -> Any:
    for key in path:
        if source is None:
            return None
        source = source.get(key) if isinstance(source, Mapping) else getattr(source, key, None)
    return source


def _count(source: Any, *path: str) -> int | None:
    value = _get(source, *path)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{'.'.join(path)} is not a number")
    if value != value or value < 0 or value != int(value):
        raise ValueError(f"{'.'.join(path)} is not a whole number of at least 0")
    return int(value)


def _first(source: Any, *paths: tuple[str, ...]) -> int | None:
    return next((n for path in paths if (n := _count(source, *path)) is not None), None)


def _model(response: Any) -> str:
    for path in (
        ("model",), ("model_version",), ("modelVersion",),
        ("response_metadata", "model_name"), ("response_metadata", "model"),
    ):
        name = _get(response, *path)
        if isinstance(name, str) and name:
            return name
    return ""


def _is_google(raw: Any, provider: str) -> bool:
    return provider == "google" or any(
        _get(raw, key) is not None for key in ("promptTokenCount", "prompt_token_count")
    )


def _google(raw: Any) -> dict[str, int] | None:
    prompt = _first(raw, ("promptTokenCount",), ("prompt_token_count",))
    if prompt is None:
        return None
    answer = _first(raw, ("candidatesTokenCount",), ("candidates_token_count",))
    thoughts = _first(raw, ("thoughtsTokenCount",), ("thoughts_token_count",)) or 0
    tools = _first(raw, ("toolUsePromptTokenCount",), ("tool_use_prompt_token_count",)) or 0
    if answer is None:
        total = _first(raw, ("totalTokenCount",), ("total_token_count",))
        if total is None:
            return None
        answer = max(total - prompt - tools - thoughts, 0)
    return {
        "input_tokens": prompt + tools,
        "output_tokens": answer + thoughts,
        "cache_read_tokens": _first(
            raw, ("cachedContentTokenCount",), ("cached_content_token_count",)
        ) or 0,
        "reasoning_tokens": thoughts,
    }


def _common(raw: Any, provider: str) -> dict[str, int] | None:
    asked = _first(raw, ("prompt_tokens",), ("input_tokens",))
    if asked is None:
        return None
    answered = _first(raw, ("completion_tokens",), ("output_tokens",))
    if answered is None:
        # Embeddings report no output; the total shows that there was none.
        total = _count(raw, "total_tokens")
        if total is None:
            return None
        answered = max(total - asked, 0)
    read = _first(
        raw,
        ("prompt_tokens_details", "cached_tokens"), ("input_tokens_details", "cached_tokens"),
        ("input_token_details", "cache_read"), ("cache_read_input_tokens",),
        ("prompt_cache_hit_tokens",),
    ) or 0
    write = _first(
        raw,
        ("prompt_tokens_details", "cache_write_tokens"),
        ("input_tokens_details", "cache_write_tokens"),
        ("input_token_details", "cache_creation"), ("cache_creation_input_tokens",),
    ) or 0
    if _adds_cache(raw, provider):
        asked += read + write
    return {
        "input_tokens": asked,
        "output_tokens": answered,
        "cache_read_tokens": read,
        "cache_write_tokens": write,
        "reasoning_tokens": _first(
            raw,
            ("completion_tokens_details", "reasoning_tokens"),
            ("output_tokens_details", "reasoning_tokens"),
            ("output_token_details", "reasoning"),
        ) or 0,
        "input_audio_tokens": _first(
            raw, ("prompt_tokens_details", "audio_tokens"), ("input_token_details", "audio")
        ) or 0,
        "output_audio_tokens": _first(
            raw, ("completion_tokens_details", "audio_tokens"), ("output_token_details", "audio")
        ) or 0,
    }


def _adds_cache(raw: Any, provider: str) -> bool:
    """Anthropic's own shape: cached tokens stand beside the input, not in it."""
    if provider:
        return provider == "anthropic"
    if _get(raw, "prompt_tokens") is not None or _get(raw, "input_token_details") is not None:
        return False
    return any(
        _get(raw, key) is not None
        for key in ("cache_read_input_tokens", "cache_creation_input_tokens")
    )
