"""A session goes on under the policy that it began with, whoever takes it up again."""

import asyncio
import contextlib
import sqlite3

import pytest

from checkrein import Plugin, Rein, errors
from checkrein.verdicts import Deny
from checkrein_plugins.policy import Policy

STRICT = """
[counters.paid]
tool = "pay"
sum = "amount"
limit = 300

[[rules]]
tool = "pay"
when = "args.amount > 100"
action = "REQUIRE_APPROVAL"

[[rules]]
name = "most"
tool = "pay"
when = "args.amount > 250"
action = "BLOCK"
"""
WEAK = STRICT.replace("100", "1000").replace("250", "2500").replace("300", "9000")
STRICTER = STRICT.replace("250", "20")


class Desk:
    """The same application, started again and again on one store, with a policy file beside."""

    def __init__(self, folder):
        self.folder = folder
        self.store = f"sqlite:///{folder / 'store.db'}"
        self.paid = []

    def start(self, text, **options):
        (self.folder / "policy.toml").write_text(text)
        config = self.folder / "checkrein.toml"
        config.write_text(
            f'store = "{self.store}"\napprovals = "store"\n[plugins.policy]\nfile = "policy.toml"\n'
        )
        rein = Rein.from_file(config, **options)

        def pay(amount):
            self.paid.append(amount)
            return amount

        return rein, rein.tool(pay)

    def begin(self, text=STRICT, amount=200):
        rein, pay = self.start(text)
        with rein, rein.session(id="s", wait="suspend"):
            pay(10)
            with pytest.raises(errors.ApprovalPending) as asked:
                pay(amount)
        return asked.value.token


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def changes(rein):
    return [e.view for e in rein.read("s").events() if e.kind == "policy_changed"]


@pytest.mark.parametrize("is_async", [False, True])
def test_resuming_under_a_weaker_policy_loosens_nothing(desk, is_async):
    desk.begin()
    rein, pay = desk.start(WEAK)
    with rein:

        def refused(amount, kind):
            async def later():
                async with rein.session(id="s", wait="suspend"):
                    await rein.acall(pay, amount)

            def now():
                with rein.session(id="s", wait="suspend"):
                    pay(amount)

            run = (lambda: asyncio.run(later())) if is_async else now
            with pytest.raises(kind):
                run()

        refused(200, errors.ApprovalPending)
        refused(150, errors.ApprovalPending)
        (change,) = changes(rein)
        assert change["asked"] == ["policy"]
        assert change["began"] != change["now"]
        refused(260, errors.Denied)
    assert desk.paid == [10]


def test_the_approved_call_runs_once_under_another_policy(desk):
    token = desk.begin()
    rein, _ = desk.start(WEAK)
    with rein:
        rein.approvals.approve(token, by="ann")
        assert rein.resume(token) == 200
        assert rein.resume(token) == 200
    assert desk.paid == [10, 200]


def test_a_stricter_policy_of_today_wins_as_well(desk):
    token = desk.begin()
    rein, _ = desk.start(STRICTER)
    with rein:
        rein.approvals.approve(token, by="ann")
        with pytest.raises(errors.Denied):
            rein.resume(token)
    assert desk.paid == [10]


def test_what_both_policies_count_is_counted_once_with_the_lower_limit(desk):
    desk.begin()
    rein, pay = desk.start(WEAK)
    with rein, rein.session(id="s"):
        for _ in range(3):
            pay(90)
        with pytest.raises(errors.BudgetExceeded):
            pay(90)
        assert rein.store.balance("policy/paid/session/s").spent == 280 * 10**9


def test_under_the_same_policy_nothing_is_asked_twice(desk):
    desk.begin()
    rein, pay = desk.start(STRICT)
    with rein, rein.session(id="s") as session:
        pay(5)
        assert session.pinned is None
        assert changes(rein) == []


def test_a_policy_that_is_gone_still_holds(desk):
    desk.begin()
    with Rein(store=desk.store, approvals="store") as rein:

        def pay(amount):
            desk.paid.append(amount)

        tool = rein.tool(pay)
        with rein.session(id="s"):
            tool(5)
            tool(5)
            with pytest.raises(errors.Denied):
                tool(260)
    assert desk.paid == [10, 5, 5]


