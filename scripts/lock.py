"""Compile requirements/*.txt anew from pyproject.toml: `python3 scripts/lock.py [NAME ...]`.

The files are pinned with hashes and hold no index or download address, so that they install
from whatever index pip is set up for. One file serves all supported Python versions.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import environments

ALWAYS = [
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-annotate",
    "--no-header",
    "--quiet",
]


def main() -> None:
    """Compile all files, or those of the named environments."""
    uv = shutil.which("uv")
    if uv is None:
        check = environments.load()["check"]
        environments.ensure(check)
        uv = str(check.program("uv"))
    names = sys.argv[1:]
    for oldest in (False, True):
        for environment in environments.load(oldest=oldest).values():
            if names and environment.name not in names:
                continue
            if oldest and not environment.tests:
                continue  # only test sessions are run against the oldest versions
            compile_one(uv, environment)


def compile_one(uv: str, environment: environments.Environment) -> None:
    """Write the requirements of one environment."""
    command = [uv, "pip", "compile", "pyproject.toml", *ALWAYS]
    command += [f"--extra={extra}" for extra in environment.extras]
    command += [f"--group={group}" for group in environment.groups]
    if environment.oldest:
        command.append("--resolution=lowest-direct")
    else:
        command.append("--upgrade")
    target = environment.requirements
    print(f"compiling {target.relative_to(environments.ROOT)}", flush=True)
    subprocess.run([*command, f"--output-file={target}"], cwd=environments.ROOT, check=True)


if __name__ == "__main__":
    main()
