"""Every guard: the rules of a plugin, early refusal with its place, construction from a file."""

from __future__ import annotations

import re
from typing import Any

import pytest

from checkrein import Rein, errors
from checkrein.testing import check_plugin, sample_call
from checkrein_plugins import guardrails
from checkrein_plugins.guardrails import (
    ActiveHours,
    CategoryRateLimit,
    IdempotencyGuard,
    OutputLengthLimit,
    RecursionDetector,
    ResourceQuota,
    SchemaValidator,
    UrlGuard,
)
from checkrein_plugins.resilience import (
    CircuitBreaker,
    FailureHandler,
    IterationLimit,
    ModelFallback,
    Retry,
    SilenceAlarm,
    Timeout,
)

TO_TEXT = {"type": "object", "properties": {"to": {"type": "string"}}}

GUARDS: list[tuple[type, dict[str, Any]]] = [
    (SchemaValidator, {"arguments": {"send_mail": TO_TEXT}, "results": {"*": {"type": "string"}}}),
    (CategoryRateLimit, {"limits": [{"tool": "*", "calls": 3, "window": 60}]}),
    (CategoryRateLimit, {"limits": [{"category": "write", "calls": 3}]}),
    (RecursionDetector, {}),
    (IdempotencyGuard, {"keys": {"pay": ["amount"]}}),
    (ResourceQuota, {"cpu": 100, "memory_mb": 1, "wall": 100, "parallel": 2}),
    (OutputLengthLimit, {"characters": 3}),
    (OutputLengthLimit, {"characters": 3, "action": "deny"}),
    (UrlGuard, {"allow": ["example.org"]}),
    (ActiveHours, {"hours": ["mon-fri 08:00-18:00"], "timezone": "Europe/Berlin"}),
    (ActiveHours, {"hours": ["00:00-00:01"], "action": "ask"}),
    (Timeout, {"seconds": 5, "models": 7, "session": 3600}),
    (IterationLimit, {"iterations": 3}),
    (SilenceAlarm, {"seconds": 3600}),
    (CircuitBreaker, {"threshold": 2, "ignore": ["ValueError"]}),
    (Retry, {"keys": {"pay": "key"}}),
    (ModelFallback, {"models": {"gpt-4o": ["gpt-4o-mini"]}}),
    (FailureHandler, {"on": {"timeout": "best_effort", "limit": "return_error"}}),
]


@pytest.mark.parametrize(("guard", "settings"), GUARDS)
def test_it_keeps_the_rules_of_a_plugin(guard, settings) -> None:
    nonce = sample_call("search", {"query": "x", "nonce": "1", "url": "http://10.0.0.1/"})
    check_plugin(guard(**settings), [nonce], ["x" * 100, {"url": "http://10.0.0.1/"}])


@pytest.mark.parametrize(("guard", "settings"), GUARDS)
def test_a_file_can_name_it(guard, settings, tmp_path) -> None:
    names = {
        "SchemaValidator": "schema", "CategoryRateLimit": "rates", "ActiveHours": "hours",
        "RecursionDetector": "recursion", "IdempotencyGuard": "idempotency",
        "ResourceQuota": "quota", "OutputLengthLimit": "output", "UrlGuard": "urls",
        "Timeout": "timeout", "IterationLimit": "iterations", "SilenceAlarm": "silence",
        "CircuitBreaker": "breaker", "Retry": "retry", "ModelFallback": "fallback",
        "FailureHandler": "failures",
    }  # fmt: skip
    name = names[guard.__name__]
    with Rein.from_config({"store": "memory:", "plugins": {name: settings}}) as rein:
        assert [type(plugin) for _, plugin in rein.plugins] == [guard]
    with pytest.raises(errors.ConfigError, match=rf"plugins\.{name}\.nonsense: unknown key"):
        Rein.from_config({"store": "memory:", "plugins": {name: {**settings, "nonsense": 1}}})


REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (SchemaValidator, {"arguments": {"pay": {"type": "nope"}}}, r"schema\.arguments\.pay/type: "),
    (SchemaValidator, {"arguments": {"pay": "x"}}, r"schema\.arguments\.pay"),
    (SchemaValidator, {"results": {"pay": {"pattern": "(?=a)"}}}, r"schema\.results\.pay/pattern"),
    (SchemaValidator, {"results": {"p": {"$ref": "http://x.invalid/s"}}}, r"schema\.results\.p"),
    (SchemaValidator, {"declared": False}, "checks none"),
    (SchemaValidator, {"missing": "maybe"}, r"schema\.missing"),
    (CategoryRateLimit, {}, r"rates\.limits"),
    (CategoryRateLimit, {"limits": [{"calls": 1}]}, r"rates\.limits\[0\]: state either"),
    (
        CategoryRateLimit,
        {"limits": [{"calls": 1, "category": "mial"}], "categories": {"mail": ["m*"]}},
        r"rates\.limits\[0\]\.category: unknown category 'mial'.*mail",
    ),
    (
        CategoryRateLimit,
        {"limits": [{"calls": 1, "tool": "a"}], "categories": {"mail": ["m*"]}},
        r"rates\.categories\.mail: no limit names it",
    ),
    (
        CategoryRateLimit,
        {"limits": [{"calls": 1, "category": "read"}], "categories": {"read": ["m*"]}},
        r"rates\.categories\.read",
    ),
    (
        CategoryRateLimit,
        {
            "limits": [
                {"calls": 9, "tool": "a", "window": 60},
                {"calls": 5, "tool": "a", "window": 600},
            ]
        },
        r"rates\.limits\[0\]: can never matter",
    ),
    (CategoryRateLimit, {"limits": [{"calls": -1, "tool": "a"}]}, r"rates\.limits\[0\]\.calls"),
    (CategoryRateLimit, {"limits": [{"calls": 1, "tool": " "}]}, r"rates\.limits\[0\]\.tool"),
    (RecursionDetector, {"repeats": 0}, r"recursion\.repeats"),
    (RecursionDetector, {"repeats": 9, "near_repeats": 3}, r"recursion\.near_repeats"),
    (RecursionDetector, {"cycles": 1}, r"recursion\.cycles"),
    (RecursionDetector, {"tools": ["a"], "exempt": ["a"]}, r"recursion\.exempt"),
    (IdempotencyGuard, {"keys": {"pay": []}}, r"idempotency\.keys\.pay"),
    (IdempotencyGuard, {"keys": {"pay": ["a", "a"]}}, r"idempotency\.keys\.pay"),
    (IdempotencyGuard, {"duplicates": "maybe"}, r"idempotency\.duplicates"),
    (ResourceQuota, {}, "quota: state a limit"),
    (ResourceQuota, {"wall": 0}, r"quota\.wall"),
    (ResourceQuota, {"parallel": True}, r"quota\.parallel"),
    (OutputLengthLimit, {"characters": 0}, r"output\.characters"),
    (OutputLengthLimit, {"tools": {"a": "9"}}, r"output\.tools\.a"),
    (UrlGuard, {"allow": ["evil.com/path"]}, r"urls\.allow\[0\]"),
    (UrlGuard, {"allow": ["a.com"], "block": ["A.com"]}, "both allowed and blocked"),
    (UrlGuard, {"private": True, "resolve": True}, r"urls\.resolve"),
    (UrlGuard, {"ports": [0]}, r"urls\.ports"),
    (ActiveHours, {}, r"hours\.hours"),
    (ActiveHours, {"hours": ["8-18"]}, r"hours\.hours\[0\]"),
    (ActiveHours, {"hours": ["mon 08:00-08:00"]}, r"hours\.hours\[0\]"),
    (ActiveHours, {"hours": ["mon 08:00-25:00"]}, r"hours\.hours\[0\].*25:00"),
    (ActiveHours, {"hours": ["moon 08:00-09:00"]}, r"hours\.hours\[0\].*'moon'"),
    (ActiveHours, {"hours": ["08:00-09:00"], "timezone": "Mars/Olympus"}, r"hours\.timezone"),
    (ActiveHours, {"hours": ["08:00-09:00"], "closed": ["25.12."]}, r"hours\.closed\[0\]"),
    (Timeout, {}, "timeout: state a limit"),
    (Timeout, {"tools": {"a": -1}}, r"timeout\.tools\.a"),
    (IterationLimit, {"iterations": -1}, r"iterations\.iterations"),
    (SilenceAlarm, {"seconds": 0}, r"silence\.seconds"),
    (SilenceAlarm, {"seconds": 1, "action": "shout"}, r"silence\.action"),
    (CircuitBreaker, {"threshold": 0}, r"breaker\.threshold"),
    (CircuitBreaker, {"reset": "60"}, r"breaker\.reset"),
    (Retry, {"attempts": 1}, r"retry\.attempts"),
    (Retry, {"on": ["A"], "never": ["A"]}, r"retry\.never"),
    (Retry, {"delay": 60}, r"retry\.delay"),
    (Retry, {"jitter": 2}, r"retry\.jitter"),
    (ModelFallback, {"models": {}}, r"fallback\.models"),
    (ModelFallback, {"models": {"a": ["b"], "b": ["a"]}}, "a circle leads back"),
    (ModelFallback, {"models": {"a": ["b", "c"], "b": ["d"]}}, "goes on to 'd' here and to 'c'"),
    (ModelFallback, {"models": {"a": ["a"]}}, "stands there twice"),
    (FailureHandler, {"on": {}}, r"failures\.on"),
    (FailureHandler, {"on": {"timeuot": "halt"}}, r"failures\.on\.timeuot: .*'timeout'"),
    (FailureHandler, {"on": {"error": "explode"}}, r"failures\.on\.error: unknown action"),
]


@pytest.mark.parametrize(("guard", "settings", "told"), REFUSED)
def test_bad_settings_are_refused_with_their_place(guard, settings, told) -> None:
    with pytest.raises(errors.ConfigError) as refused:
        guard(**settings)
    assert re.search(told, str(refused.value)), str(refused.value)


@pytest.mark.parametrize("guard", [CategoryRateLimit, RecursionDetector, IdempotencyGuard])
def test_two_of_one_name_would_share_counters(guard) -> None:
    settings = dict(next(s for g, s in GUARDS if g is guard))
    twins = [("one", guard(**settings)), ("two", guard(**settings))]
    with pytest.raises(errors.ConfigError, match="give one of them another name"):
        Rein(plugins=twins)
    other = guard(**settings, name="other")
    Rein(plugins=[("one", guard(**settings)), ("two", other)]).close()


def test_guards_are_imported_by_name() -> None:
    assert all(getattr(guardrails, name).__name__ == name for name in guardrails.__all__)
    with pytest.raises(AttributeError):
        _ = guardrails.Nothing
