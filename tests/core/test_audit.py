"""The audit log: signed anchors that a rewritten store cannot match, and exports."""

import csv
import io
import json
import shutil
import sqlite3
import subprocess
import sys

import pytest

from checkrein import Plugin, Rein, anchors, export
from checkrein.errors import ConfigError, Conflict
from checkrein.store import Batch, NewEvent
from checkrein.testing import Clock

SEED = bytes(range(32))
SIGNER = anchors.Signer(SEED)


class Masks(Plugin):
    def view(self, call, value, sink):
        return {"all": "[masked]"} if "secret" in str(value) else value


def work(rein, *orders, agent="desk"):
    @rein.tool(name=f"pay-{'-'.join(orders)}")
    def pay(order):
        return {"paid": order}

    with rein.session(agent=agent) as session:
        for order in orders:
            pay(order)
    return session.id


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store" / "r.db"


@pytest.fixture
def rein(path):
    with Rein(store=f"sqlite:///{path}", plugins=[Masks()]) as made:
        yield made


def check(rein, **more):
    return anchors.check(rein.store, SIGNER.public_key, **more)


# -- anchors


def test_anchors_cover_every_session_and_only_what_changed(rein):
    first = work(rein, "o1", "o2")
    made = SIGNER.anchor(rein.store, rein.clock)
    assert len(made) == 1
    assert SIGNER.anchor(rein.store, rein.clock) == []
    found = check(rein)
    assert (found.anchors, found.heads, found.faults, found.unanchored) == (1, 1, [], 0)
    second = work(rein, "o3")
    assert check(rein).unanchored == 4
    (digest,) = SIGNER.anchor(rein.store, rein.clock)
    found = check(rein, kept=made[0])
    assert (found.anchors, found.heads, found.last, found.faults) == (2, 2, digest, [])
    assert first != second


def test_many_sessions_make_several_anchors(rein, monkeypatch):
    monkeypatch.setattr(anchors, "HEADS", 3)
    for number in range(8):
        work(rein, f"o{number}")
    assert len(SIGNER.anchor(rein.store, rein.clock)) == 3
    found = check(rein)
    assert (found.anchors, found.heads, found.unanchored, found.faults) == (3, 8, 0, [])


def test_a_signer_that_was_killed_on_the_way_is_gone_on_with(rein, monkeypatch):
    monkeypatch.setattr(anchors, "HEADS", 3)
    ids = [work(rein, f"o{number}") for number in range(8)]
    commit = rein.store.commit
    left = [1]

    def dies(batch, **more):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return commit(batch, **more)

    monkeypatch.setattr(rein.store, "commit", dies)
    with pytest.raises(KeyboardInterrupt):
        SIGNER.anchor(rein.store, rein.clock)
    monkeypatch.setattr(rein.store, "commit", commit)
    assert check(rein).unanchored == 5 * 4
    SIGNER.anchor(rein.store, rein.clock)
    found = check(rein)
    assert (found.heads, found.unanchored, found.faults) == (len(ids), 0, [])


def tampered(path, change):
    """A Rein on the store as somebody left it who can write the file."""
    db = sqlite3.connect(path)
    change(db)
    db.commit()
    db.close()
    return Rein(store=f"sqlite:///{path}")


def drop(db, session):
    (sid,) = db.execute("SELECT sid FROM sessions WHERE id = ?", (session,)).fetchone()
    for table in ("events", "marks", "sessions"):
        db.execute(f"DELETE FROM {table} WHERE sid = ?", (sid,))


def cut(db, session):
    """Take the last event away, and make the rest agree."""
    (sid,) = db.execute("SELECT sid FROM sessions WHERE id = ?", (session,)).fetchone()
    seq, prev, n = db.execute(
        "SELECT seq, prev, n FROM events WHERE sid = ? ORDER BY seq DESC LIMIT 1", (sid,)
    ).fetchone()
    db.execute("DELETE FROM events WHERE seq = ?", (seq,))
    db.execute("DELETE FROM marks WHERE seq = ?", (seq,))
    db.execute("UPDATE sessions SET n = ?, head = ? WHERE sid = ?", (n - 1, prev, sid))


