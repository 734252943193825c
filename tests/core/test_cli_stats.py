"""`checkrein stats`: calls, latencies, errors and denials of each tool."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein, cli
from checkrein.call import Call
from checkrein.errors import Denied
from checkrein.hooks import Plugin
from checkrein.stats import ToolStats, tool_stats
from checkrein.verdicts import Answer, Deny, PreVerdict


class Rules(Plugin):
    def pre_call(self, call: Call) -> PreVerdict:
        if call.arguments.get("n") == 13:
            return Deny("unlucky", rule="rules/13")
        return Answer("known") if call.arguments.get("n") == 7 else None


def work(n: int) -> int:
    time.sleep(0.002)
    if n == 3:
        raise ValueError("three")
    return n


def rest(n: int) -> int:
    return n


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/s.db"
    with Rein(plugins=[Rules()], store=url) as rein, rein.session(id="s", on_error="keep"):
        for n in (1, 2, 3, 7, 13, 13):
            for fn in (work, rest) if n < 3 else (work,):
                try:
                    rein.call(fn, n)
                except (ValueError, Denied):
                    continue
        rein.model_call(lambda **_: "hi", model="gpt", messages=[])
    return url


def run(capsys: Any, *arguments: str) -> tuple[int, str]:
    code = cli.run(["stats", *arguments])
    return code, capsys.readouterr().out


def test_what_every_tool_did(url: str, capsys: Any) -> None:
    code, out = run(capsys, "--store", url, "--json")
    found = {tool["name"]: tool for tool in json.loads(out)["tools"]}
    assert code == 0
    assert [*found] == ["work", "rest", "gpt"]
    work_ = found["work"]
    counts = {key: work_[key] for key in ("calls", "errors", "unknown", "open", "answered",
                                          "denied", "denials", "kind")}  # fmt: skip
    assert counts == {
        "calls": 3, "errors": 1, "unknown": 1, "open": 0, "answered": 1, "denied": 2,
        "denials": {"rules/13": 2}, "kind": "tool",
    }  # fmt: skip
    assert 0.002 <= work_["seconds"]["p50"] <= work_["seconds"]["p99"] <= work_["seconds"]["max"]
    assert found["gpt"]["kind"] == "model"


def test_a_plain_table_on_a_pipe(url: str, capsys: Any) -> None:
    code, out = run(capsys, "--store", url)
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert lines[0][:7] == ["TOOL", "KIND", "CALLS", "P50", "P90", "P99", "MAX"]
    assert lines[1][:3] == ["work", "tool", "3"]
    assert out.splitlines()[1].endswith("rules/13 2")


def test_sessions_and_periods(url: str, capsys: Any) -> None:
    assert json.loads(run(capsys, "--store", url, "--session", "s", "--json")[1])["tools"]
    for option, some in (("--since", False), ("--until", True)):
        _, out = run(capsys, "--store", url, option, "2100-01-01", "--json")
        assert bool(json.loads(out)["tools"]) is some
    assert run(capsys, "--store", url, "--until", "1999-01-01")[1].strip() == "no calls"
    assert run(capsys, "--store", url, "--since", "soon")[0] == 2


def test_since_finds_its_place() -> None:
    """In a long journal the events before it are not read."""
    from checkrein.store import Batch, NewEvent, SessionPut, open_store

    store = open_store("memory:")
    minute = 60_000_000
    store.commit(Batch("s", [], 1, session_put=SessionPut(create=True, body={})))
    for n in range(200):
        view = {"kind": "tool", "name": f"t{n}"}
        event = NewEvent("intent", f"c{n}", n * 10 * minute, view, None, 1)
        store.commit(Batch("s", [event], n * 10 * minute))
    read: list[int] = []
    events = store.events

    def watched(**given: Any) -> Any:
        found = events(**given)
        read.append(len(found))
        return found

    store.events = watched  # type: ignore[method-assign]
    found = tool_stats(store, since=1900 * minute)
    assert {one.name for one in found} == {f"t{n}" for n in range(190, 200)}
    assert sum(read) < 40


@pytest.mark.parametrize(
    ("times", "share", "seconds"),
    [([], 0.5, None), ([5], 0.5, 5e-6), ([1, 2, 3, 4], 0.5, 2e-6), ([1, 2, 3, 4], 0.99, 4e-6),
     (list(range(1, 101)), 0.9, 9e-5), (list(range(1, 101)), 1.0, 1e-4)],
)  # fmt: skip
def test_percentiles(times: list[int], share: float, seconds: float | None) -> None:
    stats = ToolStats("t", "tool")
    stats.times.extend(times)
    found = stats.percentile(share)
    assert found == seconds if seconds is None else found == pytest.approx(seconds)


def test_a_session_by_the_beginning_of_its_id(tmp_path: Path, capsys: Any) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with Rein(plugins=[], store=url) as rein:
        with rein.session(id="abcd1"):
            rein.call(rest, 1)
        with rein.session(id="efgh2"):
            rein.call(rest, 2)
    code, out = run(capsys, "--store", url, "--session", "abc", "--json")
    assert (code, [tool["calls"] for tool in json.loads(out)["tools"]]) == (0, [1])
    assert cli.run(["stats", "--store", url, "--session", "nope"]) == 1
    assert "no session begins with 'nope'" in capsys.readouterr().err
