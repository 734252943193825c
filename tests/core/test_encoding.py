"""Arguments and results that are no plain data."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import Any

import pytest

from checkrein import Plugin, Rein, Replace, errors

SURROGATE = "caf\udce9"


@pytest.fixture(params=["memory:", "sqlite"])
def store(request, tmp_path) -> str:
    return f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.param


def ran(rein: Rein) -> list[Any]:
    return rein.store.events(kinds=("intent",))


@pytest.mark.parametrize("bad", [object(), threading.Lock(), open, [1, {"x": object()}]],
                         ids=["object", "lock", "function", "nested"])  # fmt: skip
def test_an_argument_that_cannot_be_recorded_is_refused_by_its_name(go, store, bad) -> None:
    effects: list[int] = []

    def tool(first: int, second: Any) -> None:
        effects.append(1)

    with Rein(store=store) as rein, rein.session(on_error="keep"):
        with pytest.raises(errors.Unencodable, match="^second") as refused:  # noqa: RUF043 - a pattern
            go.call(rein, tool, 1, bad)
        assert refused.value.path.startswith("second")
        assert isinstance(refused.value, TypeError)
        assert not ran(rein)
    assert effects == []


def test_text_that_has_no_utf8_form_never_breaks_what_has_run(go, store) -> None:
    """As argument it is refused or recorded; as result or in an error it fails no call."""
    effects: list[str] = []

    def tool(name: str) -> str:
        effects.append(name)
        if name == "raise":
            raise OSError(SURROGATE)
        return SURROGATE

    with Rein(store=store) as rein, rein.session(on_error="keep"):
        assert go.call(rein, tool, "x") == SURROGATE
        with pytest.raises(OSError):
            go.call(rein, tool, "raise")
        assert [e.view["state"] for e in rein.store.events(kinds=("outcome",))] == [
            "done", "unknown"
        ]  # fmt: skip
        try:
            assert go.call(rein, tool, SURROGATE) == SURROGATE
        except errors.Unencodable as error:
            assert "name" in str(error)  # noqa: PT017 - one of several endings
            assert effects == ["x", "raise"]


@pytest.mark.parametrize("value", [object(), {"x": threading.Lock()}, (n for n in "a"), SURROGATE,
                                   {"a": [SURROGATE]}, float("nan"), 10**400], ids=repr)  # fmt: skip  # noqa: E501 - one sentence
def test_a_result_of_any_kind_reaches_the_caller(go, store, value) -> None:
    with Rein(store=store) as rein, rein.session():
        assert go.call(rein, lambda: value) is value
        (outcome,) = rein.store.events(kinds=("outcome",))
        assert outcome.view["state"] == "done"


def test_a_result_whose_parts_raise_reaches_the_caller(go, store) -> None:
    class Odd:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __repr__(self) -> str:
            raise RuntimeError

    odd = Odd()
    with Rein(store=store) as rein:
        tool = rein.tool(lambda: odd, name="odd", undo="unmake(id=result.id)")
        rein.declare("unmake", fn=lambda id: None)
        with rein.session():
            assert go.call(rein, tool) is odd
        (outcome,) = rein.store.events(kinds=("outcome",))
        assert outcome.view["state"] == "done"
        assert "not_undoable" in outcome.view


def test_a_replacement_of_any_kind_reaches_the_caller(go, store) -> None:
    class Replaces(Plugin):
        def post_call(self, call: Any, outcome: Any) -> Any:
            return Replace(SURROGATE if outcome.value == 1 else len)

    with Rein(plugins=[Replaces()], store=store) as rein, rein.session():
        assert go.call(rein, lambda: 1) == SURROGATE
        assert go.call(rein, lambda: 2) is len


def test_exact_values_arrive_as_they_were(go, store) -> None:
    got: list[Any] = []
    given = [(1, 2), {3}, b"x", Decimal("1.10"), {1: "a"}, 10**40]
    with Rein(store=store) as rein, rein.session():
        go.call(rein, got.append, given)
    assert got == [given]
    assert [type(v) for v in got[0]] == [type(v) for v in given]


def test_opaque_arguments_go_by_reference(go, store) -> None:
    handle = object()
    got: list[Any] = []
    with Rein(store=store) as rein, rein.session():

        @rein.tool(opaque=("handle",))
        def use(handle: object, n: int) -> None:
            got.append((handle is the_handle, n))

        the_handle = handle
        go.call(rein, use, handle, 1)
        (intent,) = ran(rein)
        assert "object" in str(intent.view["arguments"]["handle"])
    assert got == [(True, 1)]


def test_names_of_arguments_that_are_no_names(go, store) -> None:
    with Rein(store=store) as rein, rein.session(on_error="keep"):

        def tool(**more: Any) -> Any:
            return more

        assert go.call(rein, tool, **{"a b": 1, "class": 2}) == {"a b": 1, "class": 2}
        assert go.call(rein, tool, **{"$cr": 1}) == {"$cr": 1}
