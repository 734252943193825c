"""The scripts count tests rightly, and fail closed where there is nothing to count."""

import importlib.util
import sys

import pytest


@pytest.fixture
def script(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "scripts"))

    def load(name):
        spec = importlib.util.spec_from_file_location(
            f"_script_{name}", root / f"scripts/{name}.py"
        )
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look it up
        spec.loader.exec_module(module)
        return module

    return load


def test_a_report_is_added_up(script, tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite tests="10" failures="2" errors="1" skipped="3"/>'
        '<testsuite tests="1" failures="0" errors="0" skipped="0"/></testsuites>'
    )
    test = script("test")
    assert str(test.count(report)) == "5 passed, 3 failed, 3 skipped"
    assert str(test.Count(2) + test.Count(1)) == "3 passed, 0 failed"


def test_a_run_without_a_report_is_a_failure(script, tmp_path):
    assert script("test").count(tmp_path / "absent.xml").failed == 1


def test_a_few_tests_of_the_sessions_that_name_some(script, monkeypatch, capsys):
    test = script("test")
    monkeypatch.setattr(test.environments, "ensure", lambda environment: environment.python)
    monkeypatch.setattr(
        test, "run", lambda environment, *_: (test.Count(len(environment.tests)), 0)
    )
    monkeypatch.setattr(sys, "argv", ["test.py", "--oldest", "--few", "--session", "langchain"])
    assert test.main() == 0
    few = test.environments.load()["langchain"].few
    assert capsys.readouterr().out.splitlines()[-1] == f"{len(few)} passed, 0 failed"


def test_an_environment_that_cannot_be_made_ends_the_run(script, monkeypatch):
    test = script("test")

    def ensure(environment):
        raise SystemExit(f"no {environment.name}")

    monkeypatch.setattr(test.environments, "ensure", ensure)
    monkeypatch.setattr(sys, "argv", ["test.py", "--session", "core"])
    with pytest.raises(SystemExit, match="no core"):
        test.main()


@pytest.mark.parametrize(("code", "failed"), [(0, 0), (1, 1), (5, 1)])
def test_a_session_that_ran_nothing_fails_the_whole(script, monkeypatch, capsys, code, failed):
    test = script("test")
    monkeypatch.setattr(test.environments, "ensure", lambda environment: environment.python)
    monkeypatch.setattr(test, "run", lambda *_: (test.Count(code == 0), code))
    monkeypatch.setattr(sys, "argv", ["test.py", "--session", "core"])
    assert test.main() == failed
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"{int(code == 0)} passed, 0 failed"


def test_a_long_module_is_named(script, monkeypatch, tmp_path, capsys):
    check = script("check")
    for root in ("core", "plugins", "integrations"):
        (tmp_path / root).mkdir()
    (tmp_path / "plugins" / "long.py").write_text("x = 1\n" * 401)
    (tmp_path / "core" / "fits.py").write_text("x = 1\n" * 400)
    monkeypatch.setattr(check, "ROOT", tmp_path)
    assert check.module_sizes() is False
    assert capsys.readouterr().out.startswith("plugins/long.py: 401 lines")


def test_every_session_has_requirements_and_tests(script, root):
    environments = script("environments")
    sessions = [env for env in environments.load().values() if env.tests]
    assert {"core", "langchain"} <= {env.name for env in sessions}
    for env in sessions:
        assert env.requirements.is_file()
        for path in (*env.tests, *env.few):
            assert (root / path).exists(), f"{env.name}: {path}"
    for env in environments.load(oldest=True).values():
        assert env.requirements.is_file() or not env.tests
