"""Token counts out of a response, whichever provider it came from.

Providers disagree about what their totals hold. `Usage.input_tokens` includes cached tokens
and `Usage.output_tokens` includes reasoning; here each style is brought to that:

    OpenAI, LangChain   input includes cached, output includes reasoning
                        (chat completions, Responses and Realtime alike)
    Anthropic           cache reads and writes come on top of the input
    Google              thoughts come on top of the output, tool prompts on top of the input

The shapes are told apart by their keys, because a response seldom says where it comes from and
a gateway often answers in another provider's shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from checkrein.call import Usage
from checkrein.errors import ConfigError

STANDARD = frozenset(("", "standard", "default", "auto", "on_demand", "none"))
"""What providers call the tier that is billed at the ordinary price."""

_PROVIDERS = ("", "openai", "anthropic", "google", "langchain")
_TIERS = ("priority", "flex")
_NO_REPORT = (str, bytes, int, float, list, tuple)
_USAGE_KEYS = ("usage", "usage_metadata", "usageMetadata")
_TOTALS = frozenset(
    ("prompt_tokens", "input_tokens", "completion_tokens", "output_tokens", "total_tokens")
)
_COUNT_KEYS = ("input_tokens", "prompt_tokens", "promptTokenCount", "prompt_token_count")


def tier_of(name: str) -> str:
    """A service tier by its plain name; empty for the standard one."""
    folded = name.strip().lower()
    return "" if folded in STANDARD else folded


def usage_of(response: Any, provider: str = "") -> Usage | None:
    """The usage that `response` reports; None if it reports none.

    `response`: a response object or dict, a chat message of LangChain, the usage part alone, or
    a list of the chunks of a stream. Counts of providers' chunks are cumulative, so the largest
    stands; those of LangChain's chunks are parts, and are added.

    `provider` (`openai`, `anthropic`, `google`, `langchain`) settles the style where the
    keys would mislead.

    Raises `ValueError` where a count is negative, not finite or not a number, and
    `ConfigError` for another provider.
    """
    if provider not in _PROVIDERS:
        raise ConfigError(f"provider {provider!r}: use one of {', '.join(_PROVIDERS[1:])}")
    if isinstance(response, (list, tuple)):
        response = _joined(response)
    raw = _get(response, *_USAGE_KEYS)
    if raw is None:
        if _get(response, *_COUNT_KEYS) is None:
            return None
        raw = response
    counts = _google(raw) if _is_google(raw, provider) else _common(raw, provider)
    if counts is None:
        return None
    vendor = "" if provider == "langchain" else provider
    return Usage(**counts, model=_model(response), provider=vendor, tier=_tier(response, raw))  # type: ignore[arg-type]  # counts by name


def _joined(chunks: Sequence[Any]) -> dict[str, Any]:
    """The chunks of a stream as one response."""
    joined: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    for chunk in chunks:
        # Anthropic's first chunk has the message with its input; the Responses API's last has
        # the response.
        whole = _get(chunk, "message", "response")
        for source in (chunk, whole):
            name = _model(source)
            if name and "model" not in joined:
                joined["model"] = name
            tier = _get(source, "service_tier")
            if isinstance(tier, str):
                joined["service_tier"] = tier  # a later chunk knows which one it became
            raw = _get(source, *_USAGE_KEYS)
            if raw is not None and not isinstance(raw, _NO_REPORT):
                parts = _get(raw, "input_token_details") is not None or hasattr(
                    source, "usage_metadata"
                )
                _take(usage, raw, add=parts and _get(raw, "prompt_token_count") is None)
    return {**joined, "usage": usage} if usage else joined


def _take(usage: dict[str, Any], raw: Any, *, add: bool) -> None:
    """Merge one report into `usage`: counts are added, or the largest stands."""
    dump = getattr(raw, "model_dump", None)
    fields: Any = raw if isinstance(raw, Mapping) else dump() if callable(dump) else vars(raw)
    for key, value in fields.items():
        if isinstance(value, Mapping) or hasattr(value, "model_dump"):
            inner = usage.setdefault(key, {})
            if type(inner) is not dict:
                raise ValueError(f"{key} is a table in one chunk and not in another")
            _take(inner, value, add=add)
        elif type(value) in (int, float):
            known = usage.get(key, 0)
            if type(known) not in (int, float):
                raise ValueError(f"{key} is a count in one chunk and not in another")
            # A count that is none must stay one: it is refused where counts are read.
            bad = value < 0 or known < 0 or value != value  # noqa: PLR0124 - not a number
            usage[key] = -1 if bad else known + value if add else max(known, value)
        elif value is not None:
            usage.setdefault(key, value)


MOST_TOKENS = 10**12
"""More than this in one call is a mistake of the report, not a use."""


def check_usage(usage: Usage) -> bool:
    """Whether every count of `usage` is a whole number from 0 to `MOST_TOKENS`."""
    return usage.sound() and usage.total_tokens <= MOST_TOKENS


def _get(source: Any, *keys: str) -> Any:
    """The first of `keys` that `source` has, whether it is a mapping or an object."""
    if source is None:
        return None
    if type(source) is dict or isinstance(source, Mapping):
        for key in keys:
            if (value := source.get(key)) is not None:
                return value
        return None
    for key in keys:
        if (value := getattr(source, key, None)) is not None:
            return value
    return None


def _count(source: Any, *keys: str) -> int | None:
    value = _get(source, *keys)
    if value is None:
        return None
    whole = type(value) is int or (type(value) is float and value.is_integer())
    if not whole or value < 0:
        raise ValueError(f"{' or '.join(keys)} is not a whole number of at least 0")
    return int(value)


def _model(response: Any) -> str:
    name = _get(response, "model", "model_version", "modelVersion")
    if name is None:
        name = _get(_get(response, "response_metadata"), "model_name", "model")
    return name if isinstance(name, str) else ""


def _tier(response: Any, raw: Any) -> str:
    """The service tier that was billed, as OpenAI, Anthropic and Google tell it."""
    name = _get(response, "service_tier") or _get(raw, "service_tier", "trafficType")
    if name is None and (about := _get(response, "response_metadata")) is not None:
        name = _get(about, "service_tier")
    if name is None and (into := _get(raw, "input_token_details")) is not None:
        name = next((tier for tier in _TIERS if _get(into, tier) is not None), None)
    return tier_of(name) if isinstance(name, str) else ""


def _is_google(raw: Any, provider: str) -> bool:
    return provider == "google" or _get(raw, "promptTokenCount", "prompt_token_count") is not None


def _google(raw: Any) -> dict[str, int] | None:
    prompt = _count(raw, "promptTokenCount", "prompt_token_count")
    if prompt is None:
        return None
    thoughts = _count(raw, "thoughtsTokenCount", "thoughts_token_count") or 0
    prompt += _count(raw, "toolUsePromptTokenCount", "tool_use_prompt_token_count") or 0
    answer = _count(raw, "candidatesTokenCount", "candidates_token_count")
    if answer is None:
        total = _count(raw, "totalTokenCount", "total_token_count")
        if total is None:
            return None
        answer = max(total - prompt - thoughts, 0)
    read = _count(raw, "cachedContentTokenCount", "cached_content_token_count") or 0
    return {
        "input_tokens": prompt,
        "output_tokens": answer + thoughts,
        "cache_read_tokens": read,
        "reasoning_tokens": thoughts,
        "input_audio_tokens": _heard(raw, "promptTokensDetails", "prompt_tokens_details"),
        "output_audio_tokens": _heard(raw, "candidatesTokensDetails", "candidates_tokens_details"),
        "cache_read_audio_tokens": _heard(raw, "cacheTokensDetails", "cache_tokens_details"),
    }


def _heard(raw: Any, *keys: str) -> int:
    """Audio tokens in Google's counts by modality."""
    parts = _get(raw, *keys)
    found = 0
    for part in parts if isinstance(parts, (list, tuple)) else ():
        name = _get(part, "modality")
        if str(getattr(name, "value", name)).upper() == "AUDIO":
            found += _count(part, "tokenCount", "token_count") or 0
    return found