@pytest.mark.parametrize(
    ("change", "said"), [(drop, "is not in the store"), (cut, "event 6, signed in anchor 1")]
)
def test_a_dropped_session_and_a_cut_end_show(rein, path, change, said):
    victim = work(rein, "o1", "o2")
    work(rein, "o3")
    SIGNER.anchor(rein.store, rein.clock)
    rein.close()
    with tampered(path, lambda db: change(db, victim)) as again:
        if change is cut:
            assert again.store.verify(victim) is None, "the chain alone has nothing to say"
        (fault,) = check(again).faults
        assert victim in fault
        assert said in fault


def note(rein, session, text):
    rein.store.commit(Batch(session, (NewEvent("note", "", 1, {"text": text}),), 1))


def test_an_end_that_was_rewritten_shows(rein, path, tmp_path):
    victim = work(rein, "o1")
    rein.close()
    shutil.copytree(path.parent, tmp_path / "old")
    with Rein(store=f"sqlite:///{path}") as later:
        note(later, victim, "what really happened")
        SIGNER.anchor(later.store, later.clock)
    # The old store is put back, another event is written, and the anchors are copied over.
    old = Rein(store=f"sqlite:///{tmp_path / 'old' / path.name}")
    note(old, victim, "what is told")
    with Rein(store=f"sqlite:///{path}") as source:
        (event,) = source.store.events(session="anchors", kinds=("anchor",))
    anchors._write(old.store, dict(event.view), 1)
    assert old.store.verify(victim) is None
    (fault,) = check(old).faults
    assert "event 5, signed in anchor 1, is not what was signed" in fault
    old.close()


def test_anchors_of_another_key_changed_or_missing_ones_show(rein, path):
    work(rein, "o1")
    SIGNER.anchor(rein.store, rein.clock)
    work(rein, "o2")
    (newest,) = SIGNER.anchor(rein.store, rein.clock)
    other = anchors.Signer(bytes(32)).public_key
    assert "signature does not fit" in anchors.check(rein.store, other).faults[0]
    rein.close()
    with tampered(path, lambda db: cut(db, "anchors")) as again:
        assert check(again).faults == []
        assert "the newest anchors are missing" in check(again, kept=newest).faults[0]


def test_the_anchors_are_not_forgotten_and_forgotten_sessions_are_told(rein):
    id = work(rein, "o1")
    SIGNER.anchor(rein.store, rein.clock)
    assert rein.store.forget(id, at=rein.clock())
    found = check(rein)
    assert (found.forgotten, found.faults) == (1, [])
    with pytest.raises(Conflict, match="anchors of the audit are kept"):
        rein.store.forget("anchors", at=rein.clock())


def test_erased_payloads_leave_chain_and_anchors_whole(rein):
    id = work(rein, "o1")
    SIGNER.anchor(rein.store, rein.clock)
    seqs = [event.seq for event in rein.store.events(session=id)]
    assert rein.store.erase(seqs) > 0
    assert rein.store.verify(id) is None
    assert check(rein).faults == []


def test_a_key_that_is_none(rein):
    for text in ("", "zz", "00"):
        with pytest.raises(ConfigError, match="64 hex digits"):
            anchors.check(rein.store, text)


# -- export


def test_rows_hold_the_view_and_their_place_in_the_chain(rein):
    id = work(rein, "a secret order")
    found = list(export.rows(rein.store, session=id))
    assert [row["kind"] for row in found] == [
        "session_started", "intent", "outcome", "session_ended",
    ]  # fmt: skip
    assert [row["prev"] for row in found[1:]] == [row["hash"] for row in found[:-1]]
    assert "secret order" not in json.dumps(found[1]["view"]["arguments"])
    assert tuple(found[0]) == export.COLUMNS


def test_rows_are_chosen_by_session_period_and_agent():
    clock = Clock()
    with Rein(store="memory:", clock=clock) as rein:
        first = work(rein, "o1", agent="a")
        clock.advance(3600)
        middle = clock()
        second = work(rein, "o2", agent="b")
        every = list(export.rows(rein.store))
        assert {row["session"] for row in every} == {first, second}
        assert {r["session"] for r in export.rows(rein.store, since=middle)} == {second}
        assert {r["session"] for r in export.rows(rein.store, until=middle)} == {first}
        assert {r["session"] for r in export.rows(rein.store, agent="b")} == {second}
        rest = list(export.rows(rein.store, after=every[2]["seq"]))
        assert rest == every[3:]


