"""Standing grants: never wider than what their giver saw, and gone when they are taken back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Always, Ask, Call, Deny, Plugin, Rein, errors
from checkrein.testing import Clock
from checkrein.verdicts import Approved


@pytest.fixture
def sqlite(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


class Asks(Plugin):
    def __init__(self, **ask: Any) -> None:
        self.ask = ask

    def pre_call(self, call: Call) -> Any:
        return Ask("sure?", rule="r", **self.ask)


class Desk:
    """Tools that are asked about, and what they did."""

    def __init__(self, rein: Rein, go: Any, description: str = "Writes.") -> None:
        self.rein = rein
        self.go = go
        self.ran: list[Any] = []

        @rein.tool(description=description)
        def write(path: str = "", size: int = 0) -> str:
            self.ran.append((path, size))
            return "ok"

        @rein.tool
        def refresh(force: bool = False) -> str:
            self.ran.append(force)
            return "ok"

        self.write: Callable[..., str] = write
        self.refresh: Callable[..., str] = refresh

    def ask(self, tool: Callable[..., Any], *args: Any, **session: Any) -> str:
        """The token under which a call waits; it must not run."""
        before = list(self.ran)
        try:
            with self.rein.session(**{"agent": "build", "wait": "suspend", **session}):
                self.go.call(self.rein, tool, *args)
        except errors.ApprovalPending as pending:
            assert self.ran == before
            return pending.token
        raise AssertionError("nobody was asked")

    def runs(self, tool: Callable[..., Any], *args: Any, **session: Any) -> bool:
        """Whether a call runs without a question."""
        try:
            with self.rein.session(**{"agent": "build", "wait": "suspend", **session}):
                self.go.call(self.rein, tool, *args)
        except errors.ApprovalPending:
            return False
        return True


@pytest.fixture
def desk(sqlite, go) -> Any:
    with Rein(plugins=[Asks()], store=sqlite) as rein:
        yield Desk(rein, go)


def granted(desk: Desk, token: str, **always: Any) -> str:
    desk.rein.approvals.approve(token, by="anna", always=Always(**always))
    return desk.rein.grants.standing()[-1].id


def events(rein: Rein, kind: str) -> list[Any]:
    return [event.view for event in rein.store.events(kinds=(kind,))]


def test_it_holds_for_the_same_call_in_the_same_session_and_for_no_other(desk) -> None:
    token = desk.ask(desk.write, "a", 1, id="one")
    granted(desk, token)
    assert desk.runs(desk.write, "a", 1, id="one")
    assert not desk.runs(desk.write, "a", 2, id="one")
    assert not desk.runs(desk.write, "b", 1, id="one")
    assert not desk.runs(desk.write, "a", 1, id="two")
    assert not desk.runs(desk.refresh, id="one")


def test_until_a_time_it_holds_in_every_session_of_that_agent(sqlite, go) -> None:
    clock = Clock()
    with Rein(plugins=[Asks()], store=sqlite, clock=clock) as rein:
        desk = Desk(rein, go)
        token = desk.ask(desk.write, "a", 1, tenant="acme", user="ute")
        granted(desk, token, until=3600.0)
        assert desk.runs(desk.write, "a", 1, tenant="acme", user="ute")
        assert not desk.runs(desk.write, "a", 1, tenant="acme", user="udo")
        assert not desk.runs(desk.write, "a", 1, tenant="other", user="ute")
        assert not desk.runs(desk.write, "a", 1, tenant="acme", user="ute", agent="plan")
        clock.advance(3601)
        assert not desk.runs(desk.write, "a", 1, tenant="acme", user="ute")
        assert rein.grants.standing() == []
        assert [g.state for g in rein.grants.standing(every=True)] == ["expired"]


def test_no_arguments_are_not_any_arguments(desk) -> None:
    granted(desk, desk.ask(desk.refresh), until=60.0)
    assert desk.runs(desk.refresh)
    assert not desk.runs(desk.refresh, True)


def test_arguments_like_these_are_told_by_the_rules_of_scopes(desk) -> None:
    like = {"path": {"type": "path", "allow": ["/data/*"]}}
    granted(desk, desk.ask(desk.write, "/data/a", 1), like=like, until=60.0)
    assert desk.runs(desk.write, "/data/b", 1)
    assert not desk.runs(desk.write, "/data/../etc/passwd", 1)
    assert not desk.runs(desk.write, "/data/b", 2)


def test_a_name_with_the_signs_of_globs_gets_around_no_rule(desk) -> None:
    def pay(amount: int) -> int:
        return amount

    desk.rein.declare("shop[eu].pay", fn=pay)
    granted(desk, desk.ask(pay, 5), like={"amount": {"maximum": 10}}, until=60.0)
    assert desk.runs(pay, 9)
    assert not desk.runs(pay, 11)


@pytest.mark.parametrize(
    "always",
    [
        {"like": {"sise": {"maximum": 5}}},
        {"like": {"size": {"maximun": 5}}},
        {"like": {"size": {"maximum": 0}}},
        {"like": {"size": {"total": 5}}},
        {"like": {"size": {"ask_above": 0}}},
        {"until": 0},
        {"until": "tomorrow"},
    ],
    ids=str,
)
def test_rules_that_cannot_be_used_grant_nothing_and_approve_nothing(desk, always) -> None:
    token = desk.ask(desk.write, "a", 1)
    with pytest.raises(errors.ConfigError):
        desk.rein.approvals.approve(token, by="anna", always=Always(**always))
    assert desk.rein.approvals.get(token).state == "pending"
    assert desk.rein.grants.standing() == []


def test_a_veto_is_stronger(sqlite, go) -> None:
    closed = [False]

    class Closes(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Deny("closed") if closed[0] else None

    with Rein(plugins=[Asks(), Closes()], store=sqlite) as rein:
        desk = Desk(rein, go)
        granted(desk, desk.ask(desk.write, "a", 1), until=60.0)
        closed[0] = True
        with pytest.raises(errors.Denied, match="closed"), rein.session("build"):
            go.call(rein, desk.write, "a", 1)
        assert desk.ran == []


def test_another_rule_asks_all_the_same(sqlite, go) -> None:
    more = [False]

    class Late(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Ask("and this?", rule="late") if more[0] else None

    with Rein(plugins=[Asks(), Late()], store=sqlite) as rein:
        desk = Desk(rein, go)
        granted(desk, desk.ask(desk.write, "a", 1), until=60.0)
        more[0] = True
        token = desk.ask(desk.write, "a", 1)
        assert rein.approvals.get(token).rule == "late"


def test_every_use_names_the_grant(desk) -> None:
    id = granted(desk, desk.ask(desk.write, "a", 1), until=60.0)
    for _ in range(2):
        assert desk.runs(desk.write, "a", 1)
    uses = [e for e in desk.rein.store.events() if e.kind in ("grant_used", "intent")]
    assert [(e.kind, e.view.get("id", id)) for e in uses] == [
        ("grant_used", id), ("intent", id)
    ] * 2  # fmt: skip
    assert uses[0].call == uses[1].call
    assert uses[0].view["by"] == "anna"


def test_one_that_is_taken_back_asks_again(desk) -> None:
    id = granted(desk, desk.ask(desk.write, "a", 1), until=60.0)
    assert desk.runs(desk.write, "a", 1)
    desk.rein.grants.revoke(id, by="ben")
    assert not desk.runs(desk.write, "a", 1)
    assert events(desk.rein, "grant_revoked") == [{"id": id, "tool": "write", "by": "ben"}]
    with pytest.raises(errors.Conflict, match="revoked already"):
        desk.rein.grants.revoke(id, by="ben")
    with pytest.raises(errors.Conflict, match="unknown"):
        desk.rein.grants.revoke("gr-0", by="ben")


def test_one_that_is_taken_back_between_question_and_intent_covers_nothing(desk) -> None:
    id = granted(desk, desk.ask(desk.write, "a", 1), until=60.0)
    using = desk.rein.grants.using

    def revoked(*args: Any) -> Any:
        found = using(*args)
        desk.rein.grants.using = using
        desk.rein.grants.revoke(id, by="ben")
        return found

    desk.rein.grants.using = revoked
    assert not desk.runs(desk.write, "a", 1)
    assert desk.ran == []


def test_another_definition_asks_again_and_shows_the_difference(sqlite, go) -> None:
    with Rein(plugins=[Asks()], store=sqlite) as rein:
        desk = Desk(rein, go)
        granted(desk, desk.ask(desk.write, "a", 1), until=600.0)
        waiting = desk.ask(desk.write, "b", 1)
    with Rein(plugins=[Asks()], store=sqlite) as rein:
        changed = Desk(rein, go, description="Writes, and tells everybody.")
        token = changed.ask(changed.write, "a", 1)
        (told,) = rein.approvals.get(token).changed
        assert "description was 'Writes.', is 'Writes, and tells everybody.'" in told
        rein.approvals.approve(waiting, by="anna")
        with pytest.raises(errors.Conflict, match=r"void here.*tells everybody"):
            go.run(rein, "resume", waiting)
    with Rein(plugins=[Asks()], store=sqlite) as rein:
        same = Desk(rein, go)
        assert same.runs(same.write, "a", 1)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ({"server": "mcp://other --flag"}, "server was 'mcp://one'"),
        ({"schema": {"properties": {"to": {}, "bcc": {}}}}, "parameter bcc is new"),
        ({"schema": {"properties": {}}}, "parameter to is gone"),
        ({"schema": {"properties": {"to": {"type": "x"}}}}, "parameter to was {}, is {'type'"),
        ({"schema": {"properties": {"to": {}}, "required": ["to"]}}, "its schema"),
    ],
)
def test_what_has_changed_is_told_in_words(after, told) -> None:
    from checkrein.call import ToolInfo
    from checkrein.definition import differences, parts

    before: dict[str, Any] = {"server": "mcp://one", "schema": {"properties": {"to": {}}}}
    one, other = ToolInfo("send", **before), ToolInfo("send", **{**before, **after})
    (found,) = differences(parts(one), parts(other))
    assert told in found
    assert one.digest() != other.digest()


def test_the_order_of_keys_changes_nothing() -> None:
    from checkrein.call import ToolInfo
    from checkrein.definition import differences, parts

    one = ToolInfo("send", schema={"properties": {"a": {}, "b": {}}, "type": "object"})
    other = ToolInfo("send", schema={"type": "object", "properties": {"b": {}, "a": {}}})
    assert one.digest() == other.digest()
    assert differences(parts(one), parts(other)) == []


def test_one_that_was_altered_counts_for_nothing(desk) -> None:
    granted(desk, desk.ask(desk.write, "a", 1, id="one"))
    with desk.rein.store._connections.writing() as cursor:
        cursor.execute(
            "UPDATE records SET session = '', body = json_set(body, '$.session', '') "
            "WHERE kind = 'grant'"
        )
    assert not desk.runs(desk.write, "a", 1, id="one")
    assert desk.rein.grants.standing() == []


def test_where_several_must_agree_nobody_allows_it_for_good(sqlite, go) -> None:
    with Rein(plugins=[Asks(quorum=2)], store=sqlite) as rein:
        desk = Desk(rein, go)
        token = desk.ask(desk.write, "a", 1)
        with pytest.raises(errors.Conflict, match="none may allow it for good"):
            rein.approvals.approve(token, by="anna", always=Always())


def test_who_may_not_answer_grants_nothing(sqlite, go) -> None:
    with Rein(plugins=[Asks(who=("anna",))], store=sqlite) as rein:
        desk = Desk(rein, go)
        token = desk.ask(desk.write, "a", 1)
        with pytest.raises(errors.Conflict, match="not by eve"):
            rein.approvals.approve(token, by="eve", always=Always())
        assert rein.grants.standing() == []


def test_an_approver_of_the_process_can_allow_it_for_good(go) -> None:
    asked: list[Any] = []

    class Boss(Plugin):
        def on_approval(self, call: Call, request: Any) -> Any:
            asked.append(request.arguments)
            return Approved("anna", always=Always(like={"size": {"maximum": 5}}))

    with Rein(plugins=[Asks(), Boss()]) as rein:
        desk = Desk(rein, go)
        with rein.session("build"):
            for size in (1, 2, 5):
                go.call(rein, desk.write, "a", size)
    assert desk.ran == [("a", 1), ("a", 2), ("a", 5)]
    assert asked == [{"path": "a", "size": 1}]


def test_the_command_line_gives_lists_and_takes_back(sqlite, go, tmp_path) -> None:
    from checkrein import cli

    def run(*arguments: str) -> tuple[int, Any]:
        import contextlib
        import io

        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = cli.run([*arguments, "--store", sqlite, "--json"])
        return code, json.loads(out.getvalue() or "null")

    with Rein(plugins=[Asks()], store=sqlite) as rein:
        desk = Desk(rein, go)
        token = desk.ask(desk.write, "a", 1)
        code, _ = run(
            "approve", token, "--by", "anna", "--until", "2h", "--like", 'size={"maximum": 5}'
        )
        assert code == 0
        code, tree = run("grants")
        (grant,) = tree["grants"]
        assert code == 0
        assert (grant["tool"], grant["by"], grant["like"]) == (
            "write", "anna", {"size": {"maximum": 5}}
        )  # fmt: skip
        assert desk.runs(desk.write, "a", 5)
        assert run("revoke", grant["id"], "--by", "ben")[0] == 0
        assert run("revoke", grant["id"], "--by", "ben")[0] == 1
        assert not desk.runs(desk.write, "a", 5)
        assert run("grants")[1] == {"grants": []}
        assert run("grants", "--all")[1]["grants"][0]["state"] == "revoked"
        other = desk.ask(desk.write, "b", 1)
        assert run("approve", other, "--until", "soon")[0] == 2
        assert run("approve", other, "--like", "size=5")[0] == 2
        assert rein.approvals.get(other).state == "pending"
