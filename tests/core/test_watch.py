"""`checkrein watch`: what happens in one process is seen in another."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checkrein import Ask, Call, Plugin, Rein, errors

WATCH = """
import sys
from checkrein import cli
sys.exit(cli.run(["watch", "--for", "60", *sys.argv[1:]]))
"""


class Asks(Plugin):
    def pre_call(self, call: Call) -> Any:
        return Ask("sure?", rule="r")

    def view(self, call: Call, value: Any, sink: str) -> Any:
        return {**value, "to": "****"} if isinstance(value, dict) and "to" in value else value


def asked(rein: Rein, amount: int) -> str:
    def pay(amount: int, to: str) -> int:
        return amount

    with pytest.raises(errors.ApprovalPending) as pending, rein.session("desk", wait="suspend"):
        rein.call(pay, amount, "casey@example.org")
    return pending.value.token


def test_what_is_asked_and_decided_is_shown_as_it_happens(child, tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with Rein(plugins=[Asks()], store=url) as rein:
        one = asked(rein, 1)
        watching = child(WATCH, "--store", url)
        first = watching.stdout.readline()
        assert "waits" in first
        assert one in first
        assert "pay(amount=1, to=**** (masked))" in first
        assert "desk: sure?" in first
        two = asked(rein, 2)
        assert "requested" in (line := watching.stdout.readline())
        assert two in line
        rein.approvals.approve(one, by="anna", masked_ok=True)
        assert "by anna" in (line := watching.stdout.readline())
        assert "approved" in line
        rein.approvals.reject(two, by="ben", reason="too much")
        assert "by ben: too much" in watching.stdout.readline()
        with pytest.raises(errors.Conflict):
            rein.approvals.reject("ap-0", by="eve")
        assert "unknown" in watching.stdout.readline()
        watching.terminate()


def test_as_json_each_line_is_a_document(child, tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with Rein(plugins=[Asks()], store=url) as rein:
        token = asked(rein, 1)
        watching = child(WATCH, "--store", url, "--json")
        line = json.loads(watching.stdout.readline())
        assert (line["what"], line["approval"]["id"]) == ("waits", token)
        assert line["approval"]["masked"] == ["to"]
        rein.approvals.reject(token, by="ben")
        line = json.loads(watching.stdout.readline())
        assert (line["what"], line["approval"]["status"]) == ("rejected", "FAILED")
        watching.terminate()
