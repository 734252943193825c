"""Installed plugins: found by entry point, loaded only by name, and whole or not at all."""

from __future__ import annotations

import importlib
import itertools
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from checkrein import Call, Deny, Plugin, Rein, Rewrite, errors
from checkrein.manager import available, build, load

GOOD = """
from checkrein import Deny, Plugin
class Good(Plugin):
    def __init__(self, limit: int = 1) -> None:
        self.limit = limit
    def pre_call(self, call):
        return Deny("above the limit") if call.arguments.get("n", 0) > self.limit else None
"""
BAD = "import a_module_that_is_not_there\n"
HALF = """
from checkrein import Plugin, hookimpl
class Half:
    @hookimpl
    def post_call(self, call, outcome):
        return None
    @hookimpl
    def pre_call(self, wrong_name):
        return None
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install tiny distributions: `site(dist, version, {entry: target}, {module: source})`."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(dist: str, version: str, entries: dict[str, str], modules: dict[str, str]) -> None:
        info = tmp_path / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        lines = "\n".join(f"{name} = {target}" for name, target in entries.items())
        (info / "entry_points.txt").write_text(f"[checkrein]\n{lines}\n")
        for module, source in modules.items():
            (tmp_path / f"{module}.py").write_text(source)
        importlib.invalidate_caches()

    yield install
    for name in [m for m in sys.modules if m.startswith("tiny_")]:
        del sys.modules[name]


@pytest.fixture
def three(site: Any) -> None:
    site("tiny-good", "1.2", {"tiny_good": "tiny_good:Good"}, {"tiny_good": GOOD})
    site("tiny-bad", "0.3", {"tiny_bad": "tiny_bad:Bad"}, {"tiny_bad": BAD})
    site("tiny-half", "2.0", {"tiny_half": "tiny_half:Half"}, {"tiny_half": HALF})


def test_installed_plugins_are_listed_and_none_is_imported(three) -> None:
    found = {a.name: (a.distribution, a.version) for a in available() if a.name.startswith("tiny")}
    assert found == {
        "tiny_good": ("tiny-good", "1.2"),
        "tiny_bad": ("tiny-bad", "0.3"),
        "tiny_half": ("tiny-half", "2.0"),
    }
    assert not [m for m in sys.modules if m.startswith("tiny_")]


def test_a_broken_neighbour_does_not_disturb_and_is_not_imported(three, go) -> None:
    with Rein(plugins=[("tiny_good", build("tiny_good", {"limit": 2}))]) as rein:
        with rein.session(on_error="keep"):
            assert go.call(rein, lambda n: n, 1) == 1
            with pytest.raises(errors.Denied) as denied:
                go.call(rein, lambda n: n, 3)
        assert denied.value.plugin == "tiny_good"
    assert "tiny_bad" not in sys.modules


def test_a_named_plugin_that_does_not_load_refuses_the_start(three) -> None:
    with pytest.raises(errors.PluginError, match=r"tiny-bad 0\.3 does not load: ModuleNotFound"):
        build("tiny_bad", {})
    with pytest.raises(errors.ConfigError, match="tiny_bad"):
        Rein.from_config({"plugins": {"tiny_good": {}, "tiny_bad": {}}})


def test_a_plugin_is_registered_whole_or_not_at_all(three) -> None:
    with pytest.raises(errors.PluginError, match="wrong_name"):
        Rein(plugins=[build("tiny_good", {}), build("tiny_half", {})])
    with Rein(plugins=[build("tiny_good", {})]) as rein:
        assert rein.plugins.order("pre_call") == ["good"]
        assert rein.plugins.order("post_call") == []


def test_names_and_keys_that_are_wrong_get_a_hint(three) -> None:
    with pytest.raises(errors.PluginError, match="did you mean 'tiny_good'"):
        load("tiny_goot")
    with pytest.raises(errors.PluginError, match="did you mean 'limit'"):
        build("tiny_good", {"limt": 3})


def test_two_distributions_that_offer_one_name_are_refused(three, site) -> None:
    site("tiny-other", "1", {"tiny_good": "tiny_other:Good"}, {"tiny_other": GOOD})
    with pytest.raises(errors.PluginError, match="offered twice"):
        load("tiny_good")


def test_a_constructor_that_fails_is_named(three, site) -> None:
    site("tiny-picky", "1", {"tiny_picky": "tiny_picky:make"},
         {"tiny_picky": "def make(n=0):\n    raise OSError('no file')\n"})  # fmt: skip
    with pytest.raises(errors.PluginError, match="tiny_picky: OSError"):
        build("tiny_picky", {"n": 1})


# order


class Verdict(Plugin):
    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict
        self.seen: list[Any] = []

    def pre_call(self, call: Call) -> Any:
        self.seen.append(dict(call.arguments))
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_deny_beats_allow_in_any_order_of_installation(go, order) -> None:
    ran: list[int] = []
    plugins = [Verdict(None), Verdict(Deny("no")), Verdict(RuntimeError())]
    with Rein(plugins=[plugins[i] for i in order]) as rein, rein.session(on_error="keep"):  # noqa: SIM117 - the order of endings is the point
        with pytest.raises(errors.Denied):
            go.call(rein, ran.append, 1)
    assert ran == []
    assert [len(p.seen) for p in plugins] == [1, 1, 1]


class Masks(Plugin):
    def pre_call(self, call: Call) -> Any:
        if call.arguments["text"] == "***":
            return None
        return Rewrite(call.replace(arguments={"text": "***"}))

    def view(self, call: Call, value: Any, sink: Any) -> Any:
        return "[MASKED]" if sink == "journal" else value


class Watches(Plugin):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_event(self, event: Any) -> None:
        self.seen.append(str(event.view))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_observers_see_what_is_masked_in_any_order(go, order, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    watches = Watches()
    plugins = [Masks(), watches]
    got: list[str] = []

    def tool(text: str) -> None:
        got.append(text)

    with Rein(plugins=[plugins[i] for i in order]) as rein, rein.session():
        go.call(rein, tool, "secret")
    assert got == ["***"]
    assert watches.seen
    assert not any("secret" in seen for seen in watches.seen)
