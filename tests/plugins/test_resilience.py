"""What happens to calls that are slow, fail, go on for ever or fall silent."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

from checkrein import Plugin, Rein, errors
from checkrein.testing import Clock
from checkrein.transient import retry_after, transient
from checkrein_plugins.resilience import (
    CircuitBreaker,
    FailureHandler,
    IterationLimit,
    ModelFallback,
    Retry,
    SilenceAlarm,
    Timeout,
)
from checkrein_plugins.resilience.iterations import asks_for_tools


@pytest.fixture(params=["memory:", "sqlite"])
def store(request, tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.param


class Flaky:
    """Fails as often as it is told to."""

    def __init__(self, *faults: BaseException | None) -> None:
        self.faults = list(faults)
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **arguments: Any) -> str:
        self.calls.append(arguments)
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        return "done"


class Http(Exception):
    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status
        self.response = type("Response", (), {"headers": headers})()


def code(go, rein: Rein, fn: Any, **arguments: Any) -> Any:
    """The result, the code of a refusal, or the class of what the tool raised."""
    try:
        return go.call(rein, fn, **arguments)
    except errors.Denied as denied:
        return denied.code
    except Exception as error:
        return type(error).__name__


# -- circuits


def test_a_tool_that_keeps_failing_is_left_alone(go, store) -> None:
    clock = Clock()
    down = Flaky(*[OSError("down")] * 4)
    with Rein(plugins=[CircuitBreaker(threshold=3)], store=store, clock=clock) as rein:
        tool = rein.declare("tool", lambda: down()).fn
        with rein.session(on_error="keep"):
            seen = [code(go, rein, tool) for _ in range(5)]
            assert seen == ["OSError"] * 3 + ["circuit_open"] * 2
            clock.advance(60)
            assert [code(go, rein, tool) for _ in range(2)] == ["OSError", "circuit_open"]
            clock.advance(60)
            assert [code(go, rein, tool) for _ in range(2)] == ["done", "done"]
            assert code(go, rein, lambda: 1) == 1
    assert len(down.calls) == 6


@pytest.mark.parametrize("wait", [True, False])
def test_parallel_failures_do_not_pass_the_threshold(store, wait) -> None:
    ran: list[int] = []

    def down() -> None:
        ran.append(1)
        time.sleep(0.005)
        raise OSError("down")

    guard = CircuitBreaker(threshold=3, wait=wait)
    with Rein(plugins=[guard], store=store) as rein, rein.session(on_error="keep") as session:

        def call() -> None:
            with contextlib.suppress(OSError, errors.BudgetExceeded):
                rein.call(down)

        threads = [threading.Thread(target=session.bind(call)) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert 1 <= len(ran) <= 3


def test_parallel_tasks_do_not_pass_the_threshold(store) -> None:
    ran: list[int] = []

    async def down() -> None:
        ran.append(1)
        await asyncio.sleep(0.005)
        raise OSError("down")

    async def run() -> list[Any]:
        with Rein(plugins=[CircuitBreaker(threshold=3)], store=store) as rein:
            async with rein.session(on_error="keep"):
                calls = (rein.acall(down) for _ in range(50))
                return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(run())
    assert len(ran) == 3
    assert sum(isinstance(f, errors.BudgetExceeded) for f in found) == 47


def test_a_tool_that_works_is_only_slowed_down(store) -> None:
    most: list[int] = []
    now: list[int] = []
    lock = threading.Lock()

    def works() -> None:
        with lock:
            now.append(1)
            most.append(len(now))
        time.sleep(0.002)
        with lock:
            now.pop()

    guard = CircuitBreaker(threshold=2)
    with Rein(plugins=[guard], store=store) as rein, rein.session() as session:
        threads = [
            threading.Thread(target=session.bind(lambda: rein.call(works))) for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(most) == 12
    assert max(most) <= 2


def test_one_probe_when_half_open(store) -> None:
    clock = Clock()
    begun, end = threading.Event(), threading.Event()
    ran: list[int] = []

    def tool(probe: bool) -> None:
        ran.append(1)
        if not probe:
            raise OSError("down")
        begun.set()
        end.wait(30)

    guard = CircuitBreaker(threshold=1, wait=False)
    with (
        Rein(plugins=[guard], store=store, clock=clock) as rein,
        rein.session(on_error="keep") as session,
    ):
        with pytest.raises(OSError, match="down"):
            rein.call(tool, False)
        clock.advance(61)
        thread = threading.Thread(target=session.bind(lambda: rein.call(tool, True)))
        thread.start()
        begun.wait(30)
        for _ in range(10):
            with pytest.raises(errors.BudgetExceeded):
                rein.call(tool, True)
        end.set()
        thread.join()
        rein.call(tool, True)
    assert len(ran) == 3


def test_a_slow_success_from_before_closes_nothing(store) -> None:
    clock = Clock()
    begun, end = threading.Event(), threading.Event()

    def tool(slow: bool) -> None:
        if not slow:
            raise OSError("down")
        begun.set()
        end.wait(30)

    guard = CircuitBreaker(threshold=2, wait=False)
    with (
        Rein(plugins=[guard], store=store, clock=clock) as rein,
        rein.session(on_error="keep") as session,
    ):
        thread = threading.Thread(target=session.bind(lambda: rein.call(tool, True)))
        thread.start()
        begun.wait(30)
        clock.advance(1)
        with pytest.raises(OSError, match="down"):
            rein.call(tool, False)
        end.set()
        thread.join()
        with pytest.raises(OSError, match="down"):
            rein.call(tool, False)
        with pytest.raises(errors.BudgetExceeded):
            rein.call(tool, False)


def test_an_open_circuit_outlives_the_process(go, tmp_path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"

    def tool() -> None:
        raise OSError("down")

    for expected in ("OSError", "circuit_open"):
        with Rein(plugins=[CircuitBreaker(threshold=1)], store=store) as rein:
            rein.declare("tool", tool)
            with rein.session(on_error="keep"):
                assert code(go, rein, tool) == expected


class Pause(Exception):
    """A framework's own signal."""


