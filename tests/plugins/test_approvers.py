"""Approvers: the console and a function of the application."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein
from checkrein.approval import ApprovalRequest
from checkrein.call import Call, ToolInfo
from checkrein.errors import ApprovalPending, ApprovalRejected, ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Approved, Ask, PreVerdict, Rejected
from checkrein_plugins.approvers import CallableApprover, Console

CALL = Call("call-1", "s1", "tool", "refund", {"amount": 250}, ToolInfo("refund"))


def request(**fields: Any) -> ApprovalRequest:
    stated: dict[str, Any] = {
        "id": "ap-1", "session": "s1", "call": "call-1", "tool": "refund",
        "arguments": {"amount": 250}, "masked": (), "reason": "above 100", "rule": "scope/refund",
        "risk": "high", "who": (), "quorum": 1, "created": 0, "expires": 10**15,
    }  # fmt: skip
    return ApprovalRequest(**{**stated, **fields})


def ask(typed: str, *, settings: dict[str, Any] | None = None, **fields: Any) -> tuple[Any, str]:
    """(decision, what was printed)."""
    printed = io.StringIO()
    console = Console(input=io.StringIO(typed), output=printed, **(settings or {}))
    return console.on_approval(CALL, request(**fields)), printed.getvalue()


# Console


def test_exactly_yes_approves() -> None:
    decision, printed = ask("yes\n")
    assert isinstance(decision, Approved)
    assert decision.by.startswith("console:")
    for shown in ("ap-1", "call-1", "refund", '"amount": 250', "above 100", "scope/refund", "high"):
        assert shown in printed


@pytest.mark.parametrize(
    "typed", ["y", "Yes", "YES", " yes", "yes ", "", "yes!", "да", "1", "nope"]
)
def test_anything_else_asks_again(typed: str) -> None:
    decision, printed = ask(f"{typed}\nno\n")
    assert isinstance(decision, Rejected)
    assert printed.count("Run it?") == 2


def test_the_end_of_the_input_is_no_approval() -> None:
    assert isinstance(ask("")[0], Rejected)
    assert isinstance(ask("maybe\n")[0], Rejected)
    assert ask("", settings={"on_eof": "leave"})[0] is None


def test_masked_fields_are_marked_and_take_their_own_words() -> None:
    masked = {"arguments": {"to": "[EMAIL]"}, "masked": ("to", "body.0")}
    decision, printed = ask("yes\nno\n", **masked)
    assert isinstance(decision, Rejected)
    assert "MASKED (not shown to you): to, body.0" in printed
    decision, _ = ask("yes masked-ok\n", **masked)
    assert isinstance(decision, Approved)
    assert "masked-ok" in decision.by
    decision, _ = ask("yes\n", settings={"masked_ok": True}, **masked)
    assert isinstance(decision, Approved)
    assert "masked-ok" in decision.by


def test_arguments_cannot_draw_on_the_terminal() -> None:
    hostile = "\x1b[2J\x1b[Hsafe\r\n\u202egnp.exe\x07\u200b"
    _, printed = ask("no\n", arguments={"a": hostile}, reason=hostile, tool="t\x1b[8m")
    assert not {c for c in printed if not c.isprintable() and c != "\n"}
    assert "\\u202e" in printed
    long = ask("no\n", arguments={"a": "x" * 5000 + "THE-END"})[1]
    assert "THE-END" in long


@pytest.mark.parametrize(("answer", "kind"), [("yes", Approved), ("no", Rejected)])
def test_decided_beforehand(answer: Any, kind: type) -> None:
    printed = io.StringIO()
    console = Console(answer=answer, output=printed)
    decision = console.on_approval(CALL, request())
    assert isinstance(decision, kind)
    assert decision.by.endswith(f"(--{answer})")
    assert "call-1" in printed.getvalue()
    masked = console.on_approval(CALL, request(masked=("a",)))
    assert isinstance(masked, Rejected)


@pytest.fixture
def pipe() -> Iterator[tuple[Any, int]]:
    """(stream to read from, descriptor to type into)."""
    read, write = os.pipe()
    with os.fdopen(read, "r") as stream:
        yield stream, write
    os.close(write)


def test_a_prompt_gives_up_when_somebody_else_decides(pipe: tuple[Any, int]) -> None:
    stream, _ = pipe
    still = threading.Event()
    printed = io.StringIO()
    console = Console(input=stream, output=printed)
    found: list[Any] = []
    waiting = request(is_open=lambda: not still.is_set())
    thread = threading.Thread(target=lambda: found.append(console.on_approval(CALL, waiting)))
    thread.start()
    still.set()
    thread.join(10)
    assert found == [None]


def test_prompts_take_turns_and_each_answer_is_for_its_own(pipe: tuple[Any, int]) -> None:
    stream, write = pipe
    asked = threading.Semaphore(0)

    class Printed(io.StringIO):
        def write(self, text: str) -> int:
            done = super().write(text)
            if "Run it?" in text:
                asked.release()
            return done

    printed = Printed()
    console = Console(input=stream, output=printed)
    found: dict[str, Any] = {}

    def run(name: str) -> None:
        found[name] = console.on_approval(CALL, request(id=name))

    threads = [threading.Thread(target=run, args=(f"ap-{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for typed in ("yes\n", "no\n", "yes\n"):
        assert asked.acquire(timeout=10)
        assert not asked.acquire(blocking=False), "two questions at once"
        os.write(write, typed.encode())
    for thread in threads:
        thread.join(10)
    order = [
        line.split()[1].rstrip(":")
        for line in printed.getvalue().splitlines()
        if "Approval" in line
    ]
    assert [type(found[name]) for name in order] == [Approved, Rejected, Approved]


def test_what_was_typed_before_the_question_answers_nothing() -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "r") as stream:
        console = Console(input=stream, output=io.StringIO())
        asked = threading.Event()

        class Printed(io.StringIO):
            def write(self, text: str) -> int:
                if "Run it?" in text:
                    asked.set()
                return super().write(text)

        console = Console(input=stream, output=Printed())
        os.write(leader, b"yes\n")
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(console.on_approval(CALL, request())))
        thread.start()
        assert asked.wait(10)
        os.write(leader, b"no\n")
        thread.join(10)
        assert len(found) == 1
        assert isinstance(found[0], Rejected)
    os.close(leader)


def test_without_a_terminal_the_start_is_refused() -> None:
    code = (
        "from checkrein import Rein, errors\n"
        "from checkrein_plugins.approvers import Console\n"
        "try:\n"
        "    Rein(plugins=[Console()])\n"
        "except errors.ConfigError as error:\n"
        "    print(error)\n"
        "Rein(plugins=[Console(answer='no')]).close()\n"
        "print('started')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "there is no terminal to ask at; decide beforehand with answer =" in done.stdout
    assert "started" in done.stdout


AGENT = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from concurrent.futures import ThreadPoolExecutor
import sys
from checkrein import Ask, Plugin, Rein, errors
from checkrein_plugins.approvers import Console

class Careful(Plugin):
    def pre_call(self, call):
        return Ask("every payment", rule="all")

def pay(order):
    print("PAID", flush=True)

rein = Rein(plugins=[Careful(), Console()])

def turn():
    try:
        session.bind(rein.call)(pay, "o1")
    except errors.ApprovalRejected as refused:
        print("REFUSED", refused.reason, flush=True)

try:
    with rein.session(agent="desk") as session, ThreadPoolExecutor(1) as pool:
        pool.submit(turn).result()
except KeyboardInterrupt:
    print("STOPPED", flush=True)
rein.close()
"""


