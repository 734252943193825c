"""Cost: usage read, priced once, never free by accident."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from genai_prices import types as genai
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from checkrein import Rein
from checkrein.call import Call, CallKind, Outcome, ToolInfo, Usage
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Deny, Measured, PostVerdict
from checkrein_plugins.cost import Cost, PriceBook, usage_of

OWN = {"mine": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}}


def call(name: str = "mine", kind: CallKind = "model", **labels: str) -> Call:
    return Call("c1", "s1", kind, name, {}, ToolInfo(name), labels=labels)


def measured(cost: Cost, usage: Usage | None, name: str = "mine", **outcome: Any) -> Measured:
    found = cost.measure(call(name), Outcome("done", usage=usage, **outcome))
    assert found is not None
    # Every price says where it is from.
    assert bool(found.price) == (found.cost is not None)
    return replace(found, price=None)


# Cached tokens


def test_cached_tokens_that_stand_beside_the_input_are_counted_once() -> None:
    usage = usage_of(
        {
            "usage": {
                "input_tokens": 3,
                "cache_creation_input_tokens": 12304,
                "cache_read_input_tokens": 0,
                "output_tokens": 550,
            }
        }
    )
    assert usage == Usage(input_tokens=12307, cache_write_tokens=12304, output_tokens=550)
    # 3 * 3 + 12304 * 3.75 + 550 * 15 dollars per million
    assert measured(Cost(overlay=OWN), usage) == Measured(None, 54_399_000, "reported")


def test_cached_tokens_inside_the_total_are_counted_once() -> None:
    usage = usage_of(
        {
            "usage": {
                "prompt_tokens": 98805,
                "completion_tokens": 0,
                "prompt_tokens_details": {"cached_tokens": 66360, "cache_write_tokens": 32435},
            }
        }
    )
    assert usage is not None
    assert usage.input_tokens == 98805
    # 10 * 3 + 66360 * 0.3 + 32435 * 3.75 dollars per million
    assert measured(Cost(overlay=OWN), usage).cost == 141_569_250


def test_more_cached_than_there_was_is_clamped_and_marked() -> None:
    usage = Usage(input_tokens=100, cache_read_tokens=1000, output_tokens=1)
    assert measured(Cost(overlay=OWN), usage) == Measured(None, 315_000, "estimated")


def test_without_a_cached_price_cached_tokens_cost_the_full_rate() -> None:
    cost = Cost(overlay={"mine": {"input": 3, "output": 15}})
    assert measured(cost, Usage(input_tokens=1000, cache_read_tokens=900)).cost == 3_000_000


@given(st.builds(Usage, *[st.integers(0, 10**7)] * 7))
def test_a_cost_is_never_negative_nor_below_the_cheapest_reading(usage: Usage) -> None:
    found = measured(Cost(overlay=OWN), usage)
    assert found.cost is not None
    assert found.cost >= (usage.output_tokens * 15_000)
    assert found.state in ("reported", "estimated")


# Unknown, missing, zero


def test_an_unknown_model_is_unpriced_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    cost = Cost()
    with caplog.at_level(logging.WARNING, logger="checkrein.cost"):
        for _ in range(3):
            found = measured(cost, Usage(input_tokens=10, output_tokens=10), "no-such-model")
            assert found == Measured(None, None, "unpriced")
    assert len(caplog.records) == 1
    assert "no-such-model" in caplog.text


def test_missing_usage_is_unpriced_even_where_the_price_is_known() -> None:
    assert measured(Cost(), None, "gpt-4o", value="text") == Measured(state="unpriced")
    failed = Outcome("unknown", error=TimeoutError())
    assert Cost().measure(call("gpt-4o"), failed) == Measured(state="estimated")


def test_an_explicit_zero_stays_zero() -> None:
    cost = Cost(overlay={"local/*": {"input": 0, "output": 0}})
    found = measured(cost, Usage(input_tokens=10**6, output_tokens=10), "local/llama")
    assert found == Measured(None, 0, "reported")


def test_what_costs_something_is_never_rounded_to_nothing() -> None:
    cost = Cost(overlay={"mine": {"input": 0.00001, "output": 0}})
    assert measured(cost, Usage(input_tokens=1)).cost == 1


@pytest.mark.parametrize("bad", [-1, 1.5, float("nan"), True, "5", None, 10**30])
def test_usage_that_is_no_count_is_unpriced(bad: Any) -> None:
    broken = Usage(input_tokens=bad, output_tokens=5)
    assert measured(Cost(overlay=OWN), broken) == Measured(state="unpriced")
    if bad is not None and bad != 10**30:
        response = {"usage": {"prompt_tokens": bad, "completion_tokens": 5}}
        with pytest.raises(ValueError, match="prompt_tokens"):
            usage_of(response)
        assert measured(Cost(overlay=OWN), None, value=response) == Measured(state="unpriced")


def test_nothing_done_costs_nothing_and_an_answer_costs_zero() -> None:
    cost = Cost(overlay=OWN, tool_prices={"search": 0.03})
    assert cost.measure(call(), Outcome("not_done", error=ValueError())) is None
    assert cost.measure(call("search", "tool"), Outcome("not_done")) is None
    answered = Outcome("done", value={"usage": {"input_tokens": 5, "output_tokens": 5}})
    assert cost.measure(call(), answered.replace(source="cache")) == Measured(
        cost=0, state="reported"
    )


# Which price


def test_the_model_that_answered_is_priced() -> None:
    usage = Usage(input_tokens=1_000_000, model="gpt-4o-2024-08-06")
    assert measured(Cost(), usage, "my-deployment") == Measured(None, 2_500_000_000, "reported")
    other = Usage(input_tokens=1_000_000, model="in-house-v7")
    assert measured(Cost(), other, "gpt-4o") == Measured(None, 2_500_000_000, "estimated")


@pytest.mark.parametrize("name", ["gpt-4o", "GPT-4o", "openai/gpt-4o", "openai:gpt-4o",
                                  "gpt-4o-2024-08-06", " gpt-4o "])  # fmt: skip
def test_spellings_of_a_known_model(name: str) -> None:
    assert measured(Cost(), Usage(output_tokens=1000), name).cost == 10_000_000


@pytest.mark.parametrize("name", ["ft:gpt-4o:acme", "gpt-4o-acme", "my-proxy/gpt-4o", "", "/", ":"])
def test_a_price_is_not_guessed_from_a_part_of_the_name(name: str) -> None:
    assert measured(Cost(), Usage(output_tokens=1000), name).state == "unpriced"


def test_the_provider_decides_between_equal_names() -> None:
    book = PriceBook({"acme/m": {"input": 1, "output": 1}, "m": {"input": 2, "output": 2}})
    prices = [book.find("m", "acme"), book.find("acme/m"), book.find("m", "x"), book.find("m")]
    assert [p and p.bound(10**6, 0) for p in prices] == [10**9, 10**9, 2 * 10**9, 2 * 10**9]


def test_own_prices_go_before_the_book() -> None:
    book = PriceBook({"GPT-4o": {"input": 1, "output": 1}, "gpt-*": {"input": 2, "output": 2}})
    found = book.find("gpt-4o")
    assert found is not None
    assert found.source.startswith("overlay "), "a digest stands for a version"
    assert found.bound(10**6, 0) == 1_000_000_000
    wild = book.find("openai/gpt-9")
    assert wild is not None
    assert wild.bound(10**6, 0) == 2_000_000_000


def test_a_price_for_the_request_itself() -> None:
    cost = Cost(overlay={"mine": {"input": 1, "output": 1, "request": 0.005}})
    assert measured(cost, Usage(input_tokens=1000)).cost == 6_000_000


def test_equal_to_genai_prices_for_all_its_models() -> None:
    now = datetime.now(UTC)
    compared = 0
    snapshot = get_snapshot()
    for provider in snapshot.providers:
        book = PriceBook(now=lambda: now)
        for model in provider.models:
            price = book.find(model.id, provider.id)
            try:
                _, named = snapshot.find_provider_model(model.id, None, provider.id, None)
            except LookupError:
                assert price is None, "another vendor's price would be a guess"
                continue
            assert price is not None
            assert price.model == named.id
            for asked, read, write, answered, more in (
                (1000, 0, 0, 1000, {}), (98805, 66360, 32435, 7, {}), (250_001, 5, 0, 1, {}),
                (1, 0, 0, 0, {}), (900, 100, 200, 50, {"cache_write_1h_tokens": 120}),
                (900, 300, 0, 90, {
                    "input_audio_tokens": 400, "output_audio_tokens": 40,
                    "cache_read_audio_tokens": 0,
                }),
                (900, 300, 0, 90, {"input_audio_tokens": 400, "cache_read_audio_tokens": 150}),
            ):  # fmt: skip
                cost, fits = price.cost(Usage(asked, answered, read, write, **more))
                theirs = {
                    k.replace("cache_read_audio", "cache_audio_read"): v for k, v in more.items()
                }
                counts = genai.Usage(
                    input_tokens=asked, output_tokens=answered,
                    cache_read_tokens=read, cache_write_tokens=write, **theirs,
                )  # fmt: skip
                expected = named.calc_price(counts, provider, genai_request_timestamp=now)
                nano = (expected.total_price * 10**9).to_integral_value(ROUND_CEILING)
                assert fits
                if cost is None:
                    # Priced by the second, page or character: tokens have no price here.
                    prices = named.get_prices(now)
                    assert prices.input_mtok is None or (prices.output_mtok is None and answered)
                else:
                    assert Decimal(cost) == nano, (provider.id, model.id)
                    compared += 1
    assert compared > 5000


def test_equal_to_genai_prices_in_every_service_tier_that_it_knows() -> None:
    at = datetime(2031, 1, 1, 12, tzinfo=UTC)  # when every price that is announced holds
    compared = 0
    usage = Usage(250_001, 700, 5000, 300, cache_write_1h_tokens=100)
    counts = genai.Usage(
        input_tokens=250_001, output_tokens=700, cache_read_tokens=5000, cache_write_tokens=300,
        cache_write_1h_tokens=100,
    )  # fmt: skip
    book = PriceBook(now=lambda: at)
    for provider in get_snapshot().providers:
        for model in provider.models:
            for variant in model.price_variants or ():
                ((key, tier),) = variant.when.items()
                if key not in ("service_tier", "processing", "speed") or tier == "default":
                    continue
                price = book.find(model.id, provider.id, tier)
                if price is None or price.model != model.id:
                    continue  # another entry of the library has that name
                assert price.tier == tier
                expected = model.calc_price(
                    counts, provider, genai_request_timestamp=at,
                    price_context=dict.fromkeys(("service_tier", "processing", "speed"), tier),
                )  # fmt: skip
                nano = (expected.total_price * 10**9).to_integral_value(ROUND_CEILING)
                cost = price.cost(usage)[0]
                if cost is not None:
                    assert Decimal(cost) == nano, (provider.id, model.id, tier)
                    compared += 1
    assert compared > 150


def test_prices_that_depend_on_the_hour_are_those_of_the_hour() -> None:
    for provider in get_snapshot().providers:
        for model in provider.models:
            for conditional in model.prices if isinstance(model.prices, list) else ():
                if isinstance(conditional.constraint, genai.StartDateConstraint):
                    start = conditional.constraint.start_date
                    before = datetime(start.year - 1, start.month, 1, tzinfo=UTC)
                    after = datetime(start.year, start.month, start.day, 12, tzinfo=UTC)
                    clock = [before]
                    book = PriceBook(now=lambda clock=clock: clock[0])
                    seen = []
                    for moment in (before, after):
                        clock[0] = moment
                        price = book.find(model.id, provider.id)
                        assert price is not None
                        seen.append(price.cost(Usage(10**6, 10**6))[0])
                    expected = [
                        model.calc_price(
                            genai.Usage(input_tokens=10**6, output_tokens=10**6),
                            provider,
                            genai_request_timestamp=moment,
                        ).total_price
                        for moment in (before, after)
                    ]
                    if expected[0] != expected[1] and None not in seen:
                        assert seen == [int(e * 10**9) for e in expected]
                        return
    pytest.fail("no model with a dated price was found")


# Usage


def test_usage_of_the_large_shapes() -> None:
    openai = {
        "model": "gpt-4o",
        "usage": {
            "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 40, "audio_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 20, "audio_tokens": 2},
        },
    }  # fmt: skip
    expected = Usage(100, 50, 40, 0, 20, 3, 2, "gpt-4o")
    assert usage_of(openai) == expected
    as_object = SimpleNamespace(
        model="gpt-4o",
        usage=SimpleNamespace(
            prompt_tokens=100,
            completion_tokens=50,
            prompt_tokens_details=SimpleNamespace(cached_tokens=40, audio_tokens=3),
            completion_tokens_details=SimpleNamespace(reasoning_tokens=20, audio_tokens=2),
        ),
    )
    assert usage_of(as_object) == expected
    responses = {
        "usage": {
            "input_tokens": 100, "input_tokens_details": {"cached_tokens": 40},
            "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 20},
        }
    }  # fmt: skip
    assert usage_of(responses) == Usage(100, 50, 40, 0, 20)
    anthropic = {
        "input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5,
        "output_tokens": 7,
    }  # fmt: skip
    assert usage_of(anthropic) == Usage(105, 7, 90, 5)
    google = {
        "modelVersion": "gemini-2.5-pro",
        "usageMetadata": {
            "promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 20,
            "thoughtsTokenCount": 30, "toolUsePromptTokenCount": 4, "totalTokenCount": 154,
        },
    }  # fmt: skip
    assert usage_of(google) == Usage(104, 50, 60, 0, 30, model="gemini-2.5-pro")
    langchain = SimpleNamespace(
        usage_metadata={
            "input_tokens": 100, "output_tokens": 50, "total_tokens": 150,
            "input_token_details": {"cache_read": 40, "cache_creation": 5},
            "output_token_details": {"reasoning": 20},
        },
        response_metadata={"model_name": "claude-sonnet-4-5"},
    )  # fmt: skip
    assert usage_of(langchain) == Usage(100, 50, 40, 5, 20, model="claude-sonnet-4-5")


def test_a_gateway_in_openai_shape_with_anthropic_fields_is_not_counted_twice() -> None:
    usage = {"prompt_tokens": 105, "cache_read_input_tokens": 90, "completion_tokens": 7}
    assert usage_of({"usage": usage}) == Usage(105, 7, 90)


def test_the_provider_settles_it() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 7}
    assert usage_of(usage, provider="anthropic") == Usage(100, 7, 90, provider="anthropic")
    assert usage_of(usage, provider="openai") == Usage(10, 7, 90, provider="openai")
    with pytest.raises(ConfigError, match="provider 'azur': use one of openai, anthropic"):
        usage_of(usage, provider="azur")


@pytest.mark.parametrize(
    "response",
    [None, "text", 5, {}, {"usage": None}, {"usage": {}}, {"usage": {"prompt_tokens": 5}}, object(),
     {"usage": {"completion_tokens": 5}}, {"usageMetadata": {"promptTokenCount": 5}}],
)  # fmt: skip
def test_what_reports_no_usage_gives_none(response: Any) -> None:
    assert usage_of(response) is None


def test_embeddings_have_no_output() -> None:
    assert usage_of({"usage": {"prompt_tokens": 8, "total_tokens": 8}}) == Usage(8, 0)


def test_usage_agrees_with_genai_prices() -> None:
    from genai_prices import extract_usage

    for provider, response in (
        ("openai", {"model": "gpt-4o", "usage": {
            "prompt_tokens": 100, "completion_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 40}}}),
        ("anthropic", {"model": "claude-sonnet-4-5", "usage": {
            "input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5,
            "output_tokens": 7}}),
    ):  # fmt: skip
        flavor = "chat" if provider == "openai" else "default"
        theirs = extract_usage(response, provider_id=provider, api_flavor=flavor).usage
        ours = usage_of(response)
        assert ours is not None
        assert ours.input_tokens == theirs.input_tokens
        assert ours.output_tokens == theirs.output_tokens
        assert ours.cache_read_tokens == theirs.cache_read_tokens


def test_usage_is_read_from_the_value_where_the_outcome_has_none() -> None:
    response = {"model": "gpt-4o", "usage": {"prompt_tokens": 1000, "completion_tokens": 0}}
    found = measured(Cost(), None, "gpt-4o", value=response)
    assert found == Measured(Usage(1000, 0, model="gpt-4o"), 2_500_000, "reported")


# Tools and refusal


def test_tool_prices() -> None:
    cost = Cost(tool_prices={"maps_*": 0.005, "search": 0.03, "free": 0})
    for name, nano in (("search", 30_000_000), ("Search ", 30_000_000), ("maps_route", 5_000_000),
                       ("free", 0)):  # fmt: skip
        assert cost.measure(call(name, "tool"), Outcome("done")) == Measured(
            cost=nano, state="reported", price="tool_prices"
        )
        assert cost.measure(call(name, "tool"), Outcome("unknown", error=OSError())) is not None
    assert cost.measure(call("other", "tool"), Outcome("done")) is None


def test_unpriced_models_can_be_refused() -> None:
    cost = Cost(unpriced="deny", overlay=OWN)
    assert isinstance(cost.pre_call(call("no-such-model")), Deny)
    assert cost.pre_call(call("mine")) is None
    assert cost.pre_call(call("gpt-4o")) is None
    assert cost.pre_call(call("no-such-model", "tool")) is None
    assert Cost().pre_call(call("no-such-model")) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"overlai": {}}, "cost: unknown key 'overlai'; allowed: overlay, tool_prices, unpriced"),
        ({"unpriced": "free"}, "cost.unpriced: "),
        ({"overlay": ["x"]}, "cost.overlay: must be a file's name or a table"),
        ({"overlay": {"m": {"input": 1}}}, r"cost\.overlay\.m\.output: is needed"),
        ({"overlay": {"m": 5}}, r"cost\.overlay\.m: must be a table with input, output"),
        ({"overlay": {"m": {"input": -1, "output": 1}}}, "m.input: must not be negative"),
        ({"overlay": {"m": {"input": float("nan"), "output": 1}}}, "m.input: must be a finite"),
        ({"overlay": {"m": {"input": True, "output": 1}}}, "m.input"),
        ({"overlay": {"m": {"input": "1", "output": 1}}}, "m.input"),
        (
            {"overlay": {"m": {"input": 1, "output": 1, "inptu": 1}}},
            r"inptu: unknown key \(did you mean 'input'\?\); allowed",
        ),
        ({"overlay": {"m": {"input": 1, "output": 1}, "M": {"input": 2, "output": 2}}}, "twice"),
        ({"tool_prices": {"a": -0.01}}, "tool_prices.a: must not be negative"),
        ({"tool_prices": {"a_b": 1, "A-b": 2}}, "are the same tool"),
        ({"tool_prices": {"a": "1"}}, "tool_prices.a"),
    ],
)
def test_bad_settings_are_refused_with_their_place(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Cost(**settings)


# Through a Rein


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_session_adds_up_what_its_calls_cost(how: str) -> None:
    answers = {
        "mine": {"model": "mine", "usage": {"prompt_tokens": 1000, "completion_tokens": 100}},
        "who": {"model": "who", "usage": {"prompt_tokens": 1000, "completion_tokens": 100}},
    }
    seen: list[tuple[str, Any, Any]] = []

    class Watch(Plugin):
        def post_call(self, call: Call, outcome: Outcome) -> PostVerdict:
            seen.append((call.name, outcome.cost, outcome.cost_state))
            return None

    def search(query: str) -> str:
        return query

    rein = Rein(plugins=[Cost(overlay=OWN, tool_prices={"search": 0.03}), Watch()])
    messages = [{"role": "user", "parts": [{"type": "text", "content": "go"}]}]
    try:
        if how == "sync":
            with rein.session():
                rein.call(search, "x")
                for name, answer in answers.items():
                    rein.model_call(lambda *a, v=answer, **k: v, model=name, messages=messages)
        else:

            async def run() -> None:
                async with rein.session():
                    await rein.acall(search, "x")
                    for name, answer in answers.items():

                        async def model(*a: Any, v: Any = answer, **k: Any) -> Any:
                            return v

                        await rein.amodel_call(model, model=name, messages=messages)

            asyncio.run(run())
    finally:
        rein.close()
    assert seen == [
        ("search", 30_000_000, "reported"),
        ("mine", 4_500_000, "reported"),
        ("who", None, "unpriced"),
    ]


# Streams


@pytest.mark.parametrize(
    ("chunks", "wanted"),
    [
        # OpenAI: the last chunk; a gateway that repeats what there is so far.
        (
            [
                {"model": "m", "choices": []},
                {"model": "m", "usage": {"prompt_tokens": 9, "completion_tokens": 1}},
                {"model": "m", "usage": {"prompt_tokens": 9, "completion_tokens": 5}},
            ],
            Usage(9, 5, model="m"),
        ),
        # Anthropic: input and cache at the beginning, output so far with each delta.
        (
            [
                {
                    "type": "message_start",
                    "message": {
                        "model": "c",
                        "usage": {
                            "input_tokens": 3,
                            "cache_read_input_tokens": 90,
                            "cache_creation_input_tokens": 0,
                            "output_tokens": 1,
                        },
                    },
                },
                {"type": "content_block_delta", "delta": {"text": "x"}},
                {"type": "message_delta", "usage": {"output_tokens": 7}},
            ],
            Usage(93, 7, cache_read_tokens=90, model="c"),
        ),
        # Google: every chunk has all there is so far.
        (
            [
                {"usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 1}},
                {"usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 6}},
            ],
            Usage(4, 6),
        ),
        # LangChain: parts, to be added.
        (
            [
                SimpleNamespace(
                    usage_metadata={"input_tokens": 8, "output_tokens": 0, "total_tokens": 8}
                ),
                SimpleNamespace(
                    usage_metadata={"input_tokens": 0, "output_tokens": 2, "total_tokens": 2}
                ),
                SimpleNamespace(
                    usage_metadata={"input_tokens": 0, "output_tokens": 3, "total_tokens": 3}
                ),
            ],
            Usage(8, 5),
        ),
        ([{"choices": []}, {"choices": []}], None),
        ([], None),
    ],
)
def test_usage_of_a_stream(chunks: Any, wanted: Usage | None) -> None:
    assert usage_of(chunks) == wanted


def test_usage_of_a_stream_that_is_no_count_is_refused() -> None:
    with pytest.raises(ValueError, match="completion_tokens"):
        usage_of(
            [
                {"usage": {"prompt_tokens": 1, "completion_tokens": -4}},
                {"usage": {"prompt_tokens": 1, "completion_tokens": 2}},
            ]
        )