def test_what_is_not_the_tools_fault_is_no_failure(go, store) -> None:
    from checkrein.entry import Entry

    faults = [ValueError("bad"), errors.Denied("no"), asyncio.CancelledError()]
    plugins = [CircuitBreaker(threshold=1, ignore=["ValueError"])]
    with Rein(plugins=plugins, store=store) as rein:
        flaky = Flaky(*faults)
        tool = rein.declare("tool", lambda: flaky()).fn
        for fault in faults:
            with rein.session(on_error="keep"), contextlib.suppress(type(fault)):
                go.call(rein, tool)
        assert len(flaky.calls) == 3
        with rein.session(on_error="keep") as session:
            paused = rein.declare("paused", Flaky(Pause("wait")))
            for _ in range(2):
                entry = Entry(paused, {}, session, signals=(Pause,))
                with contextlib.suppress(Pause):
                    rein.enter(entry)
            assert rein.store.balance("breaker/paused").spent == 0


# -- timeouts


def test_tools_models_and_sessions_have_timeouts(go) -> None:
    plugins = [Timeout(tools={"slow": 0.05}, models=0.05)]
    stop = threading.Event()
    with Rein(plugins=plugins) as rein, rein.session(on_error="keep"):
        slow = rein.declare("slow", lambda: stop.wait(30)).fn
        assert code(go, rein, slow) == "TimeoutError"
        with pytest.raises(TimeoutError):
            go.run(rein, "model_call", lambda **request: stop.wait(30), model="m", messages=[])
        assert code(go, rein, lambda: 1) == 1
        stop.set()


def test_a_session_has_an_end(go, store) -> None:
    clock = Clock()
    plugins = [Timeout(session=60)]
    with Rein(plugins=plugins, store=store, clock=clock) as rein, rein.session(on_error="keep"):
        limits: list[float | None] = []

        class Look(Plugin):
            def post_call(self, call: Any, outcome: Any) -> Any:
                limits.append(call.tool.timeout)

        rein.plugins.add("look", Look())
        rein.engine.take(rein.plugins.chains)
        assert code(go, rein, lambda: 1) == 1
        clock.advance(50)
        assert code(go, rein, lambda: 1) == 1
        clock.advance(10)
        with pytest.raises(errors.Denied, match="are over") as refused:
            go.call(rein, lambda: 1)
        assert refused.value.halt
        assert limits == [60, 10]


def test_a_shorter_timeout_of_the_tool_stands(go) -> None:
    stop = threading.Event()
    with Rein(plugins=[Timeout(seconds=30)]) as rein, rein.session(on_error="keep"):
        slow = rein.declare("slow", lambda: stop.wait(60), timeout=0.05).fn
        assert code(go, rein, slow) == "TimeoutError"
        stop.set()


# -- iterations

