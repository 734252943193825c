"""One call: its states, its record, and what reaches the tool."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from typing import Any

import pytest

from checkrein import Ask, Call, Deny, Hold, Plugin, Rein, Replace, Rewrite, errors
from checkrein.verdicts import Approved, Fallback, Measured, Retry, Undo


def of(rein: Rein, kind: str, session: str | None = None) -> list[Any]:
    return rein.store.events(session=session, kinds=(kind,))


@pytest.fixture(params=["memory:", "sqlite"])
def store(request, tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.param


# states


class Lost(ConnectionError):
    pass


class Refused(ConnectionError):
    pass


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), Lost(), TimeoutError(), KeyboardInterrupt(), SystemExit(3), GeneratorExit(),
     errors.Denied("inner"), errors.Conflict("inner"), errors.StoreUnavailable("inner"),
     errors.DuplicateIntent("inner"), StopIteration(), asyncio.CancelledError()],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_whatever_a_tool_raises_its_effect_is_unknown(go, store, error) -> None:
    with Rein(store=store) as rein:
        effects = []

        def tool() -> None:
            effects.append(1)
            raise error

        if go.mode == "async" and isinstance(error, StopIteration):
            pytest.skip("a coroutine cannot raise StopIteration")
        session = rein.session(on_error="keep")
        with pytest.raises(type(error)) as caught, session:
            go.call(rein, tool)
        assert caught.value is error or go.mode == "async"
        assert effects == [1]
        (outcome,) = of(rein, "outcome", session.id)
        assert outcome.view["state"] == "unknown"
        assert outcome.view["error"]["type"] == type(error).__name__


def test_only_a_declared_error_means_that_nothing_was_done(go, store) -> None:
    with Rein(store=store) as rein:
        wanted: list[Exception] = [Refused(), Lost()]

        @rein.tool(no_effect_on=(Refused,))
        def tool() -> None:
            raise wanted.pop(0)

        with rein.session(on_error="keep") as session:
            with pytest.raises(Refused):
                go.call(rein, tool)
            with pytest.raises(Lost):
                go.call(rein, tool)
        assert [e.view["state"] for e in of(rein, "outcome", session.id)] == ["not_done", "unknown"]


@pytest.mark.parametrize("wrong", [BaseException, KeyboardInterrupt, "OSError", 3, (1,)], ids=repr)
def test_no_effect_on_takes_exceptions(wrong) -> None:
    with Rein() as rein, pytest.raises(errors.ConfigError, match="no_effect_on"):
        rein.declare("t", no_effect_on=(wrong,))


def test_no_effect_on_takes_one_class_or_many() -> None:
    with Rein() as rein:
        assert rein.declare("t", no_effect_on=Refused).no_effect_on == (Refused,)


def test_a_cancelled_call_is_recorded_and_stays_cancelled(store) -> None:
    with Rein(store=store) as rein:
        begun = asyncio.Event()

        async def tool() -> None:
            begun.set()
            await asyncio.sleep(60)

        async def main() -> str:
            async with rein.session(on_error="keep") as session:
                task = asyncio.create_task(rein.acall(tool))
                await begun.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                return session.id

        session = asyncio.run(main())
        (outcome,) = of(rein, "outcome", session)
        assert outcome.view["state"] == "unknown"
        assert outcome.view["ended"] == "cancelled"


def test_cancelled_while_a_plugin_is_asked_for_an_undo_the_effect_is_recorded(store) -> None:
    asked = asyncio.Event()

    class Slow(Plugin):
        async def on_rollback(self, call: Call, outcome: Any, cause: Any) -> Any:
            asked.set()
            await asyncio.sleep(60)

    with Rein(plugins=[Slow()], store=store) as rein:

        async def main() -> None:
            async with rein.session(on_error="keep"):
                task = asyncio.create_task(rein.acall(lambda: "x"))
                await asked.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

        asyncio.run(main())
        (outcome,) = of(rein, "outcome")
        assert outcome.view["state"] == "done"


def test_post_call_does_not_change_what_is_known(go, store) -> None:
    class Vetoes(Plugin):
        def post_call(self, call: Call, outcome: Any) -> Any:
            return Deny("leaks")

    with Rein(plugins=[Vetoes()], store=store) as rein:
        with rein.session(on_error="keep"), pytest.raises(errors.Denied, match="leaks"):
            go.call(rein, lambda: 1)
        assert of(rein, "outcome")[0].view["state"] == "done"
        assert of(rein, "amended")[0].view["error"]["type"] == "Denied"


# what reaches the tool, and what is recorded of it


def test_the_tool_gets_what_was_checked_not_what_the_caller_made_of_it() -> None:
    lines = ["a"]

    class Waits(Plugin):
        async def pre_call(self, call: Call) -> Any:
            lines.append("sneaked in")
            await asyncio.sleep(0)

    with Rein(plugins=[Waits()]) as rein:
        got: list[Any] = []

        async def main() -> None:
            async with rein.session():
                await rein.acall(got.append, lines)

        asyncio.run(main())
        assert got == [["a"]]
        assert rein.store.payload(of(rein, "intent")[0].seq) == {
            "arguments": {"args": [["a"]]}
        } or (
            "a" in str(rein.store.payload(of(rein, "intent")[0].seq))
            and "sneaked" not in str(rein.store.payload(of(rein, "intent")[0].seq))
        )


def test_what_the_caller_changes_while_a_person_decides_is_not_run(go) -> None:
    order = {"amount": 10}

    class Asks(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Ask("sure?")

        def on_approval(self, call: Call, request: Any) -> Any:
            assert request.arguments == {"order": {"amount": 10}}
            order["amount"] = 1_000_000
            return Approved("boss")

    with Rein(plugins=[Asks()]) as rein:
        paid: list[int] = []

        def pay(order: dict[str, int]) -> None:
            paid.append(order["amount"])

        with rein.session():
            go.call(rein, pay, order)
        assert paid == [10]


@pytest.mark.parametrize("arguments", [{"to": "real"}, {"to": ["real"]}], ids=["flat", "deep"])
def test_a_plugin_that_changes_arguments_in_place_is_found(go, arguments) -> None:
    class Rude(Plugin):
        def pre_call(self, call: Call) -> Any:
            if isinstance(call.arguments["to"], list):
                call.arguments["to"][0] = "masked"
            else:
                call.arguments["to"] = "masked"  # type: ignore[index]

    with Rein(plugins=[Rude()]) as rein:
        sent: list[Any] = []

        def send(to: Any) -> None:
            sent.append(to)

        with rein.session(on_error="keep"), pytest.raises(errors.Denied, match="in place"):
            go.call(rein, send, **arguments)
        assert sent == []
        assert arguments in ({"to": "real"}, {"to": ["real"]})


def test_values_that_are_unequal_to_themselves_are_no_change(go) -> None:
    class Looks(Plugin):
        def pre_call(self, call: Call) -> Any:
            return None

    with Rein(plugins=[Looks()]) as rein, rein.session():
        assert go.call(rein, lambda x: len(x), [float("nan")]) == 1


def test_a_tool_that_changes_its_argument_changes_no_record(go, store) -> None:
    with Rein(store=store) as rein:

        def eat(items: list[int], box: dict[str, int]) -> int:
            items.clear()
            box["more"] = 1
            return 0

        mine, box = [1, 2], {"a": 1}
        with rein.session():
            go.call(rein, eat, mine, box)
        assert (mine, box) == ([1, 2], {"a": 1})
        (intent,) = of(rein, "intent")
        assert intent.view["arguments"] == {"items": [1, 2], "box": {"a": 1}}
        assert rein.store.payload(intent.seq) == {"arguments": {"items": [1, 2], "box": {"a": 1}}}


def test_a_model_function_that_changes_its_request_changes_no_record(go, store) -> None:
    with Rein(store=store) as rein:

        def model(**request: Any) -> str:
            request["messages"].append("x")
            return "hi"

        with rein.session():
            go.run(rein, "model_call", model, model="m", messages=[{"role": "user"}])
        assert of(rein, "intent")[0].view["arguments"]["messages"] == [{"role": "user"}]


# shapes of callables


def test_every_kind_of_parameter_reaches_the_tool_and_the_record(go) -> None:
    with Rein() as rein:
        seen: list[Any] = []

        def tool(
            a: int, /, b: int, c: int = 3, *rest: int, d: int, e: int = 5, **more: int
        ) -> None:
            seen.append((a, b, c, rest, d, e, more))

        with rein.session():
            go.call(rein, tool, 1, 2, d=4)
            go.call(rein, tool, 1, 2, 30, 31, 32, d=4, e=50, f=6)
            go.call(rein, tool, 1, b=2, d=4, a=9)
        assert seen == [
            (1, 2, 3, (), 4, 5, {}),
            (1, 2, 30, (31, 32), 4, 50, {"f": 6}),
            (1, 2, 3, (), 4, 5, {"a": 9}),
        ]
        views = [e.view["arguments"] for e in of(rein, "intent")]
        assert views[0] == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
        assert views[1]["rest"] == [31, 32]
        assert views[1]["more"] == {"f": 6}


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"a": 1}), ((1,), {"z": 1})]
)
def test_arguments_that_do_not_fit_are_refused_before_anything_runs(go, args, kwargs) -> None:
    with Rein() as rein:

        def tool(a: int, b: int = 2) -> None:
            raise AssertionError

        with rein.session(on_error="keep"), pytest.raises(TypeError, match="tool"):
            go.call(rein, tool, *args, **kwargs)
        assert not of(rein, "intent")


def test_a_positional_only_parameter_is_not_taken_by_name(go) -> None:
    with Rein() as rein:

        def tool(a: int, /) -> None:
            raise AssertionError

        with rein.session(on_error="keep"), pytest.raises(TypeError):
            go.call(rein, tool, a=1)


def test_defaults_that_are_no_data_are_left_to_the_function(go) -> None:
    missing = object()
    box: list[int] = []

    def tool(a: Any = missing, b: int = 2, /, c: list[int] = box, d: Any = missing) -> Any:
        c.append(b)
        return a is missing, c is box, d is missing

    with Rein() as rein, rein.session():
        assert go.call(rein, tool) == (True, True, True)
        assert go.call(rein, tool, 1, 7) == (False, True, True)
    assert box == [2, 7]


def test_unchanging_defaults_are_part_of_the_call(go) -> None:
    from decimal import Decimal

    def tool(tags: tuple[str, ...] = ("a",), share: Decimal = Decimal("0.5")) -> Any:
        return tags, share

    seen: list[Any] = []

    class Looks(Plugin):
        def pre_call(self, call: Call) -> Any:
            seen.append(dict(call.arguments))

    with Rein(plugins=[Looks()]) as rein, rein.session():
        assert go.call(rein, tool) == (("a",), Decimal("0.5"))
    assert seen == [{"tags": ("a",), "share": Decimal("0.5")}]


class Desk:
    def __init__(self) -> None:
        self.sold: list[int] = []

    def sell(self, n: int) -> int:
        self.sold.append(n)
        return n

    @staticmethod
    def plain(n: int) -> int:
        return n

    @classmethod
    def made(cls, n: int) -> int:
        return n

    def __call__(self, n: int) -> int:
        return n + 1


def test_methods_partials_builtins_and_callable_objects(go) -> None:
    desk = Desk()
    with Rein() as rein, rein.session() as session:
        assert go.call(rein, desk.sell, 3) == 3
        assert go.call(rein, desk.sell, n=4) == 4
        assert go.call(rein, Desk.plain, 5) == 5
        assert go.call(rein, Desk.made, 6) == 6
        assert go.call(rein, desk, 7) == 8
        assert go.call(rein, functools.partial(desk.sell, 8)) == 8
        assert go.call(rein, functools.partial(desk.sell, n=9)) == 9
        assert go.call(rein, max, 1, 2) == 2
        assert go.call(rein, "a-b".split, "-") == ["a", "b"]
        assert go.call(rein, dict, a=1) == {"a": 1}
        names = [e.view["name"] for e in of(rein, "intent", session.id)]
    assert desk.sold == [3, 4, 8, 9]
    assert names == [
        "sell",
        "sell",
        "plain",
        "made",
        "Desk",
        "sell",
        "sell",
        "max",
        "split",
        "dict",
    ]


def test_a_partial_of_a_declared_tool_is_that_tool_with_all_its_arguments(go) -> None:
    seen: list[Any] = []

    class Looks(Plugin):
        def pre_call(self, call: Call) -> Any:
            seen.append((call.name, dict(call.arguments), call.tool.effect))

    with Rein(plugins=[Looks()]) as rein, rein.session():

        @rein.tool(effect="egress")
        def send(to: str, text: str, urgent: bool = False) -> str:
            return to + text

        assert go.call(rein, functools.partial(send, "a", urgent=True), "b") == "ab"
    assert seen == [("send", {"to": "a", "text": "b", "urgent": True}, "egress")]


def test_a_supervised_method_can_be_called_by_name_too(go) -> None:
    with Rein() as rein:

        class Shop:
            def __init__(self) -> None:
                self.n = 0

            @rein.tool(opaque=("self",), idempotent=True)
            def add(self, n: int) -> int:
                self.n += n
                return self.n

        shop = Shop()
        with rein.session():
            assert shop.add(2) == 2
            assert go.call(rein, shop.add, 3) == 5
            assert go.call(rein, shop.add, n=4) == 9


def test_an_async_callable_object_is_awaited(go) -> None:
    class Later:
        async def __call__(self, n: int) -> int:
            await asyncio.sleep(0)
            return n

    async def one(n: int) -> int:
        return n

    with Rein() as rein, rein.session():
        assert go.call(rein, Later(), 3) == 3
        assert go.call(rein, lambda n: one(n), 4) == 4


def test_a_result_that_offers_everything_is_not_awaited(go) -> None:
    class Proxy:
        def __getattr__(self, name: str) -> Any:
            return lambda *a: "remote"

    with Rein() as rein, rein.session():
        assert isinstance(go.call(rein, Proxy), Proxy)


# repeating


class Again(Plugin):
    def __init__(self, times: int, after: float = 0.0) -> None:
        self.times = times
        self.after = after

    def post_call(self, call: Call, outcome: Any) -> Any:
        if outcome.error is not None and call.attempt <= self.times:
            return Retry(self.after)
        return None


class Caps(Plugin):
    def __init__(self, limit: int) -> None:
        self.limit = limit

    def pre_call(self, call: Call) -> Any:
        return Hold("tries", 1, "calls", self.limit, settle="keep")


def flaky(rein: Rein, fails: int, **settings: Any) -> tuple[Any, list[int]]:
    ran: list[int] = []

    @rein.tool(name="flaky", **settings)
    def tool() -> str:
        ran.append(1)
        if len(ran) <= fails:
            raise Lost
        return "ok"

    return tool, ran


def test_each_attempt_has_its_own_record_and_its_own_hold(go, store) -> None:
    with Rein(plugins=[Again(5), Caps(10)], store=store) as rein:
        tool, ran = flaky(rein, 2, idempotent=True)
        with rein.session() as session:
            assert go.call(rein, tool) == "ok"
        assert len(ran) == 3
        assert [e.attempt for e in of(rein, "intent", session.id)] == [1, 2, 3]
        assert [e.view["state"] for e in of(rein, "outcome", session.id)] == [
            "unknown", "unknown", "done"
        ]  # fmt: skip
        assert rein.store.balance("tries").spent == 3
        assert rein.store.balance("tries").held == 0
        assert session.spend().calls == 3


def test_a_retry_is_refused_by_a_limit_like_any_call(go, store) -> None:
    with Rein(plugins=[Again(5), Caps(2)], store=store) as rein:
        tool, ran = flaky(rein, 9, idempotent=True)
        with rein.session(on_error="keep"), pytest.raises(errors.BudgetExceeded):
            go.call(rein, tool)
        assert len(ran) == 2
        assert len(of(rein, "denied")) == 1


def test_an_approved_call_can_be_repeated(go, store) -> None:
    class Asks(Plugin):
        asked = 0

        def pre_call(self, call: Call) -> Any:
            return Ask("sure?")

        def on_approval(self, call: Call, request: Any) -> Any:
            Asks.asked += 1
            return Approved("boss")

    with Rein(plugins=[Again(5), Asks()], store=store) as rein:
        tool, ran = flaky(rein, 2, idempotent=True)
        with rein.session() as session:
            assert go.call(rein, tool) == "ok"
        assert len(ran) == 3
        assert Asks.asked == 1
        assert [e.view["state"] for e in of(rein, "outcome", session.id)][-1] == "done"
        (record,) = rein.store.records("approval").rows
        assert record.state == "done"


def test_what_is_not_idempotent_is_never_repeated(go) -> None:
    with Rein(plugins=[Again(5)]) as rein:
        tool, ran = flaky(rein, 9)
        with rein.session(on_error="keep"), pytest.raises(Lost):
            go.call(rein, tool)
        assert len(ran) == 1


def test_a_sync_call_on_a_loop_does_not_pause_it_for_a_retry() -> None:
    with Rein(plugins=[Again(5, after=30)]) as rein:
        tool, ran = flaky(rein, 9, idempotent=True)

        async def main() -> None:
            with rein.session(on_error="keep"), pytest.raises(Lost):
                rein.call(tool)

        asyncio.run(main())
        assert len(ran) == 1


class FallsBack(Plugin):
    def __init__(self, models: dict[str, str]) -> None:
        self.models = models

    def post_call(self, call: Call, outcome: Any) -> Any:
        if outcome.error is not None and call.name in self.models:
            return Fallback(self.models[call.name])
        return None


class Prompts(Plugin):
    """Rewrites the request for one model only."""

    def pre_call(self, call: Call) -> Any:
        if call.name == "big" and call.arguments["system"] != "for big":
            return Rewrite(call.replace(arguments={**call.arguments, "system": "for big",
                                                   "messages": [], "tools": []}))  # fmt: skip
        return None


def test_another_model_gets_the_request_as_it_came_and_the_whole_chain(go, store) -> None:
    asked: list[Any] = []

    def model(*, model: str, system: Any, messages: Any, tools: Any) -> str:
        asked.append((model, system, messages))
        if model == "big":
            raise Lost
        return "hi"

    with Rein(plugins=[Prompts(), FallsBack({"big": "small"})], store=store) as rein:
        with rein.session() as session:
            message = {"role": "user", "parts": [("a", 1)]}
            assert go.run(rein, "model_call", model, model="big", messages=[message]) == "hi"
        assert asked == [("big", "for big", []), ("small", None, [message])]
        assert [e.view["name"] for e in of(rein, "intent", session.id)] == ["big", "small"]


def test_models_that_fall_back_on_each_other_come_to_an_end(go) -> None:
    asked: list[str] = []

    def model(*, model: str, **request: Any) -> str:
        asked.append(model)
        raise Lost

    with (
        Rein(plugins=[FallsBack({"a": "b", "b": "a"})]) as rein,
        rein.session(on_error="keep"),
        pytest.raises(Lost),
    ):
        go.run(rein, "model_call", model, model="a", messages=[])
    assert asked == ["a", "b"]


# nesting, options, usage


def test_a_call_inside_a_call_knows_its_parent(go) -> None:
    with Rein() as rein, rein.session() as session:

        def inner() -> int:
            return 1

        def outer() -> int:
            return rein.call(inner) + 1

        assert go.call(rein, outer) == 2
        first, second = of(rein, "intent", session.id)
    assert second.view["parent"] == first.call
    assert "parent" not in first.view
    assert [first.view["step"], second.view["step"]] == [1, 2]


def test_options_hold_for_the_calls_in_their_block(go) -> None:
    with Rein() as rein, rein.session() as session:
        with rein.options(labels={"team": "a"}):
            with rein.options(labels={"team": "b"}):
                go.call(rein, lambda: 1)
            go.call(rein, lambda: 1)
        go.call(rein, lambda: 1)
        labels = [e.view.get("labels") for e in of(rein, "intent", session.id)]
    assert labels == [{"team": "b"}, {"team": "a"}, None]


@pytest.mark.parametrize(
    "wrong", [{"timeout": 0}, {"timeout": "5"}, {"labels": {"a": 1}}, {"labels": "x"}], ids=repr
)
def test_options_are_checked(wrong) -> None:
    with Rein() as rein, pytest.raises(errors.ConfigError), rein.options(**wrong):
        raise AssertionError


@pytest.mark.parametrize("wrong", [{"cost": 0.5}, {"cost": "1"}, {"cost": -1}, {"usage": {"n": 1}},
                                   {"state": "free"}], ids=repr)  # fmt: skip
def test_a_measure_that_is_no_measure_is_charged_at_the_hold(go, store, wrong) -> None:
    class Bad(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Hold("money", 7, "usd", 100)

        def measure(self, call: Call, outcome: Any) -> Any:
            return Measured(**wrong)

    with Rein(plugins=[Bad()], store=store) as rein:
        with rein.session():
            assert go.call(rein, lambda: 1) == 1
        assert rein.store.balance("money").spent == 7


def test_an_error_that_cannot_be_printed_is_recorded(go, store) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def tool() -> None:
        raise Odd

    with Rein(store=store) as rein:
        with pytest.raises(Odd), rein.session(on_error="keep"):
            go.call(rein, tool)
        assert of(rein, "outcome")[0].view["error"]["type"] == "Odd"


def test_the_order_of_a_late_plan_is_kept_with_the_outcome(go, store) -> None:
    class Plans(Plugin):
        def on_rollback(self, call: Call, outcome: Any, cause: Any) -> Any:
            return Undo("unmake", {"n": outcome.value}) if call.name == "make" else None

    with Rein(plugins=[Plans()], store=store) as rein:
        undone: list[int] = []
        rein.declare("unmake", fn=undone.append)

        def make() -> int:
            return 7

        def lose() -> None:
            go.call(rein, make)
            raise Lost

        with pytest.raises(Lost), rein.session():
            lose()
        assert of(rein, "outcome")[0].view["plan"] == "unmake"


def test_calls_from_many_threads_have_their_own_steps(caplog) -> None:
    caplog.set_level(logging.ERROR)
    with Rein() as rein, rein.session() as session:
        call = session.bind(lambda: [rein.call(lambda: 1) for _ in range(20)])
        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        steps = [e.view["step"] for e in of(rein, "intent", session.id)]
    assert sorted(steps) == list(range(1, 161))
    assert not caplog.records


def test_replacing_a_result_does_not_change_the_stored_one(go, store) -> None:
    class Cleans(Plugin):
        def post_call(self, call: Call, outcome: Any) -> Any:
            return Replace("clean")

    with Rein(plugins=[Cleans()], store=store) as rein:
        with rein.session():
            assert go.call(rein, lambda: "raw") == "clean"
        assert rein.store.payload(of(rein, "outcome")[0].seq) == {"result": "raw"}
        assert rein.store.payload(of(rein, "amended")[0].seq) == {"result": "clean"}
