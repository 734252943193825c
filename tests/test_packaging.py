"""What is built, installed and pinned is what pyproject.toml says."""

import ast
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import checkrein

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("checkrein", "checkrein_plugins", "checkrein_integrations")
PYTHONS = ("3.11", "3.12", "3.13")
EXAMPLE = ROOT / "examples" / "third_party_plugin"


@pytest.fixture(scope="module")
def pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def build(project, target):
    """Build a wheel with the backend that is installed here: nothing is fetched."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=project,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def held(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_entry_points_are_the_installed_ones(pyproject):
    declared = {
        (group, name, value)
        for group, table in pyproject["project"]["entry-points"].items()
        for name, value in table.items()
    } | {("console_scripts", n, v) for n, v in pyproject["project"]["scripts"].items()}
    frozen = {(e.group, e.name, e.value) for e in distribution("checkrein").entry_points}
    assert frozen == declared, "install again: entry points are frozen when installed"


@pytest.mark.parametrize("group", ["checkrein", "checkrein.commands", "checkrein.stores"])
def test_every_entry_point_names_something_that_is_there(pyproject, group):
    for value in pyproject["project"]["entry-points"].get(group, {}).values():
        module, _, attribute = value.partition(":")
        roots = [ROOT / name for name in ("core", "plugins", "integrations")]
        base = Path(*module.split("."))
        files = [
            file
            for root in roots
            for file in (root / base.with_suffix(".py"), root / base / "__init__.py")
            if file.is_file()
        ]
        assert len(files) == 1, f"{value}: {module} is no module of this distribution"
        assert attribute in names_of(files[0]), f"{value}: {module} has no {attribute}"


def names_of(file):
    """The names that a module binds at its top level, without importing it."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_the_wheel_holds_the_packages_whole(held):
    for root, package in zip(("core", "plugins", "integrations"), PACKAGES, strict=True):
        sources = {
            path.relative_to(ROOT / root).as_posix()
            for path in (ROOT / root / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert f"{package}/py.typed" in sources
        assert sources <= held


def test_the_wheel_holds_nothing_else(held):
    tops = {name.split("/")[0] for name in held}
    (metadata,) = tops - set(PACKAGES)
    assert metadata.endswith(".dist-info")
    assert f"{metadata}/licenses/LICENSE" in held
    assert not [name for name in held if re.search(r"(^|/)(tests?|conftest)(/|\.py|$)", name)]


def test_the_wheel_offers_the_extras_that_can_be_installed(wheel, pyproject):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    metadata = HeaderParser().parsestr(text)
    extras = set(metadata.get_all("Provides-Extra"))
    assert extras == set(pyproject["project"]["optional-dependencies"])
    assert "all" not in extras, "crewai and openai-agents cannot be installed together"
    assert metadata["License-Expression"] == "Apache-2.0"


def test_nothing_importable_lies_directly_in_the_roots():
    for root, package in zip(("core", "plugins", "integrations"), PACKAGES, strict=True):
        inside = {path.name for path in (ROOT / root).iterdir()} - {"__pycache__"}
        assert inside == {package}


def pinned(file):
    """The pins of a requirements file, as packaging reads them."""
    text = file.read_text(encoding="utf-8").replace("\\\n", " ")
    return [Requirement(line.split("--hash")[0]) for line in text.splitlines() if line.strip()]


def files_of_environments():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for name, entry in table["tool"]["checkrein"]["environments"].items():
        yield name, entry, ROOT / "requirements" / f"{name}.txt"
        if entry.get("tests"):
            yield f"{name}, oldest", entry, ROOT / "requirements" / f"{name}-oldest.txt"


@pytest.mark.parametrize(
    ("entry", "file"), [pytest.param(e, f, id=n) for n, e, f in files_of_environments()]
)
def test_requirements_pin_what_pyproject_asks_for(pyproject, entry, file):
    pins = pinned(file)
    wanted = list(map(Requirement, pyproject["project"]["dependencies"]))
    extras, groups = list(entry.get("extras", ())), list(entry.get("groups", ()))
    while extras:
        for text in pyproject["project"]["optional-dependencies"][extras.pop()]:
            requirement = Requirement(text)
            if requirement.name == "checkrein":
                extras += requirement.extras
            else:
                wanted.append(requirement)
    while groups:
        for item in pyproject["dependency-groups"][groups.pop()]:
            if isinstance(item, dict):
                groups.append(item["include-group"])
            else:
                wanted.append(Requirement(item))
    for python in PYTHONS:
        env = {"python_version": python, "python_full_version": f"{python}.0"}
        for requirement in wanted:
            if requirement.marker and not requirement.marker.evaluate(env):
                continue
            found = [
                pin
                for pin in pins
                if normal(pin.name) == normal(requirement.name)
                and (pin.marker is None or pin.marker.evaluate(env))
            ]
            assert len(found) == 1, f"{requirement} on {python}: compile the requirements anew"
            (specifier,) = found[0].specifier
            assert requirement.specifier.contains(specifier.version, prereleases=True)


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    "file", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda f: f.stem
)
def test_every_requirement_has_a_hash_and_no_address(file):
    text = file.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*-", text.replace("--hash=", ""), re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        assert re.search(r"==\S+.*--hash=sha256:[0-9a-f]{64}", line), line


def tracked():
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [ROOT / name for name in done.stdout.decode().split("\0") if name]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a source archive is not a clone")
def test_no_file_knows_a_machine_or_a_package_index():
    # Built from pieces, so that this file does not hold what it looks for.
    dot, slash = ".", "/"
    unwanted = [
        *(slash.join(["", "work", name]) for name in ("main", "shared", ".library")),
        slash.join(["", "root", ""]),
        slash.join(["", "tmp", "wt"]),
        slash.join(["", "tmp", "venv"]),
        dot.join(["py" + "pi", "org"]),
        dot.join(["python" + "hosted", "org"]),
        dot.join(["npm" + "js", "org"]),
        "py" + "env/",
    ]
    # A path begins where no word, colon or dot leads up to it.
    paths = [re.compile(r"(?<![\w:.])" + re.escape(u)) if u[0] == "/" else u for u in unwanted]
    for file in tracked():
        if not file.is_file():
            continue
        text = file.read_bytes().decode("utf-8", "replace")
        for pattern in paths:
            hit = pattern in text if isinstance(pattern, str) else pattern.search(text)
            assert not hit, f"{file.relative_to(ROOT)} holds {pattern}"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory, wheel):
    """Make a fresh environment that holds our wheel and `wheels`; return its interpreter.

    Third-party dependencies are lent by the environment of the tests, so that nothing is
    fetched; `checkrein` itself and the plugin come from their wheels.
    """

    def make(*wheels):
        directory = tmp_path_factory.mktemp("fresh") / "env"
        venv.EnvBuilder(with_pip=False, symlinks=True).create(directory)
        python = directory / "bin" / "python"
        install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        subprocess.run(
            [*install, "--no-deps", "--no-index", str(wheel), *map(str, wheels)], check=True
        )
        (packages,) = (directory / "lib").glob("python*/site-packages")
        lender = Path(distribution("pluggy").locate_file("")).resolve()
        (packages / "lent.pth").write_text(f"{lender}\n", encoding="utf-8")
        return python

    return make