ASKS = {"role": "assistant", "parts": [{"type": "tool_call", "name": "f", "arguments": {}}]}
ENDS = {"role": "assistant", "parts": [{"type": "text", "content": "done"}]}


def test_a_loop_ends_after_so_many_iterations(go, store) -> None:
    with (
        Rein(plugins=[IterationLimit(iterations=2)], store=store) as rein,
        rein.session(on_error="keep"),
    ):

        def model(answer: Any) -> Any:
            return go.run(rein, "model_call", lambda **r: answer, model="m", messages=[])

        assert [model(a) for a in (ASKS, ENDS, ASKS, ENDS)] == [ASKS, ENDS, ASKS, ENDS]
        with pytest.raises(errors.Denied, match="asked for tools 2 times") as refused:
            model(ASKS)
        assert refused.value.halt
        with pytest.raises(errors.BudgetExceeded) as refused:
            model(ENDS)
        assert refused.value.code == "iteration_limit"
    with (
        Rein(plugins=[IterationLimit(iterations=1, final_answer=False)], store=store) as rein,
        rein.session(on_error="keep"),
    ):
        model(ASKS)
        with pytest.raises(errors.BudgetExceeded):
            model(ENDS)


class Message:
    def __init__(self, **fields: Any) -> None:
        self.__dict__ |= fields


@pytest.mark.parametrize(
    ("answer", "asks"),
    [
        (ASKS, True),
        (ENDS, False),
        ("text", False),
        (None, None),
        (7, None),
        ([ENDS, ASKS], True),
        (Message(content="x", tool_calls=[]), False),
        (Message(content="", tool_calls=[{"name": "f"}]), True),
        ({"choices": [{"message": {"content": None, "tool_calls": [{"id": "1"}]}}]}, True),
        ({"choices": [{"message": {"content": "x"}}]}, False),
        (Message(output=[Message(type="function_call", name="f")]), True),
        (Message(output=[Message(type="message", content=[])]), False),
        (Message(content=[Message(type="text", text="x"), Message(type="tool_use")]), True),
        (Message(content=[Message(type="text", text="x")]), False),
        ({"candidates": [{"content": {"parts": [{"functionCall": {"name": "f"}}]}}]}, True),
        ({"candidates": [{"content": {"parts": [{"text": "x"}]}}]}, False),
    ],
)
def test_answers_of_many_shapes_are_read(answer, asks) -> None:
    assert asks_for_tools(answer) is asks


# -- retry


def quick(**settings: Any) -> Retry:
    return Retry(delay=0.001, longest=0.01, **settings)


@pytest.mark.parametrize(
    ("fault", "tries"),
    [
        (Http(429), 3),
        (Http(503), 3),
        (TimeoutError(), 3),
        (ConnectionResetError(), 3),
        (Http(400), 1),
        (Http(404), 1),
        (ValueError("bad"), 1),
        (KeyError("odd"), 3),  # named in `on`
        (Http(429, **{"Retry-After": "3600"}), 1),
        (Http(429, **{"retry-after-ms": "2"}), 3),
        (errors.Denied("no"), 1),
    ],
)
def test_what_failed_on_the_way_is_tried_again(go, store, fault, tries) -> None:
    flaky = Flaky(*[fault] * 5)
    with Rein(plugins=[quick(on=["KeyError"])], store=store) as rein:
        tool = rein.declare("tool", lambda: flaky(), idempotent=True).fn
        with rein.session(on_error="keep"), pytest.raises(type(fault)):
            go.call(rein, tool)
    assert len(flaky.calls) == tries


def test_what_would_be_repeated_is_not_tried_again(go, store) -> None:
    flaky = Flaky(TimeoutError())
    with Rein(plugins=[quick()], store=store) as rein:
        tool = rein.declare("tool", lambda: flaky()).fn
        with rein.session(on_error="keep") as session:
            with pytest.raises(TimeoutError):
                go.call(rein, tool)
            ends = [e.view["state"] for e in session.events() if e.kind == "outcome"]
    assert (len(flaky.calls), ends) == (1, ["unknown"])


