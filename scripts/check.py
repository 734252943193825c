"""Run the static checks: `python3 scripts/check.py [--fix] [NAME ...]`.

NAME is one of the steps; without one, all run, and the exit code is 1 if any found a fault.
`--fix` first lets ruff repair and format what it can.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import environments

ROOT = environments.ROOT
MODULE_LINES = 400
"""The most lines that a module of the three packages may have."""
STEPS = {
    "ruff": ["ruff", "check"],
    "format": ["ruff", "format", "--check"],
    "mypy": ["mypy"],
    "pyright": ["pyright"],
    "imports": ["lint-imports", "--no-cache", "--no-logo"],
    "size": [],
}


def main() -> int:
    """Run the steps; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="repair and format first")
    parser.add_argument("step", nargs="*", choices=[*STEPS, []], default=[])
    options = parser.parse_args()

    environment = environments.load()["check"]
    environments.ensure(environment)
    if options.fix:
        tool(environment, ["ruff", "check", "--fix"])
        tool(environment, ["ruff", "format"])
    faults = []
    for step in options.step or STEPS:
        print(f"\ncheck {step}", flush=True)
        passed = module_sizes() if step == "size" else tool(environment, STEPS[step])
        if not passed:
            faults.append(step)
    print(f"\nchecks: {'faults in ' + ', '.join(faults) if faults else 'all clean'}", flush=True)
    return int(bool(faults))


def tool(environment: environments.Environment, command: list[str]) -> bool:
    """Run an installed program; true if it found nothing."""
    path = f"{environment.python.parent}{':' if sys.platform != 'win32' else ';'}"
    variables = environments.child_environment()
    variables["PATH"] = path + variables.get("PATH", "")
    program = [str(environment.program(command[0])), *command[1:]]
    return subprocess.run(program, cwd=ROOT, env=variables, check=False).returncode == 0


def module_sizes() -> bool:
    """Say which modules are longer than they may be; true if none is."""
    too_long = {
        path.relative_to(ROOT): lines
        for root in ("core", "plugins", "integrations")
        for path in sorted((ROOT / root).rglob("*.py"))
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MODULE_LINES
    }
    for path, lines in too_long.items():
        print(f"{path}: {lines} lines, at most {MODULE_LINES}: one idea a module")
    return not too_long


if __name__ == "__main__":
    sys.exit(main())
