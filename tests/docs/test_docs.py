"""The documents hold: their Python runs, their TOML parses, their links lead somewhere.

A block ```` ```python ```` is a whole program and runs in a process of its own, in an empty
folder. A block ```` ```python continued ```` runs after those that it continues. Files in
examples/ run the same way.
"""

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from checkrein import hooks, verdicts

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
NEEDS = {
    "langchain": r"langchain\w*|langgraph\w*|checkrein_integrations\.langchain",
    "crewai": r"crewai\w*|checkrein_integrations\.crewai",
    "openai": r"openai|checkrein_integrations\.openai",
    "openai-agents": r"agents|checkrein_integrations\.openai_agents",
}
MODULES = {
    "langchain": "langchain",
    "crewai": "crewai",
    "openai": "openai",
    "openai-agents": "agents",
}


@dataclass(frozen=True)
class Source:
    """A program to run: a block of a page, or a file."""

    name: str
    text: str

    @property
    def needs(self):
        """The extras whose framework it imports."""
        return {
            extra
            for extra, names in NEEDS.items()
            if re.search(rf"^\s*(?:from|import) +(?:{names})\b", self.text, re.MULTILINE)
        }


def blocks(page, language):
    """Yield (line number, info, text) of the fenced blocks in a language."""
    fence = re.compile(r"^```(\w+)([^\n`]*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
    text = page.read_text(encoding="utf-8")
    for block in fence.finditer(text):
        if block[1] == language:
            yield text.count("\n", 0, block.start()) + 1, block[2].strip(), block[3]


def programs(page):
    before = ""
    for line, info, text in blocks(page, "python"):
        assert info in {"", "continued"}, f"{page.name}:{line}: unknown word {info!r}"
        before = before + text if info else text
        yield Source(f"{page.relative_to(ROOT).as_posix()}:{line}", before)


def sources():
    found = [program for page in PAGES if page.exists() for program in programs(page)]
    found += [
        Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "examples").glob("*.py"))
    ]
    required = set(filter(None, os.environ.get("CHECKREIN_REQUIRE", "").split(",")))
    installed = {extra for extra, module in MODULES.items() if find_spec(module)}
    return [s for s in found if s.needs <= installed and required <= s.needs]


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)
def test_what_is_shown_runs(source, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    program = tmp_path / "program.py"
    program.write_text(source.text, encoding="utf-8")
    path = [str(ROOT / name) for name in ("core", "plugins", "integrations")]
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", str(program)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )
    assert done.returncode == 0, f"{source.name}\n{done.stdout}{done.stderr}"
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_toml_parses(page):
    for line, _, text in blocks(page, "toml"):
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            pytest.fail(f"{page.name}:{line}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            linked = page.parent / file if file else page
            assert linked.exists(), f"{page.name}: {target}"
            if anchor and linked.suffix == ".md":
                assert anchor in anchors(linked), f"{page.name}: {target}"


def anchors(page):
    """The anchors that a Markdown page's headings get."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def test_the_index_lists_every_page():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\((\w[\w-]*\.md)", index))
    assert linked == {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}


def test_the_readme_has_the_two_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^ *(python3 scripts/\S+)", readme, re.MULTILINE)
    assert commands == ["python3 scripts/demo.py", "python3 scripts/test.py"]
    for command in commands:
        assert (ROOT / command.split()[1]).is_file()


def test_every_hook_and_verdict_is_explained():
    page = (ROOT / "docs" / "writing-a-plugin.md").read_text(encoding="utf-8")
    for hook in hooks.HOOKS:
        assert f"`{hook}" in page, hook
    classes = [v for v in vars(verdicts).values() if isinstance(v, type)]
    for verdict in (c for c in classes if c.__module__ == verdicts.__name__):
        assert f"`{verdict.__name__}" in page, verdict.__name__
        for name in verdict.__dataclass_fields__:
            assert name in page, f"{verdict.__name__}.{name}"