def test_every_attempt_gets_the_same_key(go, store) -> None:
    flaky = Flaky(TimeoutError(), None, None, None)

    def pay(amount: int, idempotency_key: str | None = None) -> str:
        return flaky(amount=amount, key=idempotency_key)

    plugins = [quick(keys={"pay": "idempotency_key"})]
    with Rein(plugins=plugins, store=store) as rein:
        rein.declare("pay", pay, idempotent=True)
        with rein.session():
            assert go.call(rein, pay, 5) == "done"
            assert go.call(rein, pay, 5) == "done"
            assert go.call(rein, pay, 5, idempotency_key="mine") == "done"
    keys = [call["key"] for call in flaky.calls]
    assert keys[0] == keys[1] != keys[2]
    assert keys[0].startswith("crk_")
    assert keys[3] == "mine"


def test_our_keys_hide_no_duplicate(go, store) -> None:
    from checkrein_plugins.guardrails import IdempotencyGuard

    flaky = Flaky(TimeoutError())

    def pay(amount: int, key: str = "") -> str:
        return flaky(amount=amount, key=key)

    for plugins in (
        [quick(keys={"pay": "key"}), IdempotencyGuard(tools=["pay"], duplicates="deny")],
        [IdempotencyGuard(tools=["pay"], duplicates="deny"), quick(keys={"pay": "key"})],
    ):
        with Rein(plugins=plugins) as rein, rein.session(on_error="keep"):
            rein.declare("pay", pay, idempotent=True)
            assert code(go, rein, pay, amount=5) == "done"
            assert code(go, rein, pay, amount=5) == "denied"
    assert len(flaky.calls) == 3


def test_a_key_that_would_not_arrive_is_refused(go) -> None:
    with Rein(plugins=[quick(keys={"pay": "key"})]) as rein, rein.session(on_error="keep"):
        pay = rein.declare("pay", lambda amount: amount, idempotent=True).fn
        with pytest.raises(errors.Denied):
            go.call(rein, pay, 5)
        schema = {"properties": {"amount": {}}}
        pay = rein.declare("Pay", lambda amount, **more: amount, schema=schema).fn
        with pytest.raises(errors.Denied, match="takes no parameter 'key'"):
            go.call(rein, pay, 5)


# -- fallback


@pytest.mark.parametrize(
    ("faults", "called"),
    [
        ([], ["a"]),
        ([Http(429)], ["a", "b"]),
        ([Http(500), TimeoutError()], ["a", "b", "c"]),
        ([Http(429), Http(400)], ["a", "b"]),
        ([Http(400)], ["a"]),
        ([Http(503)] * 3, ["a", "b", "c"]),
    ],
)
def test_another_model_answers(go, store, faults, called) -> None:
    flaky = Flaky(*faults)
    with (
        Rein(plugins=[ModelFallback(models={"a": ["b", "c"]})], store=store) as rein,
        rein.session(on_error="keep"),
        contextlib.suppress(Http),
    ):
        go.run(rein, "model_call", lambda **r: flaky(**r), model="a", messages=[])
    assert [call["model"] for call in flaky.calls] == called


def test_a_model_is_tried_again_before_another_one(go) -> None:
    flaky = Flaky(Http(429), Http(429), None)
    plugins = [ModelFallback(models={"a": ["b"]}), quick(attempts=2)]
    with Rein(plugins=plugins) as rein, rein.session():
        go.run(rein, "model_call", lambda **r: flaky(**r), model="a", messages=[])
    assert [call["model"] for call in flaky.calls] == ["a", "a", "b"]


# -- failures


def test_errors_and_limits_become_values(go, store) -> None:
    from checkrein_plugins.budget import Budget

    flaky = Flaky(None, OSError("down"), TimeoutError())
    handler = FailureHandler(on={"error": "return_error", "timeout": "best_effort",
                                 "budget_exceeded": "best_effort"})  # fmt: skip
    with Rein(plugins=[handler, Budget(calls=4)], store=store) as rein:
        tool = rein.declare("tool", lambda n: f"{flaky()} {n}").fn
        with rein.session() as session:
            assert go.call(rein, tool, 1) == "done 1"
            failed = go.call(rein, tool, 2)
            assert (failed["error"], failed["message"], failed["tool"]) == ("error", "down", "tool")
            late = go.call(rein, tool, 3)
            assert (late["best_effort"], late["value"]) == (True, "done 1")
            assert go.call(rein, tool, 4) == "done 4"
            over = go.call(rein, tool, 5)
            assert (over["best_effort"], over["value"]) == (True, "done 4")
            assert "budget_exceeded" in over["reason"]
            states = [e.view["state"] for e in session.events() if e.kind == "outcome"]
            assert states == ["done", "unknown", "unknown", "done"]
            assert any(e.kind == "denied" for e in session.events())