def run(python, snippet, cwd):
    return subprocess.run(
        [str(python), "-I", "-c", snippet],
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def test_the_third_party_template_installs_and_its_hook_runs(fresh, tmp_path):
    python = fresh(build(EXAMPLE, tmp_path))
    (tmp_path / "never.ics").write_text(
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20200101T000000Z\nDTEND:20200101T010000Z\n"
        "END:VEVENT\nEND:VCALENDAR\n",
        encoding="utf-8",
    )
    snippet = """
import checkrein
from checkrein import Rein, errors
from checkrein.manager import build
assert "site-packages" in checkrein.__file__, checkrein.__file__
guard = build("maintenance_window", {"calendar": "never.ics", "tools": ["restart"]})
rein = Rein(plugins=[guard], store="memory:")
def restart(): print("RAN")
def status(): return "up"
assert rein.call(status) == "up"
try:
    rein.call(restart)
except errors.Denied as denied:
    print(denied.rule)
"""
    done = run(python, snippet, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "maintenance_window"), done.stderr


def test_new_plugin_writes_a_distribution_that_works(fresh, tmp_path):
    from checkrein.cli._new_plugin import write_plugin

    project = tmp_path / "made"
    write_plugin("quiet-hours", project)
    python = fresh(build(project, tmp_path))
    snippet = """
from checkrein import Rein, errors
from checkrein.manager import build
rein = Rein(plugins=[build("quiet_hours", {"tools": ["send_*"]})], store="memory:")
def send_mail(): print("RAN")
def read_mail(): return "hello"
assert rein.call(read_mail) == "hello"
try:
    rein.call(send_mail)
except errors.Denied as denied:
    print(denied.rule)
"""
    done = run(python, snippet, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "quiet_hours"), done.stderr


def test_the_version_is_one(pyproject):
    assert Version(version("checkrein")) == Version(pyproject["project"]["version"])
    assert checkrein.__version__ == pyproject["project"]["version"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {pyproject['project']['version']}" in changes
