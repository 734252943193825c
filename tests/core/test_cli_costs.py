"""`checkrein costs`."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from checkrein import cli
from checkrein.cli._periods import periods
from checkrein.store import DIMENSIONS, Batch, NewEvent, SessionPut, open_store
from checkrein.testing._store_bill import HOUR, row


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/bill.db"
    store = open_store(url)
    store.commit(Batch("s", [], 1, session_put=SessionPut(create=True, body={})))
    for number, (agent, cost, state) in enumerate(
        [
            ("a", 2_000_000_000, "reported"),
            ("=b", 500_000_000, "estimated"),
            ("a", None, "unpriced"),
        ]
    ):
        at = (number + 1) * 24 * HOUR
        costs = (row(cost=cost, state=state, agent=agent),)
        event = NewEvent("outcome", str(number), at, {})
        store.commit(Batch("s", [event], at, costs=costs))
    store.close()
    return url


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["costs", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_table_with_its_total(url: str, capsys: Any) -> None:
    code, out, err = run(capsys, "--store", url, "--by", "agent")
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert lines[0][:3] == ["AGENT", "COST", "CALLS"]
    assert lines[1][:4] == ["a", "$2", "2", "60"]
    assert lines[1][-1] == "█" * 20
    assert lines[2][:4] == ["=b", "$0.5", "1", "30"]
    assert lines[2][-1] == "█" * 5
    assert lines[3][:4] == ["total", "$2.5", "3", "90"]
    assert "1 calls have no known price" in err


def test_json_and_csv_and_periods(url: str, capsys: Any) -> None:
    code, out, _ = run(capsys, "--store", url, "--by", "agent", "--json", "--until", "1970-01-03")
    told = json.loads(out)
    assert (code, told["total"]["cost"], told["by"]) == (0, 2_000_000_000, "agent")
    code, out, _ = run(capsys, "--store", url, "--by", "agent", "--csv")
    lines = out.splitlines()
    assert lines[0].startswith("agent,calls,nano_usd,tokens")
    assert lines[1].startswith("a,2,2000000000,60")
    assert lines[2].startswith("'=b,1,500000000,30")
    code, out, _ = run(
        capsys, "--store", url, "--json", "--since", "1970-01-03T01:00", "--timezone",
        "Europe/Berlin", "--where", "agent==b",
    )  # fmt: skip
    assert json.loads(out)["total"]["calls"] == 1


def test_a_row_for_each_period(url: str, capsys: Any) -> None:
    code, out, _ = run(capsys, "--store", url, "--by", "agent", "--per", "day", "--until",
                       "1970-01-05")  # fmt: skip
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert lines[0][:3] == ["DAY", "AGENT", "COST"]
    assert [line[:3] for line in lines[1:]] == [
        ["1970-01-02", "a", "$2"], ["1970-01-03", "=b", "$0.5"], ["1970-01-04", "a", "$0"],
        ["total", "$2.5", "3"],
    ]  # fmt: skip
    code, out, _ = run(capsys, "--store", url, "--by", "model", "--per", "month", "--csv",
                       "--until", "1970-03-01")  # fmt: skip
    assert out.splitlines()[0].startswith("month,model,calls,nano_usd")
    assert out.splitlines()[1].startswith("1970-01,m,3,2500000000")
    _, out, _ = run(capsys, "--store", url, "--json", "--per", "hour", "--since", "1970-01-02",
                    "--until", "1970-01-02T02:00")  # fmt: skip
    (only,) = json.loads(out)["totals"]
    assert (only["hour"], only["cost"]) == ("1970-01-02 00:00+0000", 2_000_000_000)


@pytest.mark.parametrize("per", ["hour", "day", "month"])
def test_the_quarter_of_an_hour_that_runs_now_counts(tmp_path: Path, capsys: Any, per: str) -> None:
    url = f"sqlite:///{tmp_path}/now.db"
    now = time.time_ns() // 1000
    store = open_store(url)
    store.commit(Batch("s", [], now, session_put=SessionPut(create=True, body={})))
    costs = (row(cost=5, state="reported", agent="a"),)
    store.commit(Batch("s", [NewEvent("outcome", "1", now, {})], now, costs=costs))
    store.close()
    _, out, _ = run(capsys, "--store", url, "--per", per, "--json")
    told = json.loads(out)
    assert [total["cost"] for total in told["totals"]] == [5]


@pytest.mark.parametrize("by", DIMENSIONS)
def test_any_dimension(url: str, capsys: Any, by: str) -> None:
    code, out, _ = run(capsys, "--store", url, "--by", by, "--since", "1970-01-02", "--json")
    told = json.loads(out)
    assert code == 0
    assert sum(total["cost"] for total in told["totals"]) in (0, told["total"]["cost"])
    assert told["total"]["cost"] == 2_500_000_000


def test_the_hours_of_a_day_that_has_25() -> None:
    begin, end = (round(datetime(2026, 10, d, tzinfo=ZoneInfo("Europe/Berlin")).timestamp())
                  * 1_000_000 for d in (25, 26))  # fmt: skip
    hours = list(periods("hour", begin, end, "Europe/Berlin"))
    assert len(hours) == len({name for name, _, _ in hours}) == 25
    assert hours[-1][2] == end
    assert [name for name, _, _ in periods("day", begin, end, "Europe/Berlin")] == ["2026-10-25"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--by", "colour"], "costs by 'colour': use one of session, agent"),
        (["--since", "yesterday"], "--since yesterday: write a date"),
        (["--since", "2026-01-01", "--timezone", "Mars"], "--timezone Mars"),
        (["--where", "agent"], "--where agent: write WHAT=VALUE"),
        (["--csv", "--json"], "--csv and --json"),
        (["--per", "year"], "--per year: use one of hour, day, month"),
        (["--per", "hour", "--until", "1990-01-01"], "--per hour: more than 1000"),
    ],
)
def test_wrong_usage(url: str, capsys: Any, arguments: list[str], told: str) -> None:
    code, _, err = run(capsys, "--store", url, *arguments)
    assert code == 2
    assert told in err
