"""What may be a hook, and in which ways one may fail."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from checkrein import Answer, Ask, Call, Deny, Hold, Plugin, Rein, Rewrite, errors, hookimpl
from checkrein.entry import Entry


def run(go: Any, *plugins: Any, **settings: Any) -> tuple[list[int], Any]:
    """(effects, result or error)."""
    effects: list[int] = []

    def tool(n: int = 1) -> int:
        effects.append(n)
        return n

    with Rein(plugins=plugins, **settings) as rein:
        try:
            with rein.session(on_error="keep"):
                return effects, go.call(rein, tool)
        except errors.CheckreinError as error:
            return effects, error


# ways to be one


def test_an_undecorated_method_of_a_plugin_is_a_hook(go) -> None:
    class No(Plugin):
        def pre_call(self, call: Call) -> Any:
            return Deny("no")

    effects, error = run(go, No())
    assert effects == []
    assert error.plugin == "no"


def test_a_marked_method_of_anything_is_a_hook(go) -> None:
    class No:
        @hookimpl
        def pre_call(self, call: Call) -> Any:
            return Deny("no")

    assert run(go, No())[0] == []


def test_a_module_may_be_a_plugin(go) -> None:
    import types

    module = types.ModuleType("guard")

    @hookimpl
    def pre_call(call: Call) -> Any:
        return Deny("no")

    module.pre_call = pre_call  # type: ignore[attr-defined]
    assert run(go, module)[0] == []


def test_a_callable_object_may_be_a_hook(go) -> None:
    class Guard:
        def __call__(self, call: Call) -> Any:
            return Deny("no")

    class No(Plugin):
        pre_call = None  # type: ignore[assignment]

        def __init__(self) -> None:
            self.pre_call = Guard()

    assert run(go, No())[0] == []


def test_an_async_hook_may_deny(go) -> None:
    class No(Plugin):
        async def pre_call(self, call: Call) -> Any:
            await asyncio.sleep(0)
            return Deny("no")

    assert run(go, No())[0] == []


def test_a_hook_names_only_what_it_needs(go) -> None:
    seen: list[Any] = []

    class Looks(Plugin):
        def pre_call(self) -> None:  # type: ignore[override]
            seen.append("pre")

        def post_call(self, outcome: Any) -> None:  # type: ignore[override]
            seen.append(outcome.value)

    assert run(go, Looks()) == ([1], 1)
    assert seen == ["pre", 1]


def test_hooks_run_in_the_order_of_the_list_then_by_their_marks(go) -> None:
    seen: list[str] = []

    def plugin(name: str, **marks: bool) -> object:
        class Looks:
            @hookimpl(**marks)
            def pre_call(self, call: Call) -> None:
                seen.append(name)

        return (name, Looks())

    plugins = [
        plugin("a"),
        plugin("last", trylast=True),
        plugin("b"),
        plugin("first", tryfirst=True),
    ]
    with Rein(plugins=plugins) as rein:
        assert rein.plugins.order("pre_call") == ["first", "a", "b", "last"]
        with rein.session():
            go.call(rein, lambda: 1)
    assert seen == ["first", "a", "b", "last"]


# refused at the start


class Nothing(Plugin):
    pass


class Misspelt(Plugin):
    def pre_cal(self, call: Call) -> Any:
        return Deny("no")


class MisspeltMark:
    @hookimpl
    def pre_cal(self, call: Call) -> Any:
        return Deny("no")


class WrongParameter(Plugin):
    def pre_call(self, the_call: Call) -> Any:  # type: ignore[override]
        return Deny("no")


class OneTooMany(Plugin):
    def pre_call(self, call: Call, extra: int) -> Any:  # type: ignore[override]
        return Deny("no")


class Default(Plugin):
    def pre_call(self, call: Call | None = None) -> Any:  # type: ignore[override]
        return Deny("no") if call is not None else None


class KeywordOnly(Plugin):
    def pre_call(self, *, call: Call) -> Any:  # type: ignore[override]
        return Deny("no")


class Wrapper:
    @hookimpl(wrapper=True)
    def pre_call(self, call: Call) -> Any:
        return (yield)


class OldWrapper(Plugin):
    @hookimpl(hookwrapper=True)
    def post_call(self, call: Call, outcome: Any) -> Any:
        yield


class HiddenWrapper:
    @hookimpl(wrapper=True, specname="pre_call")
    def check(self, call: Call) -> Any:
        return (yield)


class Unmarked:
    """One hook is marked, and the guard was forgotten."""

    @hookimpl
    def post_call(self, call: Call, outcome: Any) -> Any:
        return None

    def pre_call(self, call: Call) -> Any:
        return Deny("no")


class NoMeaning(Plugin):
    on_failure = "ignore"

    def pre_call(self, call: Call) -> Any:
        return None


class NoTime(Plugin):
    timeout = 0

    def pre_call(self, call: Call) -> Any:
        return None


class NoLoop(Plugin):
    loop = "mine"

    def pre_call(self, call: Call) -> Any:
        return None


@pytest.mark.parametrize(
    ("plugin", "told"),
    [
        (Nothing(), "no hook"), (object(), "no hook"), ("budget", "no hook"), (7, "no hook"),
        (Misspelt(), "'pre_call'"), (MisspeltMark(), "pre_cal"),
        (WrongParameter(), "the_call"), (OneTooMany(), "extra"),
        (Default(), "'call'"), (KeywordOnly(), "'call'"),
        (Wrapper(), "wrapper"), (OldWrapper(), "wrapper"), (HiddenWrapper(), "wrapper"),
        (Unmarked(), "@hookimpl"), (Misspelt, "class"), (NoMeaning(), "on_failure"),
        (NoTime(), "timeout"), (NoLoop(), "loop"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)  # fmt: skip
def test_a_plugin_that_would_not_guard_is_refused_at_the_start(plugin, told) -> None:
    with pytest.raises(errors.PluginError, match=told):
        Rein(plugins=[plugin])


def test_the_same_instance_twice_is_refused_and_two_of_a_class_are_not() -> None:
    class Looks(Plugin):
        def pre_call(self, call: Call) -> Any:
            return None

    one = Looks()
    with pytest.raises(errors.PluginError, match="twice"):
        Rein(plugins=[one, one])
    with Rein(plugins=[("looks-2", Looks()), one, Looks()]) as rein:
        assert rein.plugins.order("pre_call") == ["looks-2", "looks", "looks-3"]


def test_a_plugin_that_does_not_start_refuses_the_rein(tmp_path) -> None:
    closed: list[str] = []

    class Fine(Plugin):
        def start(self, rein: Any) -> None:
            return None

        def close(self) -> None:
            closed.append("fine")

    class Broken(Plugin):
        async def start(self, rein: Any) -> None:
            raise OSError("no key")

    with pytest.raises(errors.ConfigError, match="broken.*OSError"):  # noqa: RUF043 - a pattern
        Rein(plugins=[Fine(), Broken()], store=f"sqlite:///{tmp_path}/s.db")
    assert closed == ["fine"]


# failing


def test_a_hook_that_hangs_in_await_denies(go) -> None:
    class Hangs(Plugin):
        async def pre_call(self, call: Call) -> Any:
            await asyncio.sleep(600)

    effects, error = run(go, Hangs(), hook_timeout=0.05)
    assert effects == []
    assert error.code == "check_failed"
    assert "no answer" in error.reason


def test_a_hook_that_does_not_let_itself_be_cancelled_denies(go) -> None:
    end = threading.Event()

    class Hangs(Plugin):
        async def pre_call(self, call: Call) -> Any:
            while not end.is_set():
                try:
                    await asyncio.sleep(0.05)
                except asyncio.CancelledError:
                    continue

    stop = threading.Timer(0.4, end.set)
    stop.start()
    try:
        effects, error = run(go, Hangs(), hook_timeout=0.05)
    finally:
        stop.join()
    assert effects == []
    assert error.code == "check_failed"


def test_a_sync_hook_that_hangs_denies_where_a_timeout_is_declared(go) -> None:
    end = threading.Event()

    class Hangs(Plugin):
        timeout = 0.05

        def pre_call(self, call: Call) -> Any:
            end.wait(60)

    effects, error = run(go, Hangs())
    end.set()
    assert effects == []
    assert error.code == "check_failed"


@pytest.mark.parametrize("loop", ["caller", "own"])
def test_an_async_hook_with_a_declared_timeout_runs_where_it_says(go, loop) -> None:
    where: list[Any] = []

    class Looks(Plugin):
        timeout = 30

        async def pre_call(self, call: Call) -> Any:
            where.append(threading.current_thread().name)

    Looks.loop = loop
    assert run(go, Looks()) == ([1], 1)
    portal = go.mode == "sync" or loop == "own"
    assert (where == ["checkrein-portal"]) is portal


def test_hooks_share_the_loop_of_an_async_caller() -> None:
    """What is bound to the caller's loop can be used by a hook."""

    class Locks(Plugin):
        def __init__(self) -> None:
            self.lock = asyncio.Lock()

        async def pre_call(self, call: Call) -> Any:
            async with self.lock:
                await asyncio.sleep(0)

    async def main() -> int:
        with Rein(plugins=[Locks()]) as rein:
            async with rein.session():
                results = await asyncio.gather(*(rein.acall(lambda: 1) for _ in range(5)))
        return sum(results)

    assert asyncio.run(main()) == 5


