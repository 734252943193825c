"""A user's own prices: files, versions, currencies, service tiers, and the time of a price."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein
from checkrein.call import Usage
from checkrein.errors import ConfigError
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost, PriceBook, usage_of

MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "go"}]}]
MILLION = Usage(10**6, 10**6)

TOML = """
version = "2026-11"
currency = "EUR"
usd_per_unit = 1.25
tiers = { batch = 0.5 }

[models.mine]
input = 4.0
output = 8.0
cache_write = 5.0
cache_write_1h = 8.0
tiers = { priority = 2.0, flex = { input = 1.0, output = 2.0 } }

[models."openai/gpt-4o"]
tiers = { flex = 0.25 }
"""
JSON = """{"version": "2026-11", "currency": "EUR", "usd_per_unit": 1.25, "tiers": {"batch": 0.5},
"models": {"mine": {"input": 4.0, "output": 8.0, "cache_write": 5.0, "cache_write_1h": 8.0,
  "tiers": {"priority": 2.0, "flex": {"input": 1.0, "output": 2.0}}},
 "openai/gpt-4o": {"tiers": {"flex": 0.25}}}}"""


def usd(book: PriceBook, model: str, tier: str = "", usage: Usage = MILLION) -> float:
    price = book.find(model, "", tier)
    assert price is not None
    cost, _ = price.cost(usage)
    assert cost is not None
    return cost / 1e9


def answers(**more: Any) -> Any:
    def provider(**request: Any) -> dict[str, Any]:
        counts = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
        return {"model": request["model"], "usage": counts, **more}

    return provider


@pytest.mark.parametrize(("name", "text"), [("my.toml", TOML), ("my.json", JSON)])
def test_a_file_has_a_version_a_currency_and_tiers(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    book = PriceBook(tmp_path / name)
    assert usd(book, "mine") == 15.0
    assert usd(book, "mine", "priority") == 30.0
    assert usd(book, "mine", "flex") == 3.75
    assert usd(book, "mine", "batch") == 7.5, "of the whole file"
    assert usd(book, "mine", "standard") == usd(book, "mine", "default") == 15.0
    assert usd(book, "gpt-4o", "batch") == usd(PriceBook(), "gpt-4o") / 2
    assert usd(book, "openai/gpt-4o", "flex") == usd(PriceBook(), "gpt-4o") / 4
    price = book.find("mine")
    assert price is not None
    assert price.source == f"{name} 2026-11"
    hour = Usage(10**6, 0, cache_write_tokens=10**6, cache_write_1h_tokens=400_000)
    assert usd(book, "mine", usage=hour) == (600_000 * 5 + 400_000 * 8) * 1.25 / 1e6


def test_source_and_version_stand_in_every_row(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(TOML)
    config = tmp_path / "checkrein.toml"
    config.write_text('store = "memory:"\n[plugins.cost]\noverlay = "my.toml"\n'
                      'tool_prices = { search = 0.03 }\n')  # fmt: skip
    with Rein.from_file(config) as rein, rein.session():
        rein.model_call(answers(), model="mine", messages=MESSAGES)
        rein.model_call(answers(), model="gpt-4o", messages=MESSAGES)
        rein.model_call(answers(service_tier="batch"), model="gpt-4o", messages=MESSAGES)
        rein.call(_search)
        rows = rein.store.costs().rows
    assert rows[0].source == "my.toml 2026-11"
    assert rows[1].source.startswith("genai-prices ")
    assert rows[2].source == f"{rows[1].source} x my.toml 2026-11"
    assert rows[2].cost * 2 == rows[1].cost
    assert len(rows) == 4 and rows[3].source == "tool_prices"


def _search() -> int:
    return 1


_search.__name__ = _search.__qualname__ = "search"


def test_without_a_version_the_content_names_it() -> None:
    first, second = ({"m": {"input": n, "output": 1}} for n in (1, 2))
    sources = [PriceBook(overlay).source for overlay in (first, first, second)]
    assert sources[0] == sources[1] != sources[2]


def test_a_tier_without_a_price_is_an_estimate() -> None:
    overlay = {"mine": {"input": 1, "output": 1, "tiers": {"batch": 0.5}}}
    with Rein(plugins=[Cost(overlay=overlay)]) as rein, rein.session():
        for tier in ("default", "batch", "priority"):
            rein.model_call(answers(service_tier=tier), model="mine", messages=MESSAGES)
        rows = rein.store.costs().rows
    assert [(row.cost, row.state) for row in rows] == [
        (10**9, "reported"), (5 * 10**8, "reported"), (10**9, "estimated")
    ]  # fmt: skip


def test_a_budget_holds_the_price_of_the_tier_that_is_asked_for() -> None:
    overlay = {"mine": {"input": 0, "output": 1, "tiers": {"priority": 3}}}
    budget = Budget(usd=1, prices=overlay, max_output_tokens=1000)
    with Rein(plugins=[budget]) as rein, rein.session() as session:
        seen: list[int] = []

        def provider(**request: Any) -> dict[str, Any]:
            found = rein.store.balance(f"budget/usd/session/{session.id}")
            assert found is not None
            seen.append(found.held)
            return {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}

        rein.model_call(provider, model="mine", messages=MESSAGES)
        with rein.options(labels={"service_tier": "priority"}):
            rein.model_call(provider, model="mine", messages=MESSAGES)
    assert seen == [1_000_000, 3_000_000]


def test_a_price_is_that_of_the_moment_at_which_the_call_begins() -> None:
    """A model whose price changes at an hour of the day, called just before."""
    from genai_prices import types as genai
    from genai_prices.data_snapshot import get_snapshot

    for provider in get_snapshot().providers:
        for model in provider.models:
            for part in model.prices if isinstance(model.prices, list) else ():
                if not isinstance(part.constraint, genai.StartDateConstraint):
                    continue
                day = part.constraint.start_date
                border = datetime(day.year, day.month, day.day, tzinfo=UTC)
                micros = int(border.timestamp()) * 1_000_000
                book = PriceBook()
                before = book.find(model.id, provider.id, at=micros - 1)
                after = book.find(model.id, provider.id, at=micros)
                if before is None or after is None or before.cost(MILLION) == after.cost(MILLION):
                    continue
                shift = [0]

                def clock(shift: list[int] = shift) -> int:
                    return time.time_ns() // 1000 + shift[0]

                def slow(
                    shift: list[int] = shift, micros: int = micros, **request: Any
                ) -> dict[str, Any]:
                    # It is called five milliseconds before the border, and answers behind it.
                    shift[0] = micros - 5000 - time.time_ns() // 1000
                    time.sleep(0.03)
                    counts = {"prompt_tokens": 10**6, "completion_tokens": 10**6}
                    return {"usage": counts}

                with Rein(plugins=[Cost()], clock=clock) as rein, rein.session():
                    with rein.options(labels={"provider": provider.id}):
                        rein.model_call(slow, model=model.id, messages=MESSAGES)
                    (row,) = rein.store.costs().rows
                assert row.cost == before.cost(MILLION)[0]
                return
    pytest.fail("no model with a dated price was found")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[models.m]\ninput = 1\noutput = 1\ninptu = 2\n", r"toml:\d+: models\.m\.inptu: unkn"),
        ("[models.m]\ninput = -1\noutput = 1\n", r"toml:\d+: models\.m\.input: must not"),
        ("[models.m]\ninput = nan\noutput = 1\n", r"models\.m\.input: must be a finite"),
        ("currency = 'XXL'\n[models.m]\ninput=1\noutput=1\n", r"toml.*currency: must be a code"),
        ("currency = 'EUR'\n[models.m]\ninput=1\noutput=1\n", "state usd_per_unit"),
        ("usd_per_unit = 2\n[models.m]\ninput=1\noutput=1\n", "a dollar costs one dollar"),
        ("curency = 'EUR'\n[models.m]\ninput=1\noutput=1\n", "curency: unknown key"),
        ("[models.m]\ninput=1\noutput=1\ntiers={batch=-1}\n", "batch"),
        ("[models.m]\ninput=1\noutput=1\ntiers={standard=1}\n", "the standard tier is the price"),
        ("[models.m]\ninput = 1\ninput = 2\n", r"my\.toml:3"),
        ("x = 1\n", "models: is needed"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "my.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        Cost(overlay=str(tmp_path / "my.toml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"models": {"m": {"input": 1, "input": 2, "output": 1}}}', "input: stands there twice"),
        ('{"models": {"m": {"input": NaN, "output": 1}}}', "NaN is no price"),
        ('{"models":\n {"m": }}', r"my\.json:2"),
        ("[]", "must be a table"),
        ('{"models": {"m": {"input": 1, "output": 1, "x": 1}}}', r"json: models\.m\.x: unknown"),
    ],
)  # fmt: skip
def test_a_bad_json_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "my.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        Budget(usd=1, prices=tmp_path / "my.json")


def test_a_file_that_is_not_there() -> None:
    for name in ("none.toml", "none.json"):
        with pytest.raises(ConfigError, match=name):
            PriceBook(name)


def test_tiers_and_parts_of_the_large_providers() -> None:
    openai = usage_of(
        {"service_tier": "flex", "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    )
    anthropic = usage_of(
        {
            "usage": {
                "input_tokens": 10,
                "output_tokens": 1,
                "service_tier": "batch",
                "cache_creation_input_tokens": 7,
                "cache_read_input_tokens": 0,
                "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
            }
        }
    )
    google = usage_of({"usageMetadata": {
        "promptTokenCount": 100, "candidatesTokenCount": 30, "cachedContentTokenCount": 50,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 40},
                                {"modality": "AUDIO", "tokenCount": 60}],
        "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 20}],
        "candidatesTokensDetails": [{"modality": "AUDIO", "tokenCount": 25}],
        "trafficType": "ON_DEMAND",
    }})  # fmt: skip
    realtime = usage_of({"usage": {
        "input_tokens": 10, "output_tokens": 5,
        "input_token_details": {"cached_tokens": 6, "audio_tokens": 8,
                                "cached_tokens_details": {"text_tokens": 1, "audio_tokens": 5}},
    }})  # fmt: skip
    assert openai is not None and openai.tier == "flex"
    assert anthropic == Usage(17, 1, cache_write_tokens=7, cache_write_1h_tokens=4, tier="batch")
    assert google == Usage(
        100, 30, 50, input_audio_tokens=60, output_audio_tokens=25, cache_read_audio_tokens=20
    )
    assert realtime == Usage(10, 5, 6, input_audio_tokens=8, cache_read_audio_tokens=5)


def test_what_langchain_tells_of_service_tiers_and_caches() -> None:
    """Tokens of a tier are kept apart there, and what is written by how long it is kept."""
    flex = usage_of({"usage_metadata": {
        "input_tokens": 100, "output_tokens": 20,
        "input_token_details": {"flex_cache_read": 40, "flex": 60},
        "output_token_details": {"flex_reasoning": 5, "flex": 15},
    }}, "langchain")  # fmt: skip
    assert flex == Usage(100, 20, 40, reasoning_tokens=5, tier="flex")
    kept = usage_of({"usage_metadata": {
        "input_tokens": 100, "output_tokens": 20,
        "input_token_details": {"cache_read": 10, "cache_creation": 0,
                                "ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 20},
    }}, "langchain")  # fmt: skip
    assert kept == Usage(100, 20, 10, 50, cache_write_1h_tokens=20)


def test_the_library_is_asked_once_for_each_model_and_tier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from genai_prices.data_snapshot import DataSnapshot

    asked: list[str] = []
    find = DataSnapshot.find_provider_model

    def watched(self: Any, model: str, *more: Any) -> Any:
        asked.append(model)
        return find(self, model, *more)

    monkeypatch.setattr(DataSnapshot, "find_provider_model", watched)
    prices = PriceBook({"other": {"input": 1, "output": 1}})
    with (
        Rein(plugins=[Cost(overlay=prices), Budget(usd=10**6, prices=prices)]) as rein,
        rein.session(),
    ):
        for _ in range(5):
            for tier in ("default", "flex"):
                rein.model_call(answers(service_tier=tier), model="gpt-5", messages=MESSAGES)
    # For the hold and the standard tier, and for the tier that was billed.
    assert asked == ["gpt-5", "gpt-5"]
