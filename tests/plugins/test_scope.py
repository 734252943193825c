"""Scope: tools by name, arguments by rule, calls by count."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import fnmatch
import os
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein import Rein
from checkrein.approval import ApprovalRequest
from checkrein.call import Call, CallKind, ToolInfo
from checkrein.errors import ApprovalRejected, BudgetExceeded, ConfigError, Denied
from checkrein.verdicts import Approved, Ask, Deny, Hold
from checkrein_plugins.approvers import CallableApprover
from checkrein_plugins.guardrails import Scope


def call(name: str, arguments: dict[str, Any] | None = None, kind: CallKind = "tool") -> Call:
    return Call("c1", "s1", kind, name, arguments or {}, ToolInfo(name))


def verdict(scope: Scope, name: str, **arguments: Any) -> str:
    """`deny`, `ask` or `pass`."""
    found = scope.pre_call(call(name, arguments))
    assert scope.pre_call(call(name, arguments)) == found, "pre_call must be pure"
    if isinstance(found, Deny):
        return "deny"
    return "ask" if any(isinstance(v, Ask) for v in found or ()) else "pass"


def argument(rule: dict[str, Any], value: Any) -> str:
    return verdict(Scope(rules=[{"tool": "t", "arguments": {"a": rule}}]), "t", a=value)


# Names


@pytest.mark.parametrize(
    "name",
    [
        "delete_file", "Delete_File", "DELETE_FILE", "delete_file ", " delete_file", "delete-file",
        "delete file", "delete__file", "_delete_file_", "DeleteFile", "deletefile", "delete–file",
        "ｄｅｌｅｔｅ＿ｆｉｌｅ", "dеlete_file", "delete\u200b_file", "délete_file", "𝐝elete_file",
        "delete_file\n", "dele\u0301te_file", "DELETE_FІLE",
    ],
)  # fmt: skip
def test_a_name_that_reads_the_same_does_not_get_around_a_rule(name: str) -> None:
    scope = Scope(rules=[{"tool": "delete_file", "action": "deny"}])
    assert verdict(scope, name) == "deny"


@pytest.mark.parametrize("name", ["delete_files", "xdelete_file", "undelete_file", "delete", ""])
def test_globs_are_for_the_whole_name(name: str) -> None:
    assert verdict(Scope(rules=[{"tool": "delete_file", "action": "deny"}]), name) == "pass"


def test_wildcards() -> None:
    scope = Scope(rules=[{"tool": "shell_*", "action": "deny"}, {"tool": "v?", "action": "ask"}])
    assert verdict(scope, "Shell-Run") == "deny"
    assert verdict(scope, "shell_") == "pass"
    assert verdict(scope, "shellac") == "pass"
    assert verdict(scope, "V1") == "ask"
    assert verdict(scope, "v12") == "pass"
    assert verdict(scope, "[v1]") == "pass"


@given(
    st.lists(st.text("ab*?", min_size=1, max_size=5), min_size=1, max_size=4),
    st.text("abc", max_size=6),
)
def test_globs_match_as_globs_do(patterns: list[str], name: str) -> None:
    expected = any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    rule = {"tool": "t", "arguments": {"a": {"allow": patterns}}}
    assert verdict(Scope(rules=[rule]), "t", a=name) == ("pass" if expected else "deny")


def test_a_list_takes_the_exact_name_only() -> None:
    scope = Scope(allow=["search", "mail.*"])
    assert verdict(scope, "search") == "pass"
    assert verdict(scope, "mail.send") == "pass"
    for name in ("Search", "sеarch", "search ", "delete"):
        assert verdict(scope, name) == "deny"


def test_unlisted() -> None:
    rules = [{"tool": "a", "arguments": {"x": {"maximum": 1}}}]
    assert verdict(Scope(rules=rules), "b") == "pass"
    assert verdict(Scope(rules=rules, unlisted="ask"), "b") == "ask"
    assert verdict(Scope(rules=rules, unlisted="deny"), "b") == "deny"
    assert verdict(Scope(rules=rules, unlisted="deny"), "a", x=1) == "pass"


def test_the_strictest_of_all_matching_rules_wins_in_any_order() -> None:
    rules = [
        {"tool": "pay*"},
        {"tool": "pay", "action": "ask"},
        {"tool": "*", "name": "all", "arguments": {"n": {"maximum": 5}}},
    ]
    for order in (rules, rules[::-1]):
        scope = Scope(rules=order)
        assert verdict(scope, "pay", n=1) == "ask"
        assert verdict(scope, "pay", n=6) == "deny"
        assert verdict(scope, "pays", n=5) == "pass"
    assert verdict(Scope(allow=["*"], block=["pay"]), "pay") == "deny"


def test_only_tools_are_judged() -> None:
    scope = Scope(rules=[{"tool": "*", "action": "deny"}])
    assert scope.pre_call(call("m", kind="model")) is None
    assert scope.pre_call(call("refund", kind="undo")) is None
    assert isinstance(scope.pre_call(call("refund")), Deny)
    strict = Scope(rules=[{"tool": "*", "action": "deny"}], undo=True)
    assert isinstance(strict.pre_call(call("refund", kind="undo")), Deny)


# Numbers


def test_maximum_minimum_and_ask_above() -> None:
    rule = {"minimum": 0, "ask_above": 100, "maximum": 1000}
    assert argument(rule, 100) == "pass"
    assert argument(rule, 100.01) == "ask"
    assert argument(rule, Decimal("100.01")) == "ask"
    assert argument(rule, 1000) == "ask"
    assert argument(rule, 1000.5) == "deny"
    assert argument(rule, -1) == "deny"
    assert argument(rule, [1, 2, 3]) == "pass"
    assert argument(rule, [1, 500]) == "ask"
    assert argument(rule, {"a": [1, {"b": 5000}]}) == "deny"
    assert argument(rule, 10**400) == "deny"


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), True, "50", "1e2", b"5", Decimal("NaN"), 1j,
     object(), [1, "2"], [True], {"a": None}, None, [], {}],
)  # fmt: skip
def test_what_is_no_number_is_denied(value: Any) -> None:
    assert argument({"maximum": 100}, value) == "deny"


def test_a_number_cannot_lie_about_itself() -> None:
    class Small(int):
        def __gt__(self, other: object) -> bool:
            return False

    assert argument({"maximum": 100}, Small(5000)) == "deny"
    assert argument({"maximum": 100}, Small(50)) == "pass"


def test_ask_above_looks_everywhere_and_needs_nothing() -> None:
    class Small(int):
        def __gt__(self, other: object) -> bool:
            return False

    rule = {"ask_above": 100, "optional": True}
    for value in ({"a": {"b": 500}}, [[1], [500]], Small(500), {500: 500}):
        assert argument(rule, value) == "ask"
    for value in ({"a": {"b": 5}}, None, [], [None], {500: 5}):
        assert argument(rule, value) == "pass"
    for name in ("a", "a.b"):
        assert verdict(Scope(rules=[{"tool": "t", "arguments": {name: rule}}]), "t") == "pass"


def test_ask_says_what_without_the_value() -> None:
    scope = Scope(
        rules=[
            {
                "tool": "refund", "risk": "high", "who": ["ann", "bob"], "quorum": 2, "expires": 60,
                "then": ["carl"], "after": 30,
                "arguments": {"amount": {"ask_above": 100}},
            }
        ]
    )  # fmt: skip
    found = scope.pre_call(call("refund", {"amount": 123456.789}))
    assert found == (
        Ask(
            "argument 'amount' is above 100", rule="scope/refund", risk="high", expires=60,
            who=("ann", "bob"), quorum=2, then=("carl",), after=30,
        ),
    )  # fmt: skip


# Text


def test_missing_empty_and_optional() -> None:
    for rule in ({"block": ["x*"]}, {"match": ".*"}, {"type": "path", "block": ["/etc/*"]}):
        scope = Scope(rules=[{"tool": "t", "arguments": {"a": rule}}])
        assert verdict(scope, "t") == "deny"
        assert verdict(scope, "t", a=None) == "deny"
        assert verdict(scope, "t", a=[]) == "deny"
        assert verdict(scope, "t", A="/x") == "deny"
        lenient = Scope(rules=[{"tool": "t", "arguments": {"a": {**rule, "optional": True}}}])
        assert verdict(lenient, "t") == "pass"
        assert verdict(lenient, "t", a=None) == "pass"
        assert verdict(lenient, "t", a=[]) == "pass"


def test_allow_is_exact_and_block_is_folded() -> None:
    rule = {"allow": ["ab*", "x"], "block": ["abc*"]}
    assert argument(rule, "abx") == "pass"
    assert argument(rule, "ABx") == "deny"
    assert argument(rule, "abcd") == "deny"
    assert argument({"block": ["abc*"]}, "ABCd") == "deny"
    assert argument({"block": ["abc*"]}, " ａｂｃ") == "deny"
    assert argument({"block": ["abc*"]}, "a\u200bbc") == "deny"
    assert argument({"block": ["abc*"]}, "xabc") == "pass"


def test_match_is_for_the_whole_value() -> None:
    rule = {"match": "[a-z]+@example[.]com"}
    assert argument(rule, "ann@example.com") == "pass"
    assert argument(rule, "ann@example.com.evil.com") == "deny"
    assert argument(rule, "ann@example.com\nbcc: x@evil.com") == "deny"
    assert argument(rule, ["ann@example.com", "x@evil.com"]) == "deny"
    assert argument(rule, 5) == "deny"
    assert argument(rule, "\ud800") == "deny"


def test_one_of() -> None:
    assert argument({"one_of": ["EUR", "USD"]}, "EUR") == "pass"
    assert argument({"one_of": ["EUR", "USD"]}, "eur") == "deny"
    assert argument({"one_of": [1, 2]}, 1) == "pass"
    assert argument({"one_of": [1, 2]}, True) == "deny"
    assert argument({"one_of": [1, 2]}, "1") == "deny"
    assert argument({"one_of": [True]}, 1) == "deny"
    assert argument({"one_of": ["a"]}, ["a", "b"]) == "deny"


def test_every_leaf_must_pass_wherever_it_hides() -> None:
    class Colour(enum.Enum):
        RED = "red"
        BAD = "bad"

    @dataclasses.dataclass
    class Point:
        where: Any

    class Model(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        inner: Any

    rule = {"block": ["bad"]}
    for good in (("x",), {"x"}, Colour.RED, Point("x"), Model(inner=["x"]), b"x", {"k": ("x",)}):
        assert argument(rule, good) == "pass", good
    for bad in (
        ("x", "bad"), {"bad"}, Colour.BAD, Point(["bad"]), Model(inner={"k": "bad"}), b"bad",
        Model(inner="x", more="bad"), {"bad": "x"}, {"k": [{"k": {"k": "BAD"}}]}, ["x", None],
        object(), ["x", object()], [5], b"\xff",
    ):  # fmt: skip
        assert argument(rule, bad) == "deny", bad
    loop: list[Any] = ["x"]
    loop.append(loop)
    assert argument(rule, loop) == "deny"


def test_a_dotted_name_reaches_into_a_value() -> None:
    scope = Scope(rules=[{"tool": "t", "arguments": {"order.amount": {"maximum": 10}}}])
    assert verdict(scope, "t", order={"amount": 5, "note": "x"}) == "pass"
    assert verdict(scope, "t", order={"amount": 50}) == "deny"
    assert verdict(scope, "t", order=[{"amount": 5}, {"amount": 50}]) == "deny"
    assert verdict(scope, "t", order={"note": "x"}) == "deny"
    assert verdict(scope, "t", order="x") == "deny"
    assert verdict(scope, "t") == "deny"
    asks = Scope(rules=[{"tool": "t", "arguments": {"order.amount": {"ask_above": 10}}}])
    assert verdict(asks, "t", order=[{"amount": 5}, {"amount": 50}]) == "ask"


def test_other_arguments() -> None:
    scope = Scope(
        rules=[{"tool": "t", "other_arguments": "deny", "arguments": {"a": {"maximum": 1}}}]
    )
    assert verdict(scope, "t", a=1) == "pass"
    assert verdict(scope, "t", a=1, b=1) == "deny"


# Paths

ETC = [
    "/etc/passwd", "/etc", "/etc/", "//etc/passwd", "/data/../etc/passwd", "/data/./../etc//passwd",
    "/ETC/passwd", " /etc/passwd", "/etc/passwd ", "file:///etc/passwd", "FILE:///etc/%70asswd",
    "／etc／passwd", ["/data/x", "/etc/passwd"], {"a": ["/etc/passwd"]}, Path("/etc/passwd"),
    b"/etc/passwd", "/proc/self/root/etc/passwd", {"/etc/passwd": "text"}, "/etc/x/y",
]  # fmt: skip


@pytest.mark.parametrize("value", ETC, ids=str)
def test_a_blocked_path_is_blocked_however_it_is_written(value: Any) -> None:
    for pattern in ("/etc/*", "/etc", "/x/../etc/*", "//etc/*"):
        assert argument({"type": "path", "block": [pattern]}, value) == "deny", pattern


@pytest.mark.parametrize(
    "value",
    [*ETC, "/data/..", "/database/x", "/data/\0x", "", ".", "data/x", "~/x", "~nobody-at-all/x", 5],
    ids=str,
)
def test_only_what_lies_inside_an_allowed_directory_passes(value: Any) -> None:
    assert argument({"type": "path", "allow": ["/data/*"]}, value) == "deny"


def test_paths_that_pass() -> None:
    rule = {"type": "path", "allow": ["/data/*"], "block": ["/data/secret/*", "*.pem"]}
    assert argument(rule, "/data/a") == "pass"
    assert argument(rule, "/data/a/b/../c.txt") == "pass"
    assert argument(rule, "//data//a") == "pass"
    assert argument(rule, "/data/secrets") == "pass"
    assert argument(rule, "/data/secret") == "deny"
    assert argument(rule, "/data/secret/x") == "deny"
    assert argument(rule, "/data/x/../secret/x") == "deny"
    assert argument(rule, "/data/key.PEM") == "deny"


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("k")
    (tmp_path / "data" / "way-out").symlink_to(tmp_path / "secret")
    (tmp_path / "data" / "inside").symlink_to(tmp_path / "data")
    rule = {"type": "path", "allow": [f"{tmp_path}/data/*"]}
    assert argument(rule, f"{tmp_path}/data/new.txt") == "pass"
    assert argument(rule, f"{tmp_path}/data/inside/new.txt") == "pass"
    assert argument(rule, f"{tmp_path}/data/way-out/key") == "deny"
    assert argument(rule, f"{tmp_path}/data/way-out/../x") == "deny"
    blocked = {"type": "path", "block": [f"{tmp_path}/secret/*"]}
    assert argument(blocked, f"{tmp_path}/data/way-out/key") == "deny"
    assert argument(blocked, f"{tmp_path}/data/x") == "pass"


def test_a_rule_may_name_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    rule = {"type": "path", "allow": [f"{tmp_path}/link/*"]}
    assert argument(rule, f"{tmp_path}/link/x") == "pass"
    assert argument(rule, f"{tmp_path}/link/../x") == "deny"


def test_relative_paths_need_a_root(tmp_path: Path) -> None:
    rule = {"type": "path", "allow": ["out/*"], "root": str(tmp_path)}
    assert argument(rule, "out/x") == "pass"
    assert argument(rule, "./out/y/../x") == "pass"
    assert argument(rule, "out/../../x") == "deny"
    assert argument(rule, f"{tmp_path}/out/x") == "pass"
    scope = Scope(
        root=str(tmp_path),
        rules=[{"tool": "t", "arguments": {"a": {"type": "path", "allow": ["out/*"]}}}],
    )
    assert verdict(scope, "t", a="out/x") == "pass"
    with pytest.raises(ConfigError, match=r"arguments\.a\.allow\[0\].*needs a root"):
        Scope(rules=[{"tool": "t", "arguments": {"a": {"type": "path", "allow": ["out/*"]}}}])


def test_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    blocked = {"type": "path", "block": ["~/.ssh/*"], "root": "/project"}
    assert argument(blocked, "~/.ssh/id") == "deny"
    assert argument(blocked, "/home/ann/.ssh/id") == "deny"
    assert argument(blocked, "x/~/.ssh/id") == "pass"
    allowed = {"type": "path", "allow": ["/project/*"], "root": "/project"}
    assert argument(allowed, "~/x") == "deny"


@given(st.lists(st.sampled_from(["..", ".", "", "etc", "data", "x", "~"]), max_size=8))
def test_no_spelling_of_a_path_leaves_the_allowed_directory(parts: list[str]) -> None:
    value = "/data/" + "/".join(parts)
    inside = os.path.normpath(value).startswith("/data/")
    assert argument({"type": "path", "allow": ["/data/*"]}, value) == ("pass" if inside else "deny")


# URLs


@pytest.mark.parametrize(
    "value",
    ["http://evil.com", "http://evil.com:80/x", "http://evil.com:8080", "http://u@evil.com/",
     "http://good.com@evil.com", "http://evil.com.", "HTTP://EVIL.COM", "ftp://evil.com",
     "//evil.com", "http://ｅvil.com", "http:\\\\evil.com", "http://evil.com\\@good.com",
     "http://ev%69l.com", "http://good.com\n.evil.com", ["http://good.com", ["http://evil.com"]],
     "evil.com", "", "http://", "http://[::1", 5, None],
    ids=str,
)  # fmt: skip
def test_a_blocked_host_is_blocked_however_it_is_written(value: Any) -> None:
    assert argument({"type": "url", "block": ["evil.com"]}, value) == "deny"


def test_numeric_hosts_are_one_address() -> None:
    for host in (
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "127.1",
        "[::ffff:127.0.0.1]",
        "017700000001",
    ):
        rule = {"type": "url", "block": ["127.0.0.1"]}
        assert argument(rule, f"http://{host}/") == "deny", host
    assert argument({"type": "url", "block": ["127.0.0.1"]}, "http://127.0.0.2/") == "pass"
    assert argument({"type": "url", "block": ["::1"]}, "http://[0:0::1]/") == "deny"


def test_allowed_hosts_and_urls() -> None:
    rule = {"type": "url", "allow": ["*.example.com", "api.test:8443"]}
    assert argument(rule, "https://a.example.com/x?y") == "pass"
    assert argument(rule, "https://A.EXAMPLE.com./x") == "pass"
    assert argument(rule, "https://api.test:8443/") == "pass"
    for bad in (
        "https://example.com", "https://a.example.com:22/", "gopher://a.example.com/",
        "http://evil.com\\@x.example.com", "https://a.example.com.evil.com", "https://api.test/",
        "https://evil.com/.example.com", "https://evil.com#.example.com",
    ):  # fmt: skip
        assert argument(rule, bad) == "deny", bad
    assert argument({"type": "url", "allow": ["*.münchen.de"]}, "http://a.MÜNCHEN.de") == "pass"
    assert argument({"type": "url", "allow": ["api.*"]}, "http://api.x.com:22/") == "deny"
    assert argument({"type": "url", "block": ["x.com:22"]}, "http://x.com:22/") == "deny"
    assert argument({"type": "url", "block": ["x.com:22"]}, "http://x.com/") == "pass"
    assert argument({"type": "url"}, "http://x.com/") == "pass"
    assert argument({"type": "url"}, "x.com") == "deny"
    whole = {"type": "url", "allow": ["https://api.test/v1/*"]}
    assert argument(whole, "https://api.test/v1/users") == "pass"
    assert argument(whole, "https://api.test:443/v1/users?a=b") == "pass"
    for bad in (
        "https://api.test/v2/users", "http://api.test/v1/users", "https://api.test/v1/../admin",
        "https://api.test/v1/%2e%2e/admin", "https://api.test/v1/..%2fadmin",
        "https://api.test/v1/%252e%252e/admin", "https://api.test.evil.com/v1/x",
    ):  # fmt: skip
        assert argument(whole, bad) == "deny", bad


# Counting


def test_limits_are_holds_per_session_over_all_tools_of_the_rule() -> None:
    scope = Scope(rules=[{"tool": "mail_*", "calls_per_minute": 3, "max_calls": 10}])
    first = scope.pre_call(call("mail_send"))
    assert first == (
        Hold(
            "scope/mail_*/minute/session/s1",
            1,
            "calls",
            3,
            60.0,
            "keep",
            "scope/mail_*",
            code="rate_limited",
        ),
        Hold(
            "scope/mail_*/calls/session/s1",
            1,
            "calls",
            10,
            None,
            "keep",
            "scope/mail_*",
            code="rate_limited",
        ),
    )
    assert scope.pre_call(call("mail_draft")) == first
    other = scope.pre_call(call("mail_send").replace(session="s2"))
    assert isinstance(other, tuple)
    assert {h.account for h in other if isinstance(h, Hold)}.isdisjoint(
        {h.account for h in first if isinstance(h, Hold)}
    )


def test_a_denied_call_counts_nothing() -> None:
    scope = Scope(rules=[{"tool": "t", "max_calls": 3, "arguments": {"a": {"maximum": 1}}}])
    assert isinstance(scope.pre_call(call("t", {"a": 2})), Deny)


# Bad settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rulez": []}, r"scope: unknown key 'rulez'; allowed: rules"),
        ({"rules": {"tool": "a"}}, r"scope\.rules: .*list"),
        ({"rules": [{}]}, r"scope\.rules\[0\]\.tool: is needed"),
        ({"rules": [{"tool": ""}]}, r"rules\[0\]\.tool: must not be empty"),
        ({"rules": [{"tool": "--"}]}, r"rules\[0\]\.tool: '--' names no tool"),
        ({"rules": [{"tool": "a", "arg": {}}]}, r"rules\[0\]\.arg: unknown key; allowed: action"),
        ({"rules": [{"tool": "a", "action": "block"}]}, r"rules\[0\]\.action: .*'allow', 'ask'"),
        ({"rules": [{"tool": "a", "max_calls": -1}]}, r"rules\[0\]\.max_calls: .*negative"),
        ({"rules": [{"tool": "a", "max_calls": True}]}, r"rules\[0\]\.max_calls: .*integer"),
        ({"rules": [{"tool": "a", "max_calls": "3"}]}, r"rules\[0\]\.max_calls: .*integer"),
        ({"unlisted": "maybe"}, r"scope\.unlisted: "),
        ({"root": "here"}, r"scope\.root: root must be an absolute path"),
        ({"rules": [{"tool": "a"}, {"tool": "A"}]}, r"rules\[1\]: tool 'A' has a rule already at"),
        ({"allow": ["a"], "block": ["A "]}, r"scope\.block: tool 'A ' has a rule already at"),
        ({"rules": [{"tool": "a", "name": "n"}, {"tool": "b", "name": "n"}]}, r"\[1\]\.name"),
        ({"rules": [{"tool": "a", "action": "deny", "max_calls": 1}]}, r"max_calls: can never"),
        ({"rules": [{"tool": "a", "action": "deny", "arguments": {"x": {}}}]}, r"can never"),
    ],
)
def test_bad_settings_are_refused_with_their_place(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Scope(**settings)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            {"maximun": 1},
            r"rules\[0\]\.arguments\.a\.maximun: unknown key .*'maximum'.*; allowed: allow",
        ),
        ({"maximum": True}, r"arguments\.a\.maximum"),
        ({"maximum": float("nan")}, r"arguments\.a\.maximum: must be a finite number"),
        ({"maximum": "5"}, r"arguments\.a\.maximum"),
        ({"minimum": 5, "maximum": 4}, r"minimum is above maximum"),
        ({"ask_above": 5, "maximum": 5}, r"ask_above: not below maximum, so it can never ask"),
        ({"type": "date"}, r"arguments\.a\.type"),
        ({"type": "text", "maximum": 5}, r"a\.maximum: has no meaning for type 'text'"),
        ({"type": "number", "allow": ["x"]}, r"a\.allow: has no meaning for type 'number'"),
        ({"allow": []}, r"arguments\.a\.allow"),
        ({"allow": ["X"], "block": ["x"]}, r"'x' is both allowed and blocked"),
        ({"match": "(?=x)"}, r"a\.match: not a pattern that RE2 can run"),
        ({"match": "("}, r"a\.match: not a pattern"),
        ({"one_of": [5], "maximum": 4}, r"one_of\[0\]: can never pass"),
        ({"type": "path", "allow": ["x/*"]}, r"a\.allow\[0\]: a relative path needs a root"),
    ],
)
def test_bad_argument_rules_are_refused(rule: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Scope(rules=[{"tool": "t", "arguments": {"a": rule}}])


def test_errors_do_not_repeat_values() -> None:
    with pytest.raises(ConfigError) as caught:
        Scope(rules=[{"tool": "t", "arguments": {"a": {"maximum": "hunter2"}}}])
    assert "hunter2" not in str(caught.value)
    scope = Scope(rules=[{"tool": "t", "arguments": {"a": {"block": ["hunter*"]}}}])
    found = scope.pre_call(call("t", {"a": "hunter2"}))
    assert isinstance(found, Deny)
    assert "hunter" not in found.reason


# Through a Rein

HOW = pytest.mark.parametrize("how", ["sync", "async"])


def run(rein: Rein, how: str, *calls: tuple[Any, dict[str, Any]]) -> list[Any]:
    """Results, or the errors instead, of calls in one session."""
    results: list[Any] = []
    if how == "sync":
        with rein.session(on_error="keep"):
            for fn, arguments in calls:
                try:
                    results.append(rein.call(fn, **arguments))
                except Denied as error:
                    results.append(error)
        return results

    async def go() -> None:
        async with rein.session(on_error="keep"):
            for fn, arguments in calls:
                try:
                    results.append(await rein.acall(fn, **arguments))
                except Denied as error:
                    results.append(error)

    asyncio.run(go())
    return results


def refund(amount: float, note: str = "") -> str:
    return f"refunded {amount}"


def read(path: str | list[str]) -> str:
    return f"read {path}"


@HOW
def test_a_refund_desk(how: str) -> None:
    asked: list[str] = []

    def approver(a_call: Call, request: ApprovalRequest) -> bool:
        asked.append(request.reason)
        return a_call.arguments["amount"] < 500

    scope = Scope(
        rules=[
            {"tool": "refund", "arguments": {"amount": {"ask_above": 100, "maximum": 1000}}},
            {"tool": "read", "arguments": {"path": {"type": "path", "allow": ["/data/*"]}}},
        ]
    )
    rein = Rein(plugins=[scope, CallableApprover(approver)])
    try:
        results = run(
            rein, how,
            (refund, {"amount": 50}), (refund, {"amount": 200}), (refund, {"amount": 700}),
            (refund, {"amount": 5000}), (refund, {"amount": "50"}),
            (read, {"path": "/data/x"}), (read, {"path": ["/data/x", "/data/../etc/passwd"]}),
        )  # fmt: skip
        assert results[:2] == ["refunded 50", "refunded 200"]
        assert isinstance(results[2], ApprovalRejected)
        assert [type(r) for r in results[3:5]] == [Denied, Denied]
        assert results[5] == "read /data/x"
        assert isinstance(results[6], Denied)
        assert results[6].rule == "scope/read"
        assert asked == ["argument 'amount' is above 100"] * 2
    finally:
        rein.close()


@HOW
def test_an_edit_by_the_approver_is_held_against_the_rules(how: str) -> None:
    def approver(a_call: Call, request: ApprovalRequest) -> Approved:
        return Approved("ann", {**a_call.arguments, "amount": 5000})

    rule = {"tool": "refund", "arguments": {"amount": {"ask_above": 100, "maximum": 1000}}}
    rein = Rein(plugins=[Scope(rules=[rule]), CallableApprover(approver)])
    try:
        (result,) = run(rein, how, (refund, {"amount": 200}))
        assert isinstance(result, Denied)
    finally:
        rein.close()


@HOW
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_counts_are_per_session_and_only_of_what_ran(how: str, kind: str, tmp_path: Path) -> None:
    now = [10**12]
    rule = {
        "tool": "refund", "calls_per_minute": 2, "max_calls": 3,
        "arguments": {"amount": {"maximum": 10}},
    }  # fmt: skip
    store = "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/s.db"
    rein = Rein(plugins=[Scope(rules=[rule])], store=store, clock=lambda: now[0])
    try:
        fine: tuple[Any, dict[str, Any]] = (refund, {"amount": 1})
        results = run(rein, how, (refund, {"amount": 99}), fine, fine, fine)
        assert [isinstance(r, Denied) for r in results] == [True, False, False, True]
        assert isinstance(results[3], BudgetExceeded)
        assert not results[3].halt

        def wait() -> None:
            now[0] += 61_000_000

        results = run(rein, how, fine, fine, (wait, {}), fine, fine)
        assert [isinstance(r, Denied) for r in results] == [False, False, False, False, True]
    finally:
        rein.close()


def test_threads_never_pass_a_limit_by_one() -> None:
    ran: list[int] = []

    def mail() -> None:
        ran.append(1)

    rein = Rein(plugins=[Scope(rules=[{"tool": "mail", "max_calls": 5}])])
    try:
        with rein.session(on_error="keep") as session, ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(session.bind(rein.call), mail) for _ in range(40)]
            refused = [f for f in futures if isinstance(f.exception(), BudgetExceeded)]
        assert len(ran) == 5
        assert len(refused) == 35
    finally:
        rein.close()


def test_an_undo_is_not_held_against_the_rules() -> None:
    undone: list[float] = []
    rules = [{"tool": "pay", "max_calls": 1}, {"tool": "unpay", "action": "deny"}]

    def unpay(amount: float) -> None:
        undone.append(amount)

    rein = Rein(plugins=[Scope(rules=rules)])
    try:
        rein.declare("unpay", fn=unpay)

        @rein.tool(name="pay", undo="unpay")
        def pay(amount: float) -> str:
            return "paid"

        def fails_late() -> None:
            with rein.session():
                pay(5)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fails_late()
        assert undone == [5]
    finally:
        rein.close()


def test_two_scopes_need_two_names() -> None:
    with pytest.raises(ConfigError, match="of the kind Scope are named 'scope'"):
        Rein(plugins=[Scope(), Scope()])
    Rein(plugins=[Scope(), Scope(name="team")]).close()


# -- sums over a session


@pytest.fixture(params=["memory:", "sqlite"])
def kept(request, tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.param


def test_at_most_three_refunds_and_500_dollars_in_all(go, kept) -> None:
    paid: list[Any] = []

    def refund(amount: Any, order: Any = None) -> None:
        paid.append(amount)

    rule = {"tool": "refund", "max_calls": 3, "arguments": {"amount": {"total": 500}}}
    with Rein(plugins=[Scope(rules=[rule])], store=kept) as rein:
        for amounts, passes in (
            ([200, 300, 0.01], [200, 300]),
            ([499.99, 0.02, 0.01], [499.99, 0.01]),
            ([1, 1, 1, 1], [1, 1, 1]),
            ([[100, 401], [100, 400]], [[100, 400]]),
            ([-5, True, float("nan"), "5", None, 500], [500]),
        ):
            paid.clear()
            with rein.session(on_error="keep"):
                for amount in amounts:
                    with contextlib.suppress(Denied):
                        go.call(rein, refund, amount)
            assert paid == passes


def test_what_was_not_done_is_not_counted(go, kept) -> None:
    class Refused(Exception):
        pass

    def refund(amount: int, fail: bool) -> int:
        if fail:
            raise Refused
        return amount

    rule = {"tool": "refund", "arguments": {"amount": {"total": 10}}}
    with Rein(plugins=[Scope(rules=[rule])], store=kept) as rein:
        rein.declare("refund", refund, no_effect_on=Refused)
        with rein.session(on_error="keep"):
            with pytest.raises(Refused):
                go.call(rein, refund, 10, True)
            assert go.call(rein, refund, 10, False) == 10
            with pytest.raises(BudgetExceeded, match="may be 10 in all"):
                go.call(rein, refund, 1, False)


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ({"total": 0}, "must be above 0"),
        ({"total": 5, "minimum": 9}, "no number can pass"),
        ({"total": 5, "ask_above": 5}, "can never ask"),
        ({"total": 5, "type": "path"}, "has no meaning for type 'path'"),
    ],
)
def test_sums_that_make_no_sense_are_refused(argument, told) -> None:
    with pytest.raises(ConfigError, match=told):
        Scope(rules=[{"tool": "pay", "arguments": {"amount": argument}}])


@pytest.mark.parametrize("half", [{"then": ["ben"]}, {"after": 60}])
def test_who_is_asked_later_and_when_go_together(half) -> None:
    with pytest.raises(ConfigError, match="then and after go together"):
        Scope(rules=[{"tool": "refund", "action": "ask", **half}])