def test_a_plugin_with_a_loop_of_its_own_serves_sync_and_async_callers() -> None:
    class Own(Plugin):
        loop = "own"

        def __init__(self) -> None:
            self.lock: asyncio.Lock | None = None

        async def pre_call(self, call: Call) -> Any:
            self.lock = self.lock or asyncio.Lock()
            async with self.lock:
                await asyncio.sleep(0.001)

    with Rein(plugins=[Own()]) as rein:

        async def main() -> int:
            results = await asyncio.gather(*(rein.acall(lambda: 1) for _ in range(5)))
            return sum(results)

        with rein.session():
            assert rein.call(lambda: 1) == 1
            assert asyncio.run(main()) == 5
            assert rein.call(lambda: 1) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_hook_goes_on_and_nothing_runs(go, error) -> None:
    class Stops(Plugin):
        def pre_call(self, call: Call) -> Any:
            raise error

    effects: list[int] = []
    with Rein(plugins=[Stops()]) as rein, pytest.raises(error), rein.session():
        go.call(rein, effects.append, 1)
    assert effects == []


def test_observers_do_not_disturb_each_other_or_the_call(go, caplog) -> None:
    seen: list[str] = []

    class Breaks(Plugin):
        def on_event(self, event: Any) -> Any:
            raise ValueError("secret")

    class BreaksLater(Plugin):
        async def on_event(self, event: Any) -> Any:
            raise ValueError("secret")

    class Sees(Plugin):
        def on_event(self, event: Any) -> Any:
            seen.append(event.kind)

    _effects, result = run(go, Breaks(), BreaksLater(), Sees())
    assert result == 1
    assert seen == ["session_started", "intent", "outcome", "session_ended"]
    assert "ValueError" in caplog.text
    assert "breakslater" in caplog.text
    assert "secret" not in caplog.text