def test_metadata_only_says_that_and_not_what(rein):
    def fails(text):
        raise ValueError(f"no good: {text}")

    with rein.session(agent="desk", intent="pay confidential people", on_error="keep"):
        rein.call(str.upper, "confidential")
        with pytest.raises(ValueError, match="no good"):
            rein.call(fails, "confidential")
    whole = json.dumps(list(export.rows(rein.store)))
    bare = json.dumps(list(export.rows(rein.store, metadata_only=True)))
    assert "confidential" in whole.lower()
    assert "confidential" not in bare.lower()
    assert '"error": {"type": "ValueError"}' in bare
    assert '"state": "unknown"' in bare


# -- the commands


def command(path, *arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "checkrein", "audit", *map(str, arguments),
         "--store", f"sqlite:///{path}"],
        capture_output=True, text=True, timeout=60, check=False, **more,
    )  # fmt: skip


def test_sign_and_verify_from_the_shell(rein, path, tmp_path):
    work(rein, "o1")
    key = tmp_path / "keys" / "audit.key"
    done = command(path, "sign", "--key", key, "--json")
    assert done.returncode == 0, done.stderr
    signed = json.loads(done.stdout)
    assert key.stat().st_mode & 0o777 == 0o600
    done = command(path, "verify", "--public-key", signed["key"], "--anchor", signed["last"])
    assert done.returncode == 0, done.stdout
    assert "1 anchor checked: 1 heads as signed, 0 faults; 0 events not anchored" in done.stdout
    assert "anchors: not checked" in command(path, "verify").stdout
    done = command(path, "verify", "--public-key", signed["key"], "--anchor", "0" * 64)
    assert (done.returncode, "newest anchors are missing" in done.stdout) == (1, True)
    done = command(path, "verify", "--anchor", "0" * 64)
    assert "--anchor needs --public-key" in done.stderr
    done = command(path, "sign")
    assert "name the private key: --key FILE" in done.stderr


def test_export_as_lines_and_as_csv(rein, path, tmp_path):
    id = work(rein, "o1")
    done = command(path, "export")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["n"] for row in rows] == [1, 2, 3, 4]
    assert "4 rows exported" in done.stderr
    done = command(path, "export", id[:8], "--format", "csv", "-o", tmp_path / "x.csv", "--json")
    assert json.loads(done.stdout)["rows"] == 4
    text = (tmp_path / "x.csv").read_text(encoding="utf-8")
    read = list(csv.DictReader(io.StringIO(text)))
    assert json.loads(read[1]["view"])["arguments"] == {"order": "o1"}
    assert "--format xml: jsonl or csv" in command(path, "export", "--format", "xml").stderr
    done = command(path, "export", "-o", tmp_path / "no" / "x")
    assert "x cannot be written: No such file" in done.stderr


# -- erasure


def test_a_person_is_erased_and_everything_still_verifies(path, tmp_path):
    clock = Clock()
    with Rein(store=f"sqlite:///{path}", clock=clock) as rein:
        ids = {}
        for user in ("ann", "bob"):
            with rein.session(user=user) as session:
                rein.call(str.upper, f"letter of {user}")
            ids[user] = session.id
        SIGNER.anchor(rein.store, rein.clock)
        clock.advance(1)
        done = rein.forget(user="ann", payloads_only=True)
        assert (done.sessions, done.payloads) == (1, 2)
        assert rein.read(ids["bob"]).result(call_of(rein, ids["bob"])) == "LETTER OF BOB"
        with pytest.raises(Conflict, match="no recorded result"):
            rein.read(ids["ann"]).result(call_of(rein, ids["ann"]))
        assert all(rein.store.verify(id) is None for id in ids.values())
        assert check(rein).faults == []
        assert rein.forget(user="ann").sessions == 1
        assert "letter of ann" not in json.dumps(list(export.rows(rein.store)))
        assert check(rein).faults == []
        assert check(rein).forgotten == 1
    done = subprocess.run(
        [sys.executable, "-m", "checkrein", "forget", "--store", f"sqlite:///{path}"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "name what to forget" in done.stderr


def call_of(rein, session):
    return rein.store.events(session=session, kinds=("intent",))[0].call
