"""Placeholders of a session in another process: restored there, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein, errors
from checkrein_plugins.redaction import Redaction

MAIL, OTHER = "casey.lund@example.org", "robin.vale@example.org"

SCRIPT = f"""
import os, signal, sys
from checkrein import Ask, Plugin, Rein, errors
from checkrein_plugins.redaction import Redaction

def find_customer():
    return "Casey: {MAIL}"

class Asks(Plugin):
    def pre_call(self, call):
        return Ask("a person must see this") if call.name == "wait" else None

def wait():
    pass

rein = Rein(
    plugins=[Redaction(results={{"email": "pseudonym"}}), Asks()],
    store="sqlite:///" + sys.argv[1], encrypt=sys.argv[2] == "sealed",
)
try:
    with rein.session(agent="desk", wait="suspend") as session:
        print(session.id, rein.call(find_customer), flush=True)
        rein.call(wait)
except errors.ApprovalPending:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def plugin() -> Redaction:
    return Redaction(
        requests={"email": "pseudonym"}, results={"email": "pseudonym"}, trusted=["send_*"]
    )


def killed(child: Any, store: Path, seal: str) -> str:
    """Name of a session that gave out `<EMAIL_1>` in a process that was then killed."""
    out, errors_told = child(SCRIPT, store, seal).communicate(timeout=60)
    name, _, answer = out.strip().partition(" ")
    assert answer == "Casey: <EMAIL_1>", errors_told
    return str(name)


def find_other() -> str:
    return OTHER


@pytest.mark.parametrize("seal", ["sealed", "plain"])
def test_another_process_restores_what_a_killed_one_gave_out(
    child: Any, tmp_path: Path, seal: str
) -> None:
    if seal == "sealed":
        pytest.importorskip("cryptography")
    store = tmp_path / "checkrein.db"
    name = killed(child, store, seal)
    raw = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert (MAIL.encode() in raw) == (seal == "plain")
    got: list[str] = []

    def send_mail(to: str) -> str:
        got.append(to)
        return f"sent to {to}"

    with Rein(plugins=[plugin()], store=f"sqlite:///{store}", encrypt=seal == "sealed") as rein:
        with rein.session(id=name):
            assert rein.call(send_mail, "<EMAIL_1>") == "sent to <EMAIL_1>"
            assert rein.call(find_other) == "<EMAIL_2>"
        with rein.session(agent="desk"), pytest.raises(errors.Denied, match="stands for nothing"):
            rein.call(send_mail, "<EMAIL_1>")
        views = json.dumps([event.view for event in rein.read(name).events()], default=str)
    assert got == [MAIL]
    assert MAIL not in views
    assert '"marks": ["<EMAIL_1>"]' in views


def test_erased_values_are_unknown_and_their_numbers_are_not_given_out_again(
    child: Any, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'checkrein.db'}"
    name = killed(child, tmp_path / "checkrein.db", "plain")
    with Rein(plugins=[plugin()], store=store) as rein:
        kept = rein.store.events(session=name, kinds=("pseudonyms",))
        assert rein.store.erase([event.seq for event in kept]) == 1
        with rein.session(id=name, on_error="keep"):
            assert rein.call(find_other) == "<EMAIL_2>"
            with pytest.raises(errors.Denied, match="stands for nothing"):
                rein.call(send_mail, "<EMAIL_1>")


def send_mail(to: str) -> str:
    return f"to {to}"


def test_a_placeholder_that_cannot_be_kept_does_not_leave(go: Any, monkeypatch: Any) -> None:
    with Rein(plugins=[plugin()]) as rein, rein.session(on_error="keep") as session:
        commit = rein.store.commit

        def full(batch: Any) -> Any:
            if any(event.kind == "pseudonyms" for event in batch.events):
                raise errors.StoreUnavailable("the disk is full")
            return commit(batch)

        monkeypatch.setattr(rein.store, "commit", full)
        with pytest.raises(errors.CheckreinError):
            go.call(rein, find_other)
        monkeypatch.undo()
        assert go.call(rein, find_other) == "<EMAIL_1>"
        kinds = [event.kind for event in session.events()]
    assert kinds.count("pseudonyms") == 1