def test_a_partial_answer_is_better_than_none(go) -> None:
    class Broken(Exception):
        partial = ["line 1"]

    handler = FailureHandler(on={"error": "best_effort"})
    with Rein(plugins=[handler]) as rein, rein.session():
        found = go.call(rein, Flaky(Broken("half way"), OSError("down")))
        assert (found["value"], found["partial"], found["reason"]) == (["line 1"], True, "half way")


def test_nothing_good_is_an_error(go) -> None:
    handler = FailureHandler(on={"error": "best_effort", "denied": "return_error"})
    flaky = Flaky(OSError("down"))
    with Rein(plugins=[handler]) as rein, rein.session():
        assert go.call(rein, lambda: flaky())["error"] == "error"


@pytest.mark.parametrize("kind", ["error", "limit"])
def test_a_failure_may_end_the_run(go, kind) -> None:
    from checkrein_plugins.budget import Budget

    plugins = [FailureHandler(on={kind: "halt"}), Budget(calls=int(kind == "error"))]
    flaky = Flaky(OSError("down"))
    with Rein(plugins=plugins) as rein, rein.session(on_error="keep"):
        with pytest.raises(errors.Denied) as refused:
            go.call(rein, lambda: flaky())
        assert refused.value.halt


def test_best_effort_shows_what_the_caller_saw(go) -> None:
    from checkrein_plugins.redaction import Redaction

    flaky = Flaky(None, OSError("write to casey@example.org"))
    plugins = [FailureHandler(on={"error": "best_effort"}), Redaction()]
    with Rein(plugins=plugins) as rein, rein.session():
        tool = rein.declare("tool", lambda: flaky() and "mail casey@example.org").fn
        first = go.call(rein, tool)
        second = go.call(rein, tool)
    assert "casey" not in str(first)
    assert "casey" not in str(second)
    assert second["best_effort"]


def test_a_retry_comes_before_a_value(go) -> None:
    flaky = Flaky(TimeoutError(), None)
    for plugins in ([FailureHandler(on={"timeout": "return_error"}), quick()],):
        with Rein(plugins=plugins) as rein, rein.session():
            tool = rein.declare("tool", lambda: flaky(), idempotent=True).fn
            assert go.call(rein, tool) == "done"


# -- silence


def test_a_silent_session_is_stopped(go, store) -> None:
    clock = Clock()
    alarm = SilenceAlarm(seconds=3600)
    with Rein(plugins=[alarm], store=store, clock=clock) as rein:
        with rein.session(on_error="keep") as quiet:
            go.call(rein, int)
            clock.advance(3599)
            assert alarm.check() == []
            go.call(rein, int)
            clock.advance(3600)
            assert alarm.check() == [quiet.id]
            assert alarm.check() == []
            with pytest.raises(errors.Halted):
                go.call(rein, int)
            event = next(e for e in quiet.events() if e.kind == "silence")
            assert event.view == {"seconds": 3600, "last": "outcome"}
        with rein.session(on_error="keep"):
            go.call(rein, int)


def test_an_alarm_may_only_tell(go, store) -> None:
    clock = Clock()
    alarm = SilenceAlarm(seconds=60, action="alert", watch="all")
    with Rein(plugins=[alarm], store=store, clock=clock) as rein, rein.session() as session:
        clock.advance(61)
        assert alarm.check() == [session.id]
        clock.advance(61)
        assert alarm.check() == []
        assert go.call(rein, int) == 0
        clock.advance(61)
        assert alarm.check() == [session.id]


def test_it_looks_by_itself() -> None:
    told = threading.Event()

    class Hear(Plugin):
        def on_event(self, event: Any) -> None:
            if event.kind == "session_stopped":
                told.set()

    with Rein(plugins=[SilenceAlarm(seconds=0.1), Hear()]) as rein, rein.session(on_error="keep"):
        assert told.wait(30)
        with pytest.raises(errors.Halted):
            rein.call(int)


# -- what errors say


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, 0),
        ({"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}, 0),
        ({}, None),
    ],
)
def test_servers_say_how_long_to_wait(headers, seconds) -> None:
    assert retry_after(Http(429, **headers)) == seconds


def test_a_state_may_lie_deeper() -> None:
    outer = RuntimeError("wrapped")
    outer.__cause__ = Http(503)
    assert transient(outer)
    outer.__cause__ = Http(401)
    assert not transient(outer)
    assert not transient(KeyboardInterrupt())
    assert not transient(None)
