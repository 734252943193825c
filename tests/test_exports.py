"""The public names are these, they say what they are for, and importing them stays light."""

import inspect
import json

import pytest

import checkrein
from checkrein import errors, hooks

CORE = """
Always Rein Plugin hookimpl Call Outcome Rewrite Deny Ask Answer Hold Replace Retry Fallback
Approved Rejected Undo Skip Unchecked Present Absent Measured StreamFilter ToolInfo Usage Session
Spend errors
""".split()
HEAVY = """
asyncio pydantic sqlite3 typer rich click ruamel re2 genai_prices jsonschema_rs simpleeval
opentelemetry.sdk cryptography langchain langchain_core langgraph checkrein_plugins
checkrein_integrations checkrein.cli checkrein.testing checkrein.store.sqlite
""".split()


def test_the_public_names_are_these():
    assert sorted(checkrein.__all__) == sorted([*CORE, "__version__"])
    assert set(CORE) <= set(dir(checkrein))


@pytest.mark.parametrize("name", CORE)
def test_every_public_name_says_what_it_is_for(name):
    value = getattr(checkrein, name)
    if name != "hookimpl":
        assert value.__doc__
        assert not value.__doc__.startswith(f"{name}("), "only what dataclass wrote"


def test_importing_loads_nothing_heavy(child):
    snippet = "import sys, json, checkrein; print(json.dumps(sorted(sys.modules)))"
    out, err = child(snippet).communicate()
    assert err == ""
    assert not set(HEAVY) & set(json.loads(out))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = checkrein.no_such_name


def subclasses(cls):
    for sub in cls.__subclasses__():
        yield sub
        yield from subclasses(sub)


def test_the_error_tree_is_documented_whole():
    ours = [e for e in subclasses(errors.CheckreinError) if e.__module__ == "checkrein.errors"]
    assert len(ours) > 10
    for error in ours:
        assert error.__name__ in errors.__doc__, f"{error.__name__} is missing in the tree"
        assert inspect.getdoc(error)


def test_the_base_class_has_every_hook_with_the_specified_arguments():
    for name in hooks.HOOKS:
        spec = inspect.signature(getattr(hooks.Spec, name))
        base = inspect.signature(getattr(hooks.Plugin, name))
        assert list(spec.parameters) == list(base.parameters), name
        assert getattr(hooks.Plugin, name).__doc__
