"""Files under a root, put back from copies that are named by their content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein import Rein, errors
from checkrein_plugins import connectors
from checkrein_plugins.connectors import Files


@pytest.fixture
def rein(tmp_path: Path) -> Iterator[Rein]:
    with Rein(store=f"sqlite:///{tmp_path}/s.db", on_error="keep") as made:
        yield made


def seen(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place in sorted(root.rglob("*")):
        name = str(place.relative_to(root))
        if name.split(os.sep, maxsplit=1)[0] != ".checkrein":
            mode = place.stat().st_mode & 0o7777
            found[name] = (mode, None if place.is_dir() else place.read_bytes())
    return found


def house(tmp_path: Path) -> Path:
    root = tmp_path / "house"
    (root / "sub").mkdir(parents=True)
    (root / "a").write_text("one")
    (root / "a").chmod(0o600)
    (root / "sub" / "b").write_bytes(b"\0\xff")
    return root


def test_every_change_is_taken_back(go: Any, rein: Rein, tmp_path: Path) -> None:
    root = house(tmp_path)
    before = seen(root)
    files = rein.wrap(Files(root), connector="files", table=connectors.FILES)
    with rein.session() as session:
        assert files.read("a") == b"one" and files.list() == ["a", "sub"]
        files.write("a", "two")
        files.write("new", b"new")
        files.append("a", "more")
        files.copy("a", "sub/c")
        files.move("sub/b", "a")
        files.mkdir("dir")
        files.chmod("a", 0o644)
        files.truncate("a", 1)
        files.delete("new")
        files.rmdir("dir")
        files.rmtree("sub")
    assert seen(root) == {"a": (0o644, b"\0")}
    report = go.run(rein, "rollback", session.id)
    assert report.complete and len(report.actions) == 11
    assert seen(root) == before
    assert (root / ".checkrein").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "sub/../../x", "out", ".checkrein", ".checkrein/ab/x", "a\0b"]
)
def test_nothing_outside_the_root_is_touched(rein: Rein, tmp_path: Path, path: str) -> None:
    root = house(tmp_path)
    (root / "out").symlink_to(tmp_path)
    files = rein.wrap(Files(root), connector="files", table=connectors.FILES)
    with rein.session():
        for act in (lambda: files.write(path, "x"), lambda: files.delete(path)):
            with pytest.raises(errors.CheckreinError):
                act()
    assert not (tmp_path / "x").exists()
    with pytest.raises(errors.ConfigError, match="no directory"):
        Files(tmp_path / "nowhere")


def test_a_copy_that_was_altered_is_not_put_back(rein: Rein, tmp_path: Path) -> None:
    root = house(tmp_path)
    files = rein.wrap(Files(root), connector="files", table=connectors.FILES)
    with rein.session() as session:
        files.write("a", "two")
    (copy,) = (root / ".checkrein").rglob("?" * 64)
    copy.write_text("evil")
    report = session.rollback()
    assert report is not None and report.actions[0].status == "failed"
    assert (root / "a").read_text() == "two"


NAMES = st.sampled_from(["a", "b", "sub/b", "sub/c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.binary(max_size=4)),
        st.tuples(st.just("append"), NAMES, st.binary(max_size=4)),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("move"), NAMES, NAMES),
        st.tuples(st.just("copy"), NAMES, NAMES),
        st.tuples(st.just("rmtree"), st.just("sub")),
        st.tuples(st.just("mkdir"), st.sampled_from(["sub", "d"])),
    ),
    max_size=8,
)


@settings(max_examples=40)
@given(steps=STEPS)
def test_any_steps_are_taken_back(tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
    root = house(tmp_path_factory.mktemp("any"))
    before = seen(root)
    with Rein(on_error="keep") as rein:
        files: Any = rein.wrap(Files(root), connector="files", table=connectors.FILES)
        with rein.session() as session:
            for name, *arguments in steps:
                try:
                    getattr(files, name)(*arguments)
                except (OSError, errors.CheckreinError):
                    continue
        report = session.rollback()
    # What raised may have acted: to put back what stood there is right in either case.
    assert report is not None and report.complete, report.summary()
    assert seen(root) == before
