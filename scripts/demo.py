"""Install and run the demo: `python3 scripts/demo.py [options of checkrein demo]`."""

from __future__ import annotations

import os
import sys

import environments


def main() -> None:
    """Become `checkrein demo` in its own environment."""
    environment = environments.load()["demo"]
    environments.ensure(environment)
    program = str(environment.program("checkrein"))
    sys.stdout.flush()
    command = [program, "demo", *sys.argv[1:]]
    os.execve(program, command, environments.child_environment())  # noqa: S606 - our own program


if __name__ == "__main__":
    main()
