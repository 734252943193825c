"""The mechanisms that the table of differences names, without us where they are a framework's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from checkrein import Ask, Rein
from checkrein.errors import ApprovalPending, ApprovalRejected

from .catalogue import DRIVERS, NAMES
from .differences import DIFFERENCES
from .world import Rules


def test_every_row_is_about_a_scenario_and_is_shown() -> None:
    shown = set(globals())
    for name in DRIVERS:
        path = Path(__file__).parent / f"test_mechanisms_{name}.py"
        if path.exists():
            text = path.read_text(encoding="utf-8")
            shown |= set(re.findall(r"^def (test_\w+)", text, re.MULTILINE))
    for row in DIFFERENCES:
        assert row.scenario in NAMES
        assert row.shown_by in shown, row.shown_by


def test_plain_call_binds_first() -> None:
    def pay(to: str, amount: int) -> None:
        raise AssertionError("never reached")

    with pytest.raises(TypeError):
        pay(to="ann")  # type: ignore[call-arg]
    with Rein() as rein:
        with pytest.raises(TypeError):
            rein.call(pay, to="ann")  # type: ignore[call-arg]
        assert rein.store.events() == []


def test_plain_resume_of_a_rejected_request() -> None:
    rules = Rules({"pay": Ask("a payment")})
    with Rein(plugins=[rules], approvals="store", wait="suspend") as rein:

        def pay() -> None:
            raise AssertionError("never reached")

        rein.declare("pay", pay)
        with pytest.raises(ApprovalPending), rein.session() as session:
            rein.call(pay)
        (request,) = rein.approvals.pending()
        rein.approvals.reject(request.id, by="ann")
        with pytest.raises(ApprovalRejected):
            rein.resume(request.id)
        kinds = {e.kind for e in rein.store.events(session=session.id)}
        assert not kinds & {"intent", "denied", "outcome"}


def test_plain_has_no_stream() -> None:
    opened: list[Any] = []

    class Watches:
        def open_stream(self, call: Any, channel: str) -> None:
            opened.append(channel)

    from checkrein import Plugin

    with Rein(plugins=[type("W", (Watches, Plugin), {})()]) as rein, rein.session():
        rein.model_call(lambda **given: "an answer", model="m", messages=[])
        assert opened == []
        list(rein.model_stream(lambda **given: ["an answer"], model="m", messages=[]))
        assert opened == ["text"]


def test_the_page_names_every_scenario_and_every_difference(root: Path) -> None:
    """`docs/compatibility.md` is written by scripts/compatibility.py from a run of this suite."""
    page = (root / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}`" not in page] == []
    assert [row.mechanism for row in DIFFERENCES if row.mechanism not in page] == []


def test_plain_calls_have_no_ids(tmp_path: Path) -> None:
    ran: list[int] = []
    with Rein(store=f"sqlite:///{tmp_path}/r.db") as rein:

        def begun() -> None:
            with rein.session(id="s"):
                rein.call(ran.append, 1)
                raise ApprovalPending("somebody")

        for _ in range(2):
            with pytest.raises(ApprovalPending):
                begun()
    assert ran == [1, 1]
