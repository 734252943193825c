"""`write_plugin` writes a distribution, or nothing at all."""

import tomllib

import pytest

from checkrein.cli._new_plugin import write_plugin
from checkrein.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "snake", "camel"),
    [
        ("quiet-hours", "quiet_hours", "QuietHours"),
        ("checkrein-Quiet hours", "quiet_hours", "QuietHours"),
        ("pii2", "pii2", "Pii2"),
    ],
)
def test_names_are_made_to_fit(tmp_path, name, snake, camel):
    write_plugin(name, tmp_path / "new")
    project = tomllib.loads((tmp_path / "new" / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["name"] == f"checkrein-{snake.replace('_', '-')}"
    assert project["project"]["entry-points"]["checkrein"] == {snake: f"checkrein_{snake}:{camel}"}
    assert f"class {camel}(Plugin)" in (tmp_path / "new" / f"checkrein_{snake}.py").read_text()


@pytest.mark.parametrize("name", ["", "-", "9lives", "a/b", "../up", "class", "naïve", "x."])
def test_a_name_that_cannot_be_used_writes_nothing(tmp_path, name):
    with pytest.raises(ConfigError, match="plugin name"):
        write_plugin(name, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(ConfigError, match="not empty"):
        write_plugin("quiet-hours", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(ConfigError, match="not empty"):
        write_plugin("quiet-hours", tmp_path / "mine.txt")


def test_its_own_test_passes(child, tmp_path):
    written = write_plugin("quiet-hours", tmp_path / "new")
    assert all(path.is_file() for path in written)
    process = child(
        "import sys, pytest; sys.path.insert(0, '.'); sys.exit(pytest.main(['-q', 'tests']))",
        cwd=tmp_path / "new",
    )
    out, err = process.communicate()
    assert process.returncode == 0, out + err
