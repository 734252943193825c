"""The pytest plugin: fixtures, assertions over the journal, and the trace, in a real run."""

import subprocess
import sys

import pytest

from checkrein import Ask, Deny, Plugin, Rein, Rejected
from checkrein.errors import Denied
from checkrein.testing import Effects, Told


def run_pytest(folder, test, *options, conftest=""):
    (folder / "test_it.py").write_text(test)
    (folder / "conftest.py").write_text(conftest)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "checkrein.testing.pytest", "-q",
         "-p", "no:cacheprovider", *options],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


GOOD = """
import urllib.request, json

def test_effects_are_undone(rein, effects, told, clock):
    @rein.tool(undo=lambda order: effects.undo("pay", order=order), name="pay")
    def pay(order):
        effects.do("pay", order=order)

    try:
        with rein.session():
            pay("o1")
            raise RuntimeError
    except RuntimeError:
        pass
    assert effects == ["pay", "-pay"]
    told.called("pay", times=1, order="o1")
    told.undone("pay", times=1)
    assert clock() == clock()

def test_each_test_has_a_rein_of_its_own(told, effects):
    told.not_called("pay")
    assert not effects

def test_a_model_says_what_it_is_told(scripted_model):
    server = scripted_model("openai", ["hello"])
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    request = urllib.request.Request(
        server.url + "/chat/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert json.load(answer)["choices"][0]["message"]["content"] == "hello"
"""


def test_the_fixtures_work_in_a_run_of_pytest(tmp_path):
    code, printed = run_pytest(tmp_path, GOOD)
    assert code == 0, printed
    assert "3 passed" in printed
    assert "checkrein:" not in printed


def test_the_trace_shows_each_calls_life(tmp_path):
    code, printed = run_pytest(tmp_path, GOOD, "--checkrein-trace")
    assert code == 0, printed
    assert "checkrein: test_it.py::test_effects_are_undone" in printed
    assert "1. pay(order='o1') -> done" in printed
    assert "undo pay.undo" in printed


def test_a_suites_own_policy_is_a_fixture(tmp_path):
    conftest = """
import pytest
from checkrein import Deny, Plugin

class Never(Plugin):
    def pre_call(self, call):
        return Deny("never", rule="never")

@pytest.fixture
def rein_settings():
    return {"plugins": [Never()]}
"""
    test = """
import pytest
from checkrein.errors import Denied

def test_denied(rein, told):
    with rein.session(on_error="keep"), pytest.raises(Denied):
        rein.call(max, 1, 2)
    told.denied("max", by="never")

def test_fails(rein, told):
    told.called("max")
"""
    code, printed = run_pytest(tmp_path, test, conftest=conftest)
    assert code == 1
    assert "1 failed, 1 passed" in printed
    assert "max() did not run; this happened:" in printed


def test_without_the_option_nothing_is_there(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(rein): pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "fixture 'rein' not found" in done.stdout


def test_an_unknown_framework_is_named(tmp_path):
    code, printed = run_pytest(
        tmp_path, "def test_it(scripted_model):\n    scripted_model('basic', [])\n"
    )
    assert code == 1
    assert "no scripted model for 'basic'; there are:" in printed
    assert "openai" in printed


class Guard(Plugin):
    def pre_call(self, call):
        if call.name == "wipe":
            return Deny("not today", rule="no-wiping")
        return Ask("large", rule="limit") if call.name == "big" else None

    def on_approval(self, call, request):
        return Rejected("boss", "too much")


@pytest.fixture
def played():
    effects = Effects()
    with Rein(plugins=[Guard()], store="memory:") as rein:

        @rein.tool(undo=lambda order: effects.undo("pay", order=order), name="pay")
        def pay(order):
            effects.do("pay", order=order)

        @rein.tool(name="wipe")
        def wipe():
            effects.do("wipe")

        @rein.tool(name="big")
        def big():
            effects.do("big")

        with rein.session(on_error="keep") as session:
            pay("o1")
            pay("o2")
            for tool in (wipe, big):
                with pytest.raises(Denied):
                    tool()
        session.rollback()
        yield Told(rein)


def test_what_happened_can_be_asserted(played):
    assert played.called("pay", order="o2").state == "done"
    played.called("pay", times=2)
    played.called("big", times=0)
    played.order("pay", "pay")
    played.not_called("wipe")
    played.denied("wipe", by="guard")
    played.asked("big")
    played.undone("pay", times=2)
    played.spent(at_most=0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda told: told.called("pay", order="o3"), "pay(order='o3') did not run"),
        (lambda told: told.called("pay", times=1), "pay() ran 2 times, not 1"),
        (lambda told: told.not_called("pay"), "pay() ran 2 times"),
        (lambda told: told.denied("pay"), "pay() was not denied"),
        (lambda told: told.denied("wipe", by="budget"), "wipe() was not denied by budget"),
        (lambda told: told.order("pay", "wipe"), "['wipe'] did not run in the order"),
        (lambda told: told.asked("pay"), "nobody was asked about pay"),
        (lambda told: told.undone("wipe"), "wipe was not undone"),
        (lambda told: told.undone("pay", times=1), "pay was undone 2 times, not 1"),
    ],
)  # fmt: skip
def test_a_wrong_assertion_fails_and_tells_the_story(played, wrong, said):
    with pytest.raises(AssertionError) as caught:
        wrong(played)
    assert str(caught.value).startswith(said)
    assert "1. pay(order='o1') -> done" in str(caught.value)