def test_a_policy_passed_in_by_a_program_is_pinned_too(desk):
    import tomllib

    def start(text):
        return Rein([Policy(layers=[tomllib.loads(text)])], store=desk.store, approvals="store")

    def pay(amount):
        desk.paid.append(amount)

    with start(STRICT) as rein:
        tool = rein.tool(pay)
        with pytest.raises(errors.ApprovalPending), rein.session(id="s", wait="suspend"):
            tool(200)
    with start(WEAK) as rein:
        tool = rein.tool(pay)
        with pytest.raises(errors.Denied), rein.session(id="s"):
            tool(260)
    assert desk.paid == []


def test_a_process_that_only_observes_does_not_take_it_up(desk):
    desk.begin()
    rein, _ = desk.start(WEAK, mode="observe")
    with rein, pytest.raises(errors.SessionClosed, match="began under enforcement"):
        rein.session(id="s").__enter__()


@pytest.mark.parametrize("what", ["row", "payload"])
def test_an_altered_record_of_the_policy_is_refused(desk, what):
    desk.begin()
    with sqlite3.connect(desk.folder / "store.db") as raw:
        if what == "row":
            changed = raw.execute(
                'UPDATE sessions SET body = replace(body, \'"pins":"\', \'"pins":"0\')'
            )
        else:
            changed = raw.execute(
                "UPDATE events SET data = CAST(replace(CAST(data AS TEXT), '250', '950') AS BLOB)"
                " WHERE kind = 'session_started' AND CAST(data AS TEXT) LIKE '%amount > 250%'"
            )
        assert changed.rowcount >= 1
    raw.close()
    rein, _ = desk.start(WEAK)
    with rein, pytest.raises(errors.CheckreinError), rein.session(id="s"):
        pass
    assert desk.paid == [10]


def test_a_plugin_that_cannot_be_built_here_keeps_the_session_closed(desk):
    class Odd(Plugin):
        def pin(self):
            return "no_such_plugin", {}

        def pre_call(self, call):
            return Deny("never") if call.name == "other" else None

    with Rein([Odd()], store=desk.store) as rein:
        session = rein.session(id="s")
        with pytest.raises(errors.ApprovalPending), session:
            raise errors.ApprovalPending("t", call_id="c", tool="x")
    with Rein(store=desk.store) as rein, pytest.raises(errors.SessionClosed, match="cannot be"):
        rein.session(id="s").__enter__()


def test_the_checksum_changes_with_the_contents_of_a_policy_file(desk):
    first, _ = desk.start(STRICT)
    again, _ = desk.start(STRICT)
    other, _ = desk.start(WEAK)
    with first, again, other:
        assert first.policy == again.policy
        assert first.policy != other.policy


@contextlib.contextmanager
def left_open(rein):
    """A session that stays open, as one in which a call waits for a person."""
    with contextlib.suppress(errors.ApprovalPending), rein.session(id="s") as session:
        yield session
        raise errors.ApprovalPending("later")


def test_what_was_withheld_after_a_call_still_is(go, tmp_path):
    """A process without the guards that look at results takes the session up."""
    config = {
        "store": f"sqlite:///{tmp_path / 'store.db'}",
        "plugins": {
            "output": {"characters": 10, "action": "deny"},
            "schema": {"results": {"number": {"type": "integer"}}},
            "retry": {"attempts": 3, "delay": 0, "jitter": 0},
        },
    }
    tries = []

    def fails():
        tries.append(1)
        raise ConnectionError

    def started(config):
        rein = Rein.from_config(config)
        rein.declare("fails", fails, idempotent=True)
        return rein, rein.declare("number", lambda value: value).fn

    rein, number = started(config)
    with rein, left_open(rein):
        assert go.call(rein, number, 7) == 7
    rein, number = started({"store": config["store"]})
    with rein:
        with left_open(rein):
            assert go.call(rein, number, 8) == 8
            for wrong in ("x", "long" * 9):
                with pytest.raises(errors.Denied):
                    go.call(rein, number, wrong)
            # To try again is nothing that a policy demands.
            with pytest.raises(ConnectionError):
                go.call(rein, fails)
        (change,) = changes(rein)
        with rein.session():
            assert go.call(rein, number, "x") == "x"
    assert set(change["asked"]) == {"output", "schema", "retry"}
    assert tries == [1]
