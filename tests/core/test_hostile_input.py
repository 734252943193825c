"""Input that means harm: refused early, in words that hold no value of anybody's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from checkrein import Ask, Deny, Plugin, Rein, Retry, Rewrite, Skip
from checkrein.errors import (
    ApprovalPending,
    ConfigError,
    Conflict,
    Denied,
    PluginError,
    SessionClosed,
    Unencodable,
)

SECRET = "S3cretPassw0rd"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'checkrein.db'}"


# -- settings


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1, True, "5", 1e300])
@pytest.mark.parametrize(
    "key", ["drain", "approval_expires", "hook_timeout", "hold_wait", "max_payload", "undo_tries"]
)
def test_numbers_that_no_clock_can_add_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: must be a"):
        Rein(**{key: value})


@pytest.mark.parametrize("key", ["max_payload", "undo_tries"])
def test_counts_are_whole(key: str) -> None:
    with pytest.raises(ConfigError, match="whole number"):
        Rein(**{key: 2.5})


@pytest.mark.parametrize("drain", ["30", float("nan"), float("inf"), -1])
def test_a_sessions_own_drain_is_checked_when_it_is_given(drain: Any) -> None:
    with Rein() as rein, pytest.raises(ConfigError, match=r"^drain"):
        rein.session(drain=drain)


@pytest.mark.parametrize("key", ["agent", "intent", "user", "tenant", "task", "id"])
def test_what_names_a_session_must_be_text(url: str, key: str) -> None:
    with Rein(store=url) as rein, pytest.raises(ConfigError, match="must be a text, not int"):
        rein.session(**{key: 5})


@pytest.mark.parametrize("key", ["agent", "id"])
@pytest.mark.parametrize("store", ["memory:", ""])
def test_names_without_a_utf8_form_are_refused_alike_by_all_stores(
    url: str, store: str, key: str
) -> None:
    with Rein(store=store or url) as rein, pytest.raises(ConfigError, match="surrogate"):
        rein.session(**{key: "\ud800"})


@pytest.mark.parametrize("key", ["intent", "user", "tenant", "task"])
def test_free_text_may_hold_anything(url: str, key: str) -> None:
    with Rein(store=url) as rein, rein.session(**{key: "\ud800"}):
        assert rein.call(len, "ab") == 2


# -- secrets


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://user:{SECRET}@host:port/db",
        f"postgresql://host/db?password={SECRET}&schema=No",
        f"mysql:{SECRET}",
        SECRET,
        f"{SECRET}@host:5",
        f"sqlite://user:{SECRET}@host/x",
        f"sqlite:///x.db?key={SECRET}",
        f"memory:{SECRET}",
    ],
)
def test_the_address_of_a_store_is_never_shown(address: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Rein(store=address)
    assert SECRET not in str(refused.value)


class Loud(Plugin):
    """Tells its key in every error."""

    def __init__(self, key: str = "", at: str = "start") -> None:
        self.at = at
        if at == "made":
            raise ValueError(f"key {key} is wrong")

    def start(self, rein: Any) -> None:
        if self.at == "start":
            raise RuntimeError(f"login with {SECRET} failed")


def test_what_a_plugin_says_when_it_does_not_start_stays_inside() -> None:
    with pytest.raises(ConfigError, match="plugin loud does not start: it raised") as refused:
        Rein([Loud()])
    assert SECRET not in str(refused.value)
    assert SECRET in str(refused.value.__cause__)  # for whoever debugs it


@pytest.mark.parametrize("nested", [False, True])
def test_a_constructor_that_repeats_a_configured_value_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch, nested: bool
) -> None:
    from checkrein import manager

    def make(**options: Any) -> object:
        raise ValueError(f"cannot use {SECRET}")

    monkeypatch.setattr(manager, "load", lambda name: make)
    with pytest.raises(PluginError, match=r"^plugins\.loud: ValueError") as refused:
        manager.build("loud", {"keys": [{"a": SECRET}]} if nested else {"key": SECRET})
    assert SECRET not in str(refused.value)
    with pytest.raises(PluginError, match="cannot use"):
        manager.build("loud", {"other": "x"})


class HidesKeys(Plugin):
    """A redaction of one word."""

    def view(self, call: Any, value: Any, sink: str) -> Any:
        return value.replace(SECRET, "[KEY]") if isinstance(value, str) else value

    def pre_call(self, call: Any) -> Ask:
        return Ask("please")


def test_what_a_person_writes_is_viewed_like_everything_else(url: str) -> None:
    with Rein([HidesKeys()], store=url, wait="suspend") as rein:
        with pytest.raises(ApprovalPending) as waits, rein.session() as session:
            rein.call(len, "ab")
        rein.approvals.reject(waits.value.token, by="ann", reason=f"it would leak {SECRET}")
        with pytest.raises(Denied) as no:
            rein.resume(waits.value.token)
        told = [str(e.view) for e in session.events()]
    assert SECRET not in "".join(told) + str(no.value)
    assert any("[KEY]" in text for text in told)


@pytest.mark.parametrize("by", ["", "  ", None, 5])
def test_whoever_decides_has_a_name(url: str, by: Any) -> None:
    with Rein([HidesKeys()], store=url, wait="suspend") as rein:
        with pytest.raises(ApprovalPending) as waits, rein.session():
            rein.call(len, "ab")
        with pytest.raises(Conflict, match="say who decides"):
            rein.approvals.approve(waits.value.token, by=by)


# -- values


def doubled(levels: int, leaf: Any = 1) -> Any:
    value: Any = [leaf]
    for _ in range(levels):
        value = [value, value]
    return value


def spread(levels: int) -> Any:
    value: Any = {"a": 1}
    for _ in range(levels):
        value = {str(n): value for n in range(60)}
    return value


def tupled(levels: int) -> Any:
    value: Any = (1,)
    for _ in range(levels):
        value = (value, value)
    return value


BOMBS = [doubled(60), spread(6), tupled(60), {0: doubled(60)}]


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_value_that_multiplies_is_refused_as_an_argument(bomb: Any) -> None:
    ran: list[Any] = []
    with (
        Rein() as rein,
        rein.session(),
        pytest.raises(Unencodable, match=r"^value.*values, shared"),
    ):
        rein.call(lambda value: ran.append(value), bomb)
    assert ran == []


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_result_that_multiplies_fails_no_call(url: str, bomb: Any) -> None:
    with Rein(store=url) as rein, rein.session() as session:
        assert rein.call(lambda: bomb) is bomb
        (outcome,) = [e for e in session.events() if e.kind == "outcome"]
    assert outcome.view["state"] == "done"
    assert outcome.view["unrecorded"] == type(bomb).__name__


def test_many_values_next_to_each_other_are_no_bomb(url: str) -> None:
    rows = [[n, n + 1, n + 2] for n in range(100_000)]
    with Rein(store=url) as rein, rein.session():
        assert rein.call(lambda rows, flat: (len(rows), len(flat)), rows, [0] * 2_000_000) == (
            100_000, 2_000_000
        )  # fmt: skip


# -- plugins


class Rewriting(Plugin):
    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments

    def pre_call(self, call: Any) -> Rewrite | None:
        if call.arguments == self.arguments:
            return None
        return Rewrite(call.replace(arguments=self.arguments))


@pytest.mark.parametrize("arguments", [{"other": 1}, {}, {"x": 1, "other": 1}])
def test_a_rewrite_that_does_not_fit_the_tool_is_refused_before_it_runs(
    arguments: dict[str, Any],
) -> None:
    with Rein([Rewriting(arguments)]) as rein, rein.session(on_error="keep") as session:
        with pytest.raises(Denied, match="do not fit") as no:
            rein.call(lambda x: x, 5)
        assert no.value.code == "check_failed"
        assert [e.kind for e in session.events()] == ["session_started", "denied"]


def test_a_plugin_that_always_retries_comes_to_an_end() -> None:
    class Again(Plugin):
        def post_call(self, call: Any, outcome: Any) -> Retry:
            return Retry(0)

    ran: list[int] = []
    with Rein([Again()]) as rein, rein.session():
        rein.tool(lambda: ran.append(1), name="tick", idempotent=True)()
    assert 1 < len(ran) <= 100


def test_an_approval_is_void_for_another_function_of_the_name(url: str) -> None:
    ran: list[Any] = []
    with Rein([HidesKeys()], store=url, wait="suspend") as rein:
        pay = rein.tool(lambda amount: ran.append(amount), name="pay")
        with pytest.raises(ApprovalPending) as waits, rein.session():
            pay(amount=7)
    with Rein([HidesKeys()], store=url, wait="suspend") as rein:
        rein.tool(lambda account, amount: ran.append(account), name="pay")
        rein.approvals.approve(waits.value.token, by="ann")
        with pytest.raises(Conflict, match="another function now"):
            rein.resume(waits.value.token)
    assert ran == []


# -- one session, one block


def test_a_session_is_open_once_in_a_process(url: str) -> None:
    with Rein(store=url) as rein, rein.session(id="X"):
        with pytest.raises(SessionClosed, match="open already"), rein.session(id="X"):
            pass
        assert rein.call(len, "ab") == 2


def leave(session: Any, rein: Rein, error: BaseException | None) -> None:
    session.__exit__(type(error) if error else None, error, None)


@pytest.mark.parametrize("error", [None, ValueError("x")])
def test_a_forked_child_that_leaves_the_block_ends_nothing(
    url: str, error: BaseException | None
) -> None:
    undone: list[int] = []
    with Rein(store=url) as rein:
        act = rein.tool(lambda x: x, name="act", undo=lambda x: undone.append(x))
        with rein.session() as session:
            act(1)
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    leave(session, rein, error)
                    rein.close()
                    code = len(undone)
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert session.state == "ACTIVE"
            act(2)
        assert session.state == "COMPLETED"
        assert [e.kind for e in session.events()].count("session_ended") == 1


def locks_of(rein: Rein) -> list[Any]:
    owners = (rein, rein.lifecycle, rein.permissions, rein.rollbacks, rein.tools)
    return [owner._lock for owner in owners]  # type: ignore[attr-defined]


def test_locks_that_were_held_at_the_fork_are_free_in_the_child(url: str) -> None:
    with Rein(store=url) as rein:
        held = threading.Event()
        over = threading.Event()

        def hold() -> None:
            first, *others = locks_of(rein)
            with first, others[0], others[1], others[2], others[3]:
                held.set()
                over.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                import signal

                signal.alarm(20)
                rein.call(len, "ab")
                with rein.session() as session:
                    rein.tool(lambda: 1, name="new")()
                rein.rollback(session.id)
                code = 0
            finally:
                os._exit(code)
        over.set()
        holder.join()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# -- the end of a Rein


@pytest.mark.parametrize("where", ["hook", "tool"])
def test_closing_a_rein_keeps_nobody_waiting_for_its_loop(url: str, where: str) -> None:
    begun = threading.Event()

    async def for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    class Slow(Plugin):
        async def pre_call(self, call: Any) -> None:
            await for_ever()

    ended: list[BaseException] = []
    rein = Rein([Slow()] if where == "hook" else [], store=url)

    def work() -> None:
        try:
            with rein.session():
                rein.call(for_ever) if where == "tool" else rein.call(len, "ab")
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    rein.close()
    thread.join(30)
    assert not thread.is_alive()
    assert len(ended) == 1


def test_a_rein_that_nobody_closes_goes_with_its_loop(url: str) -> None:
    async def tool() -> int:
        return 1

    rein = Rein(store=url)
    with rein.session() as session:
        rein.call(tool)
    thread = rein.portal._thread
    assert thread is not None
    alive = weakref.ref(rein)
    del rein, session
    gc.collect()
    assert alive() is None
    thread.join(30)
    assert not thread.is_alive()


def test_a_call_that_was_looked_at_a_thousand_times_is_still_known_whole(url: str) -> None:
    done: list[int] = []
    with Rein(store=url) as rein:
        act = rein.tool(lambda x: done.append(x), name="act", undo=lambda x: done.clear())
        with rein.session() as session:
            act(x=1)
        call = next(e.call for e in session.events() if e.kind == "intent")
        from checkrein.store import Batch

        notes = [rein.journal.event("needs_human", call, why="x") for _ in range(1001)]
        rein.store.commit(Batch(session.id, notes, 1))
        report = rein.rollback(session.id)
        assert report is not None
        assert [a.status for a in report.actions] == ["undone"]
        rein.store.commit(Batch(session.id, [rein.journal.event(
            "resolved", call, state="undone")], 1))  # fmt: skip
        from checkrein.effects import effect_of

        effect = effect_of(rein.store, call)
        assert effect is not None
        assert effect.undone


@pytest.mark.parametrize("value", [{0: object()}, {"a": 1, 0: [object()]}, {"$cr": object()}])
def test_a_value_under_a_key_that_is_no_text_is_refused_for_its_own_reason(value: Any) -> None:
    with Rein() as rein, rein.session(), pytest.raises(Unencodable) as refused:
        rein.call(len, value)
    assert "contains itself" not in str(refused.value)
    assert refused.value.kind == "object"


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_reason_of_a_denial_is_told_as_it_may_be_shown(url: str, when: str) -> None:
    class Tells(Plugin):
        def pre_call(self, call: Any) -> Deny | None:
            return Deny(f"{SECRET} is not allowed") if when == "before" else None

        def post_call(self, call: Any, outcome: Any) -> Deny:
            return Deny(f"{SECRET} came back")

        def view(self, call: Any, value: Any, sink: str) -> Any:
            return value.replace(SECRET, "[KEY]") if isinstance(value, str) else value

    with Rein([Tells()], store=url) as rein, rein.session(on_error="keep") as session:
        with pytest.raises(Denied, match=r"\[KEY\]") as no:
            rein.call(lambda x: x, 1)
        told = str([e.view for e in session.events()])
    assert SECRET not in str(no.value) + no.value.reason + no.value.refusal() + told


def test_why_an_undo_was_skipped_is_told_as_it_may_be_shown(url: str) -> None:
    class Keeps(Plugin):
        def on_rollback(self, call: Any, outcome: Any, cause: Any) -> Skip:
            return Skip(f"{SECRET} is still needed")

        def view(self, call: Any, value: Any, sink: str) -> Any:
            return value.replace(SECRET, "[KEY]") if isinstance(value, str) else value

    with Rein([Keeps()], store=url) as rein:
        act = rein.tool(lambda: 1, name="act", undo=lambda: 1)
        with rein.session() as session:
            act()
        report = rein.rollback(session.id)
        assert report is not None
        told = str([e.view for e in session.events()])
    assert report.actions[0].detail == "[KEY] is still needed"
    assert SECRET not in told


def test_a_clock_that_was_set_back_makes_no_settle_time_longer(url: str) -> None:
    now = [10**15]

    def act(x: int) -> None:
        raise ConnectionResetError

    with Rein(store=url, clock=lambda: now[0]) as rein:
        tool = rein.tool(act, name="act", undo=lambda x: 1, probe=lambda x: False, settle_time=5)
        with rein.session(on_error="keep") as session, contextlib.suppress(ConnectionResetError):
            tool(1)
        now[0] -= 86_400_000_000
        report = rein.rollback(session.id)
        assert report is not None
        assert [(a.status, a.wait) for a in report.actions] == [("in_doubt", 5.0)]
