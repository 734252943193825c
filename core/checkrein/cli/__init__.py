"""The command line. `main()` finds one command and runs it; nothing else is imported.

Exit codes: 0 done, 1 refused or found faults, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from checkrein.cli._output import fail, say

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "checkrein.commands"
"""Entry-point group of commands that other packages bring: a Typer command or application."""

COMMANDS: dict[str, tuple[str, str, str]] = {
    # name: (heading, module, what it does)
    "init": ("Begin", "project", "Write a commented checkrein.toml."),
    "doctor": ("Begin", "doctor", "Check the installation, the configuration and the store."),
    "plugins": ("Begin", "plugins", "List installed plugins and the order in which they run."),
    "store": ("Begin", "store", "Move a store: from SQLite to PostgreSQL, and back."),
    "new-plugin": ("Begin", "project", "Write a new plugin as a distribution of its own."),
    "sessions": ("Look", "sessions", "List sessions, newest first."),
    "show": ("Look", "show", "Show what happened in one session."),
    "replay": ("Look", "replay", "Step through what a session did; nothing runs."),
    "report": (
        "Look",
        "report",
        "Write what a session did as one HTML file that needs no network.",
    ),
    "stats": (
        "Look",
        "stats",
        "Count calls, latencies, errors and denials of each tool.",
    ),
    "costs": ("Look", "costs", "Add up what calls cost, by model, agent, user and more."),
    "audit": ("Look", "audit", "Verify, sign and export what was recorded."),
    "approvals": ("Decide", "approvals", "List the calls that wait for a person."),
    "approve": ("Decide", "approvals", "Let a waiting call run."),
    "reject": ("Decide", "approvals", "Refuse a waiting call."),
    "watch": ("Decide", "watch", "Show live what is asked and what is decided."),
    "grants": ("Decide", "grants", "List what was allowed for good."),
    "revoke": ("Decide", "grants", "Take back what was allowed for good."),
    "resume": ("Decide", "acting", "Run the call that waited for an approval, once."),
    "pause": ("Decide", "sessions", "Let sessions take no calls for a while."),
    "continue": ("Decide", "sessions", "Let paused sessions take calls again."),
    "stop": ("Decide", "acting", "Stop sessions before their next call."),
    "restart": ("Decide", "sessions", "Open a new session like one that is over or stopped."),
    "forget": ("Decide", "sessions", "Delete what sessions left that ended long ago."),
    "rollback": ("Undo", "undo", "Undo what a session did, newest effect first."),
    "settle": ("Undo", "undo", "Say by hand what became of a call that nobody could tell."),
    "recover": ("Undo", "undo", "Finish what killed processes left behind."),
    "worker": (
        "Undo",
        "worker",
        "Look after sessions and approvals of all processes, for as long as it runs.",
    ),
}

_SIBLINGS = ("checkrein_plugins.", "checkrein_integrations.")
_BESIDE = {
    "demo": "Play the demo: an agent at a refund desk, supervised.",
    "policy": "Check, explain, test and rehearse policies.",
    "prices": "Look up and compare prices of models, and import your own.",
    "redact": "Redact files or a pipe: private data and secrets.",
}
"""Commands of the siblings in this distribution -> what they do."""

_SHARED = ("--config", "--app", "--store")
"""Options that may stand before the command as well."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What agents wrote may hold characters that this terminal has not.
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit code."""
    try:
        code = _run(list(arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has seen enough. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return fail("interrupted", 130)
    return code


def _run(arguments: list[str]) -> int:
    leading: list[str] = []
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option in ("-h", "--help"):
            say(_help())
            return 0
        if option == "--version":
            from checkrein import __version__

            say(f"checkrein {__version__}")
            return 0
        leading.append(option)
        if option in _SHARED and arguments:
            leading.append(arguments.pop(0))
        elif option != "--json" and not option.startswith(tuple(f"{o}=" for o in _SHARED)):
            return _wrong(f"no such option: {option}")
    if not arguments:
        if leading:
            return _wrong("name a command")
        say(_help())
        return 0
    name = arguments.pop(0)
    known = COMMANDS.get(name)
    if known is not None:
        from importlib import import_module

        module = import_module(f"checkrein.cli.{known[1]}")
        function = name.replace("-", "_")
        # `continue` is a word of the language.
        found = getattr(module, function, None) or getattr(module, f"{function}_")
        return _invoke(name, found, [*leading, *arguments])
    return _other(name, [*leading, *arguments])


def _other(name: str, arguments: list[str]) -> int:
    """A command from another package."""
    entry = next((entry for entry in offered() if entry.name == name), None)
    if entry is None:
        import difflib

        every = [*COMMANDS, *(e.name for e in offered())]
        found = difflib.get_close_matches(name, every, n=1)
        hint = f"; did you mean {found[0]}?" if found else ""
        return _wrong(f"no such command: {name}{hint}")
    try:
        loaded = entry.load()
    except Exception as error:  # noqa: BLE001 - see below
        # Importing runs other people's code: whatever it raises, this command is not usable.
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        return fail(
            f"command {name} from {origin(entry)} does not load: {type(error).__name__}: {error}"
            + (f"; install what brings {missing}" if missing else ""),
            1,
        )
    return _invoke(name, loaded, arguments)


def _invoke(name: str, command: Any, arguments: list[str]) -> int:
    import typer

    from checkrein.errors import CheckreinError, ConfigError

    # Typer brings its own copy of Click, or uses Click, by version: its base class is in both.
    usage_error = cast("type[Exception]", typer.BadParameter.__base__)
    if not isinstance(command, typer.Typer):
        alone = typer.Typer(
            rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False
        )
        alone.command(name)(command)
        command = alone
    title = f"checkrein {name}"
    built = typer.main.get_command(command)
    for one in getattr(built, "commands", {}).values():
        # Whole: what is not given is cut off at the width of the terminal.
        one.short_help = one.short_help or _sentence(one.help or "")
    try:
        # Not `main`: it turns Ctrl-C into something else, by version.
        with built.make_context(title, arguments) as context:
            code = built.invoke(context)
    except typer.Exit as ended:
        code = ended.exit_code
    except usage_error as error:
        told = str(cast("Any", error).format_message())
        where = getattr(getattr(error, "ctx", None), "command_path", title)
        return fail(f"{told.rstrip('.')} (see {where} --help)", 2)
    except typer.Abort:
        return fail("nothing was done", 1)
    except ConfigError as error:
        return fail(str(error), 2)
    except CheckreinError as error:
        return fail(str(error), 1)
    return code if isinstance(code, int) else 0


def _sentence(text: str) -> str:
    """The first sentence of a command's help."""
    first, dot, _ = " ".join(text.split()).partition(". ")
    return f"{first}." if dot else first


