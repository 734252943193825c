"""Make the environments that the project's own commands run in.

Each is named in pyproject.toml under `[tool.checkrein.environments]` and lies in
`.envs/NAME-pyX.Y`, installed with pip from `requirements/NAME.txt` (pinned, with hashes).
It is made anew when the requirements, pyproject.toml or the interpreter changed.
Needs Python 3.11, 3.12 or 3.13 (the requirements are resolved for these) and pip.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

if not (3, 11) <= sys.version_info[:2] <= (3, 13):  # the scripts run on whatever `python3` is
    sys.exit(
        f"checkrein's scripts need Python 3.11, 3.12 or 3.13; this is {sys.version.split()[0]}"
    )

import tomllib

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment, as pyproject.toml describes it."""

    name: str
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    """Paths that pytest runs in it; empty = not a test session."""
    few: tuple[str, ...] = ()
    """What is run of them for a short look, as at the oldest versions."""
    require: str = ""
    """The extra whose absence must fail the session."""
    oldest: bool = False
    """Install the lowest version of every direct dependency."""

    @property
    def requirements(self) -> Path:
        """The pinned requirements that it is installed from."""
        return ROOT / "requirements" / f"{self.name}{'-oldest' if self.oldest else ''}.txt"

    @property
    def directory(self) -> Path:
        """Where it lies: one per interpreter version."""
        version = f"py{sys.version_info.major}.{sys.version_info.minor}"
        return ROOT / ".envs" / f"{self.requirements.stem}-{version}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.program("python")

    def program(self, name: str) -> Path:
        """The path of an installed program."""
        if os.name == "nt":
            return self.directory / "Scripts" / f"{name}.exe"
        return self.directory / "bin" / name


def load(*, oldest: bool = False) -> dict[str, Environment]:
    """Read the table of environments, in the file's order."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)["tool"]["checkrein"]["environments"]
    return {
        name: Environment(
            name=name,
            extras=tuple(entry.get("extras", ())),
            groups=tuple(entry.get("groups", ())),
            tests=tuple(entry.get("tests", ())),
            few=tuple(entry.get("few", ())),
            require=entry.get("require", ""),
            oldest=oldest,
        )
        for name, entry in table.items()
    }


def ensure(environment: Environment) -> Path:
    """Make the environment unless it is there and current; return its interpreter.

    Raises:
        SystemExit: A step failed; its output stands above.
    """
    stamp = environment.directory / "checkrein-stamp"
    current = _digest(environment)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == current:
        return environment.python
    print(f"installing {environment.directory.relative_to(ROOT)} ...", file=sys.stderr, flush=True)
    if environment.directory.exists():
        shutil.rmtree(environment.directory)
    pip = _create(environment)
    quiet = ["install", "--quiet", "--disable-pip-version-check", "--no-input"]
    _run([*pip, *quiet, "--require-hashes", "-r", str(environment.requirements)])
    # The build backend is among the pinned requirements: nothing unpinned is fetched here.
    _run([*pip, *quiet, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
    stamp.write_text(current, encoding="utf-8")
    return environment.python


def child_environment(**more: str) -> dict[str, str]:
    """Our environment variables for a child, less what would reach into its environment."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_USER", "PIP_TARGET"}
    }
    return inherited | more


def _digest(environment: Environment) -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        tables = tomllib.load(file)
    # What an editable install freezes: dependencies, entry points, layout.
    frozen = repr((tables["project"], tables["build-system"], tables["tool"]["hatch"]))
    parts = [sys.version, str(ROOT), frozen, environment.requirements.read_text(encoding="utf-8")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _create(environment: Environment) -> list[str]:
    """Make the bare environment; return the pip command that installs into it."""
    directory = environment.directory
    try:
        venv.EnvBuilder(with_pip=True, symlinks=os.name != "nt").create(directory)
    except subprocess.CalledProcessError:
        # Some systems ship Python without ensurepip: their own pip can install into it.
        venv.EnvBuilder(with_pip=False, clear=True, symlinks=os.name != "nt").create(directory)
        return [sys.executable, "-m", "pip", "--python", str(environment.python)]
    return [str(environment.python), "-m", "pip"]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, env=child_environment(), check=False)
    if done.returncode:
        sys.exit(f"failed ({done.returncode}): {' '.join(command)}")
