"""The shared fixtures do what other tests rely on."""

import os
import signal

import pytest


class Counter:
    def __init__(self):
        self.calls = []

    def call(self, fn, /, *args, **kwargs):
        self.calls.append("sync")
        return fn(*args, **kwargs)

    async def acall(self, fn, /, *args, **kwargs):
        self.calls.append("async")
        return fn(*args, **kwargs)


def test_go_takes_the_entry_of_its_mode(go):
    counter = Counter()
    assert go.call(counter, lambda a, *, b: a + b, 1, b=2) == 3
    assert go.run(counter, "call", int, "7") == 7
    assert counter.calls == [go.mode, go.mode]


def test_child_is_a_real_process_with_our_packages(child, tmp_path):
    process = child(
        "import os, sys, checkrein; print(os.getcwd(), os.environ['X'], sys.argv[1])",
        "arg",
        env={"X": "value"},
        cwd=tmp_path,
    )
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert out.split() == [str(tmp_path), "value", "arg"]


def test_child_can_be_killed(child):
    process = child("print('up', flush=True); input()")
    assert process.stdout.readline() == "up\n"
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("value", "message"), [("nonsense", "unknown extra"), ("crewai,langchain", "not installed")]
)
def test_a_required_extra_that_is_absent_is_an_error(child, root, value, message):
    # Whichever of the two is installed here, one of them is made unimportable.
    snippet = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda n, p=None: None if n in ('crewai', 'langchain') else real(n, p)\n"
        "import pytest; sys.exit(pytest.main(['-q', 'tests/test_conftest.py']))"
    )
    process = child(snippet, env={"CHECKREIN_REQUIRE": value}, cwd=root)
    out, err = process.communicate()
    assert process.returncode == pytest.ExitCode.USAGE_ERROR
    assert message in out + err
