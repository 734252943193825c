"""`checkrein init` and `new-plugin`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from checkrein.cli._output import Out
from checkrein.cli._place import DEFAULT, Place, command
from checkrein.errors import ConfigError, Conflict


@command
def init(
    *,
    place: Place,
    out: Out,
    framework: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Whose use the file shows: python, langchain, crewai or openai-agents.",
        ),
    ] = "python",
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> int:
    """Write a commented checkrein.toml (or the file that --config names)."""
    from checkrein.cli._templates import FRAMEWORKS, configuration

    if framework not in FRAMEWORKS:
        raise ConfigError(f"--framework {framework}: use one of {', '.join(FRAMEWORKS)}")
    path = place.config or DEFAULT
    if path.suffix.lower() != ".toml":
        raise ConfigError(f"{path}: init writes TOML: name it *.toml")
    text = configuration(framework, path.name)
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Conflict(f"{path} exists already; --force overwrites it") from None
    except OSError as error:
        raise Conflict(f"{path} cannot be written: {error.strerror}") from error
    out.document({"written": str(path), "framework": framework})
    out.line(f"wrote {path}")
    out.note("next: checkrein doctor")
    return 0


@command
def new_plugin(
    *,
    place: Place,  # noqa: ARG001 - every command has it
    out: Out,
    name: Annotated[str, typer.Argument(metavar="NAME", help="For example quiet-hours.")],
    directory: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Where. [./checkrein-NAME]")
    ] = None,
) -> int:
    """Write a new plugin as a distribution of its own: it installs and its test passes."""
    from checkrein.cli._new_plugin import write_plugin

    target = directory or Path(f"checkrein-{name.strip().removeprefix('checkrein-')}")
    try:
        written = write_plugin(name, target)
    except OSError as error:
        raise Conflict(f"{target} cannot be written: {error.strerror}") from error
    out.document({"written": [str(path) for path in written]})
    for path in written:
        out.line(f"wrote {path}")
    out.note(f"next: cd {target}, pip install -e '.[test]', python -m pytest")
    return 0