def test_a_view_that_fails_hides_the_value(go) -> None:
    class Breaks(Plugin):
        def view(self, call: Call, value: Any, sink: str) -> Any:
            raise ValueError

    with Rein(plugins=[Breaks()]) as rein, rein.session():
        assert go.call(rein, lambda text: text, "secret") == "secret"
        for event in rein.store.events():
            assert "secret" not in str(event.view)
        assert rein.store.events(kinds=("intent",))[0].view["arguments"] == "[unviewable]"


# asking somebody outside


class Outside(Plugin):
    external = True

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict
        self.asked: list[Any] = []

    def pre_call(self, call: Call) -> Any:
        self.asked.append(dict(call.arguments))
        return self.verdict


class Edits(Plugin):
    """Rewrites once, so that everybody before it is asked again."""

    def pre_call(self, call: Call) -> Any:
        if call.arguments["n"] == 2:
            return None
        return Rewrite(call.replace(arguments={"n": 2}))


@pytest.mark.parametrize("verdict", [None, Deny("no", rule="r"), (Hold("a", 1, "calls", 9),),
                                     Answer({"cached": (1, 2)}), Answer(object())], ids=repr)  # fmt: skip  # noqa: E501 - one sentence
def test_an_outside_verdict_is_asked_for_once_for_each_call(go, verdict) -> None:
    outside = Outside(verdict)
    _effects, result = run(go, Edits(), outside)
    assert outside.asked == [{"n": 2}]
    if isinstance(verdict, Answer):
        assert result is verdict.value or result == verdict.value


def test_an_outside_verdict_is_stored_for_the_key_of_the_call(go, tmp_path) -> None:
    """A framework that enters a paused call again does not pay for the verdict again."""
    outside = Outside((Ask("sure?"), Hold("a", 1, "calls", 9)))
    effects: list[int] = []

    def enter(rein: Rein) -> Any:
        tool = rein.declare("t", fn=effects.append)
        entry = Entry(tool, {"object": 1}, rein.session(id="s"), call_id="key", keyed=True)
        with rein.session(id="s", agent="a", wait="suspend") as entry.session:
            return rein.enter(entry) if go.mode == "sync" else asyncio.run(rein.aenter(entry))

    url = f"sqlite:///{tmp_path}/s.db"
    with Rein(plugins=[outside], store=url) as rein:
        with pytest.raises(errors.ApprovalPending) as pending:
            enter(rein)
        rein.approvals.approve(pending.value.token, by="anna")
    with Rein(plugins=[outside], store=url) as rein:
        enter(rein)
    assert effects == [1]
    assert len(outside.asked) == 1
