"""`checkrein costs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkrein import cli
from checkrein.store import Batch, NewEvent, SessionPut, open_store
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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--by", "colour"], "costs by 'colour': use one of session, agent"),
        (["--since", "yesterday"], "--since yesterday: write a date"),
        (["--since", "2026-01-01", "--timezone", "Mars"], "--timezone Mars"),
        (["--where", "agent"], "--where agent: write WHAT=VALUE"),
        (["--csv", "--json"], "--csv and --json"),
    ],
)
def test_wrong_usage(url: str, capsys: Any, arguments: list[str], told: str) -> None:
    code, _, err = run(capsys, "--store", url, *arguments)
    assert code == 2
    assert told in err
