"""Who counts as alive."""

# What must not run stands inside the block that raises.
# ruff: noqa: PT012

from __future__ import annotations

import contextvars
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from checkrein import Rein, errors, owner

NOW = 1_800_000_000_000_000
LONG_AGO = NOW - round(2 * owner.LEASE * 1e6)
JUST_NOW = NOW - 1_000_000

Child = Callable[..., "subprocess.Popen[str]"]


def test_this_process() -> None:
    lease = owner.this_process(NOW)
    # On one host nothing has to be heard of it: the process is looked at.
    assert owner.alive(replace(lease, beat=LONG_AGO), NOW)


def test_a_pid_that_was_used_again() -> None:
    """Another process has the number now: it started at another time."""
    lease = owner.this_process(NOW)
    assert not owner.alive(replace(lease, started=f"{lease.started}0"), NOW)
    assert not owner.alive(replace(lease, started=""), NOW)


def test_no_lease_is_no_life() -> None:
    assert not owner.alive(None, NOW)


@pytest.mark.parametrize("other", [{"host": "elsewhere"}, {"boot": "an earlier boot"}])
def test_other_hosts_and_boots_live_as_long_as_they_are_heard_of(other: dict[str, str]) -> None:
    lease = replace(owner.this_process(NOW), **other)
    assert owner.alive(replace(lease, beat=JUST_NOW), NOW)
    assert not owner.alive(replace(lease, beat=LONG_AGO), NOW)


def test_stopped_killed_and_unreaped(child: Child) -> None:
    process = child("input()")
    lease = replace(owner.this_process(NOW), pid=process.pid, started=owner.started(process.pid))
    assert owner.alive(lease, NOW)
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    assert owner.alive(lease, NOW), "it may go on at any moment"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not owner.alive(lease, NOW), "a zombie does nothing any more"
    process.wait()
    assert not owner.alive(lease, NOW)


@pytest.fixture
def pair(tmp_path: Any) -> Any:
    url = f"sqlite:///{tmp_path}/store.db"
    with Rein(store=url) as one, Rein(store=url) as two:
        yield one, two


def test_a_session_has_one_owner(pair: Any) -> None:
    one, two = pair
    with one.session(id="run"), pytest.raises(errors.SessionClosed, match="another process"):
        two.session(id="run").__enter__()


def test_a_suspended_session_can_be_taken_up(pair: Any) -> None:
    one, two = pair
    session = one.session(id="run").__enter__()
    session.__exit__(errors.ApprovalPending, errors.ApprovalPending("token"), None)
    with two.session(id="run") as again:
        assert again.fence == 2


def test_a_session_that_is_taken_up_goes_by_what_it_began_with(pair: Any) -> None:
    one, two = pair
    session = one.session(id="run", on_error="keep", task="t", labels={"a": "1"}).__enter__()
    session.__exit__(errors.ApprovalPending, errors.ApprovalPending("token"), None)
    with two.session(id="run") as again:
        assert (again.on_error, again.task, again.labels) == ("keep", "t", {"a": "1"})


def test_who_lost_a_session_neither_calls_nor_ends_nor_rolls_back(pair: Any) -> None:
    """It stood still, its lease ran out, another process took the session over."""
    one, two = pair
    undone: list[str] = []
    act = one.tool(lambda name: name, name="act", undo=lambda name: undone.append(name))
    with (
        pytest.raises(errors.SessionClosed, match="another process") as caught,
        one.session(id="run"),
    ):
        act("a")
        lease = one.store.owner(one.lease.id())
        two.store.drop_owner(lease.id)
        contextvars.copy_context().run(two.session(id="run").__enter__)
        one.store.beat(lease)
        act("b")
    assert undone == [] and "not" in "".join(caught.value.__notes__)
    row = two.store.session("run")
    assert (row.state, row.rollback, row.owner) == ("ACTIVE", "none", two.lease.id())


def test_a_session_of_another_rein_does_not_hide_this_one(pair: Any) -> None:
    one, two = pair
    act = one.tool(lambda: None, name="act")
    with one.session() as session, two.session():
        act()
    assert session.spend().calls == 1


def test_a_lease_is_dropped_with_its_rein(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with Rein(store=url) as rein:
        with rein.session():
            pass
        [lease] = rein.store.owners()
        assert lease.pid == os.getpid()
    with Rein(store=url) as rein:
        assert rein.store.owners() == []


def test_a_lease_stays_while_a_session_needs_it(tmp_path: Any) -> None:
    """Otherwise nobody would ever find the session again."""
    url = f"sqlite:///{tmp_path}/store.db"
    with Rein(store=url) as rein:
        rein.session(id="open").__enter__()
    with Rein(store=url) as rein:
        [lease] = rein.store.owners()
        assert rein.store.session("open").owner == lease.id