def _common(raw: Any, provider: str) -> dict[str, int] | None:
    asked = _count(raw, "prompt_tokens", "input_tokens")
    if asked is None:
        return None
    answered = _count(raw, "completion_tokens", "output_tokens")
    if answered is None:
        # Embeddings report no output; the total shows that there was none.
        total = _count(raw, "total_tokens")
        if total is None:
            return None
        answered = max(total - asked, 0)
    if type(raw) is dict and raw.keys() <= _TOTALS:
        return {"input_tokens": asked, "output_tokens": answered}  # no parts of them to look for
    into = _get(raw, "prompt_tokens_details", "input_tokens_details", "input_token_details")
    out = _get(raw, "completion_tokens_details", "output_tokens_details", "output_token_details")
    found = {"input_tokens": asked, "output_tokens": answered}
    if out is not None:
        found["reasoning_tokens"] = _count(out, "reasoning_tokens", *_tiered("reasoning")) or 0
        found["output_audio_tokens"] = _count(out, "audio_tokens", "audio") or 0
    read = write = long = None
    if into is not None:
        read = _count(into, "cached_tokens", *_tiered("cache_read"))
        write = _count(into, "cache_write_tokens", *_tiered("cache_creation"))
        long = _count(into, "ephemeral_1h_input_tokens")
        short = _count(into, "ephemeral_5m_input_tokens")
        if not write and (long or short):
            # LangChain tells either how much was written, or for how long.
            write = (long or 0) + (short or 0)
        found["input_audio_tokens"] = _count(into, "audio_tokens", "audio") or 0
        both = _get(into, "cached_tokens_details")
        found["cache_read_audio_tokens"] = _count(both, "audio_tokens") or 0
    if read is None:
        read = _count(raw, "cache_read_input_tokens", "prompt_cache_hit_tokens") or 0
    if write is None:
        write = _count(raw, "cache_creation_input_tokens") or 0
    kept = _get(raw, "cache_creation")
    if kept is not None:
        long = _count(kept, "ephemeral_1h_input_tokens")
    if (read or write) and _adds_cache(raw, provider):
        found["input_tokens"] += read + write
    found["cache_read_tokens"], found["cache_write_tokens"] = read, write
    found["cache_write_1h_tokens"] = long or 0
    return found


def _tiered(name: str) -> tuple[str, ...]:
    """LangChain's names of a part: tokens of a service tier are kept apart."""
    return (name, *(f"{tier}_{name}" for tier in _TIERS))


def _adds_cache(raw: Any, provider: str) -> bool:
    """Anthropic's own shape: cached tokens stand beside the input, not in it."""
    if provider:
        return provider == "anthropic"
    if _get(raw, "prompt_tokens", "input_token_details") is not None:
        return False
    return _get(raw, "cache_read_input_tokens", "cache_creation_input_tokens") is not None