def test_ctrl_c_at_a_question_ends_an_agent_that_waits_for_it_on_another_thread() -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT], stdin=follower, stdout=follower, stderr=follower,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )  # fmt: skip
    before = termios.tcgetattr(follower)
    try:
        seen = b""
        while b"Run it?" not in seen:
            seen += os.read(leader, 4096)
        os.write(leader, b"\x03")
        while b"STOPPED" not in seen:
            seen += os.read(leader, 4096)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert b"Interrupted: not approved." in seen
    assert b"REFUSED" in seen
    assert b"PAID" not in seen
    assert termios.tcgetattr(follower) == before
    os.close(leader)
    os.close(follower)


class AskAlways(Plugin):
    def pre_call(self, call: Call) -> Ask:
        return Ask("every call", rule="all")


def test_where_nobody_sits_the_console_starts_and_approves_nothing() -> None:
    with (
        Rein(plugins=[AskAlways(), Console()], approvals="channels", attended=False) as rein,
        rein.session(on_error="keep"),
        pytest.raises(ApprovalRejected) as refused,
    ):
        rein.call(len, "abc")
    assert "nobody sits at the terminal" in str(refused.value)


def test_where_nobody_sits_the_store_still_answers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with (
        Rein(plugins=[AskAlways(), Console()], store=url, attended=False) as rein,
        rein.session(wait="suspend"),
        pytest.raises(ApprovalPending) as pending,
    ):
        rein.call(len, "abc")
    with Rein(store=url) as other:
        assert [r.state for r in other.approvals.pending()] == ["pending"]
        other.approvals.approve(pending.value.token, by="ann")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"answr": "yes"}, "console: unknown key 'answr'; allowed: answer, masked_ok, on_eof"),
        ({"answer": "maybe"}, "console.answer: .*'yes' or 'no'"),
        ({"answer": True}, "console.answer"),
        ({"masked_ok": "yes"}, "console.masked_ok"),
        ({"on_eof": "approve"}, "console.on_eof"),
    ],
)
def test_bad_console_settings(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Console(**settings)


# Callable


def decide(function: Any) -> Any:
    found = CallableApprover(function).on_approval(CALL, request())
    if hasattr(found, "__await__"):

        async def finish() -> Any:
            return await found

        return asyncio.run(finish())
    return found


def later(value: Any) -> Any:
    async def function(call: Call, request: ApprovalRequest) -> Any:
        await asyncio.sleep(0)
        return value

    return function


@pytest.mark.parametrize("wrap", [lambda value: lambda call, request: value, later])
def test_what_a_function_may_answer(wrap: Any) -> None:
    assert isinstance(decide(wrap(True)), Approved)
    assert isinstance(decide(wrap(False)), Rejected)
    assert decide(wrap(None)) is None
    edited = Approved("ann", {"amount": 100})
    assert decide(wrap(edited)) is edited
    rejected = Rejected("ann", "too much")
    assert decide(wrap(rejected)) is rejected
    for other in (1, "yes", 0, "", {}, [], object()):
        with pytest.raises(TypeError, match="allowed: True, False, Approved"):
            decide(wrap(other))


def test_who_is_named() -> None:
    assert CallableApprover(lambda c, r: True, by="risk-service").on_approval(
        CALL, request()
    ) == Approved("risk-service")


def test_a_function_named_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_approvers.py").write_text(
        "class Desk:\n    @staticmethod\n    def ask(call, request):\n        return True\n"
        "def few(call):\n    return True\nvalue = 5\n"
    )
    (tmp_path / "my_broken.py").write_text("raise OSError('no network')\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = CallableApprover(function="my_approvers:Desk.ask").on_approval(CALL, request())
    assert isinstance(found, Approved)
    for function, message in (
        ("my_approvers", "not of the form 'module:name'"),
        ("my_approvers:", "not of the form"),
        ("no_such_module:f", "module 'no_such_module' cannot be imported"),
        ("my_broken:f", "cannot be imported: OSError: no network"),
        ("my_approvers:nobody", "'my_approvers' has no 'nobody'"),
        ("my_approvers:value", "is not callable"),
        ("my_approvers:few", r"is called with \(call, request\)"),
        (5, "is not callable"),
        (None, "callable.function: is needed"),
    ):
        with pytest.raises(ConfigError, match=message):
            CallableApprover(function)  # type: ignore[arg-type]  # what a file may hold


def test_bad_callable_settings() -> None:
    with pytest.raises(ConfigError, match="unknown key 'func'; allowed: function, by"):
        CallableApprover(func=print)  # type: ignore[arg-type]  # what a file may hold
    with pytest.raises(ConfigError, match=r"callable\.by"):
        CallableApprover(lambda c, r: True, by=5)  # type: ignore[arg-type]


# Through a Rein


class Asks(Plugin):
    def pre_call(self, call: Call) -> PreVerdict:
        return Ask("look first", rule="asks")


def refund(amount: int) -> str:
    return f"refunded {amount}"


def outcome(*approvers: Plugin, how: str) -> Any:
    done: list[int] = []

    def tool(amount: int) -> str:
        done.append(amount)
        return refund(amount)

    rein = Rein(plugins=[Asks(), *approvers])
    try:
        if how == "sync":
            with rein.session(agent="a", on_error="keep"):
                return rein.call(tool, 250), done

        async def run() -> Any:
            async with rein.session(agent="a", on_error="keep"):
                return await rein.acall(tool, 250)

        return asyncio.run(run()), done
    except ApprovalRejected as error:
        return error, done
    finally:
        rein.close()


HOW = pytest.mark.parametrize("how", ["sync", "async"])


@HOW
@pytest.mark.parametrize("wrap", [lambda value: lambda call, request: value, later])
def test_a_function_decides_a_call(how: str, wrap: Any) -> None:
    assert outcome(CallableApprover(wrap(True)), how=how) == ("refunded 250", [250])
    error, done = outcome(CallableApprover(wrap(Rejected("ann", "too much"))), how=how)
    assert isinstance(error, ApprovalRejected)
    assert "too much" in str(error)
    assert done == []


@HOW
def test_an_approver_that_raises_is_reported_and_approves_nothing(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(call: Call, request: ApprovalRequest) -> bool:
        raise OSError("approval service is down")

    error, done = outcome(CallableApprover(broken), how=how)
    assert isinstance(error, ApprovalRejected)
    assert done == []
    assert "callableapprover" in caplog.text
    caplog.clear()
    error, done = outcome(CallableApprover(lambda c, r: "yes"), how=how)  # type: ignore[arg-type,return-value]
    assert isinstance(error, ApprovalRejected)
    assert done == []


@HOW
def test_the_console_decides_a_call(how: str) -> None:
    typed = Console(input=io.StringIO("maybe\nyes\n"), output=io.StringIO())
    assert outcome(typed, how=how) == ("refunded 250", [250])
    ended = Console(input=io.StringIO(""), output=io.StringIO())
    error, done = outcome(ended, how=how)
    assert isinstance(error, ApprovalRejected)
    assert done == []


@HOW
def test_the_first_answer_closes_the_prompt(how: str, pipe: tuple[Any, int]) -> None:
    stream, _ = pipe
    printed = io.StringIO()
    console = Console(input=stream, output=printed)
    result, done = outcome(console, CallableApprover(lambda c, r: True), how=how)
    assert (result, done) == ("refunded 250", [250])
    for thread in threading.enumerate():
        if thread.name == "checkrein-ask":
            thread.join(10)
            assert not thread.is_alive(), "the prompt is still open"