def offered() -> list[EntryPoint]:
    """Commands of other packages, none of them imported; the core's own names win."""
    from importlib.metadata import entry_points

    found = {e.name: e for e in entry_points(group=GROUP) if e.name not in COMMANDS}
    return sorted(found.values(), key=lambda e: e.name)


def origin(entry: EntryPoint) -> str:
    """Distribution and version that an entry point comes from."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def _wrong(text: str) -> int:
    return fail(f"{text} (see checkrein --help)", 2)


def _help() -> str:
    """The overview: no command is imported for it."""
    lines = [
        "Usage: checkrein COMMAND [OPTIONS]",
        "",
        "Supervise agents: look at what they did, decide what they may do, take it back.",
    ]
    others = offered()
    ours = {e.name: _BESIDE.get(e.name, "") for e in others if e.value.startswith(_SIBLINGS)}
    others = [e for e in others if e.name not in ours]
    heading = ""
    for name, (group, _, text) in COMMANDS.items():
        if group != heading:
            heading = group
            lines += ["", f"{heading}:"]
        lines.append(f"  {name:<12}{text}")
        if name == "init":
            lines += [f"  {n:<12}{text}" for n, text in ours.items()]
    if others:
        lines += ["", "From other packages:"]
        lines += [f"  {e.name:<12}from {origin(e)}" for e in others]
    lines += [
        "",
        "Every command:",
        "  --config FILE      configuration; else ./checkrein.toml, else $CHECKREIN_CONFIG",
        "  --app MODULE:REIN  the application whose tools are needed (or `app` in the file)",
        "  --store URL        a store to look at, in place of the configured one",
        "  --json             one JSON document on standard output",
        "",
        "checkrein COMMAND --help says more.",
        "Exit codes: 0 done, 1 refused or found faults, 2 wrong usage, 130 interrupted.",
    ]
    return "\n".join(lines)
