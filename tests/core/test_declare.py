"""Declarations: what does not fit is refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Rein
from checkrein.errors import ConfigError


def plain(name: str, size: int = 1) -> int:
    return size


def generator() -> Any:
    yield 1


async def agenerator() -> Any:
    yield 1


MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"undo": lambda nam: None}, "takes 'nam'"),
    ({"undo": "delete(result.id, nope=name)"}, "has no parameter 'nope'"),
    ({"undo": "delete(result.id, name, size)"}, "takes 2 by position"),
    ({"undo": "delete(id=result.id, id=name)"}, "given twice"),
    ({"undo": "delete(result.id, id=name)"}, "given twice"),
    ({"undo": "delete()"}, "needs 'id'"),
    ({"undo": "delete(nam)"}, "neither"),
    ({"undo": "delete(result.pay())"}, "is not a path"),
    ({"undo": "delete(result[name])"}, "is not a path"),
    ({"undo": "delete(*name)"}, "is not a path"),
    ({"undo": "delete(**name)"}, r"\*\* is not allowed"),
    ({"undo": "delete(result."}, "not NAME"),
    ({"undo": "delete(a)(b)"}, "NAME"),
    ({"undo": "(name)"}, "NAME"),
    ({"undo": 3}, "undo must be"),
    ({"undo": generator}, "generator"),
    ({"undo": agenerator}, "generator"),
    ({"probe": lambda nam: True}, "takes 'nam'"),
    ({"probe": generator}, "probe must be"),
    ({"probe": "name"}, "probe must be"),
    ({"undo": lambda name: None, "opaque": ["name"]}, "opaque"),
    ({"undo": "delete(name)", "opaque": ["name"]}, "opaque"),
    ({"probe": lambda name: None, "opaque": ["name"]}, "opaque"),
    ({"opaque": ["nam"]}, "does not exist"),
    ({"opaque": "name"}, "list of names"),
    ({"timeout": 0}, "timeout"),
    ({"settle_time": -1}, "settle_time"),
    ({"effect": "delete"}, "effect"),
    ({"timeout": 1, "thread_affine": True}, "thread_affine"),
    ({"und": plain}, "unknown setting"),
]


@pytest.mark.parametrize(("settings", "why"), MISFITS, ids=lambda v: str(v)[:40])
def test_misfits(settings: dict[str, Any], why: str) -> None:
    with Rein() as rein:
        rein.tool(lambda id, extra="": None, name="delete")
        with pytest.raises(ConfigError, match=why):
            rein.tool(plain, **settings)
        # And nothing of it stayed: the right declaration is taken.
        rein.tool(plain, undo=lambda name: None)


@pytest.mark.parametrize("name", ["result", "call", "key"])
def test_names_that_undos_are_given(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def act({name}): return {name}", scope)
    with Rein() as rein:
        with pytest.raises(ConfigError, match=f"parameter named '{name}'"):
            rein.tool(scope["act"], undo=lambda: None)
        with pytest.raises(ConfigError, match=f"parameter named '{name}'"):
            rein.tool(scope["act"], probe=lambda: True)
        # Without an undo nothing is given, so nothing collides.
        assert rein.tool(scope["act"])(3) == 3


def test_a_template_tells_a_parameter_named_key_from_the_key() -> None:
    seen: list[Any] = []
    with Rein(on_error="keep") as rein:
        rein.tool(seen.append, name="store.remove")
        put = rein.tool(lambda key, value: None, name="store.put", undo="store.remove(key)")
        with rein.session() as session:
            put("colour", "red")
        report = rein.rollback(session.id)
    assert report is not None and report.complete and seen == ["colour"]


@pytest.mark.parametrize("by", ["name", "template"])
def test_an_undo_declared_later_is_checked_then(by: str) -> None:
    with Rein() as rein:
        undo = "remove" if by == "name" else "remove(name)"
        rein.tool(plain, name="create", undo=undo)
        with pytest.raises(ConfigError, match="'other'"):
            rein.tool(lambda name, other: None, name="remove")
        rein.tool(lambda name: None, name="remove")


def test_two_tools_of_one_name() -> None:
    with Rein() as rein:
        rein.tool(plain, name="act")
        with pytest.raises(ConfigError, match="declared twice"):
            rein.tool(lambda: None, name="act")
        with pytest.raises(ConfigError, match="declared twice"):
            rein.declare("act", effect="read")


def test_the_name_of_an_undo_may_be_taken() -> None:
    with Rein() as rein:
        rein.tool(plain, name="act.undo")
        with pytest.raises(ConfigError, match=r"act\.undo.*taken"):
            rein.tool(plain, name="act", undo=lambda name: None)


def test_declared_by_name_then_bound_to_a_function() -> None:
    """Settings apply whether the declaration comes before the function or after it."""
    seen: list[Any] = []

    def create(name: str) -> dict[str, str]:
        return {"id": name.upper()}

    for order in ("before", "after"):
        with Rein(on_error="keep") as rein:
            if order == "before":
                rein.declare("create", undo=lambda result: seen.append(result))
            else:
                with rein.session():
                    rein.call(create, "early")
                rein.declare("create", undo=lambda result: seen.append(result))
            with rein.session() as session:
                rein.call(create, order)
            report = rein.rollback(session.id)
            assert report is not None and report.complete
    assert seen == [{"id": "BEFORE"}, {"id": "AFTER"}]


def test_a_declaration_that_does_not_fit_its_function() -> None:
    with Rein() as rein:
        rein.declare("create", undo=lambda nam: None)
        with rein.session(), pytest.raises(ConfigError, match="'nam'"):
            rein.call(_named("create"), "x")


def _named(name: str) -> Callable[..., Any]:
    def fn(size: str) -> None:
        raise AssertionError("it ran")

    fn.__name__ = name
    return fn


def test_a_twin_of_another_rein_can_be_an_undo() -> None:
    seen: list[str] = []
    with Rein() as other, Rein(on_error="keep") as rein:
        remove = other.tool(lambda name: seen.append(name), name="remove")
        create = rein.tool(lambda name: None, name="create", undo=remove)
        with rein.session() as session:
            create("a")
        report = rein.rollback(session.id)
        assert report is not None and report.complete and seen == ["a"]
