"""`checkrein doctor`."""

from __future__ import annotations

import importlib.metadata
import platform
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from checkrein import owner
from checkrein.cli import offered, origin
from checkrein.cli._ids import rows_of
from checkrein.cli._output import Out, counted
from checkrein.cli._place import Place, command
from checkrein.errors import CheckreinError
from checkrein.rein import Rein

EXTRAS = {
    "langchain": ("langchain", "langgraph"),
    "crewai": ("crewai",),
    "openai-agents": ("openai-agents",),
    "openai": ("openai",),
    "otel": ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
    "demo": ("langgraph-checkpoint-sqlite",),
    "crypto": ("cryptography",),
}
"""Extra -> the distributions that it brings."""

SPOT = 20
"""Newest sessions whose chains are verified; `checkrein audit verify` takes all."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    area: str
    what: str
    status: Literal["ok", "warning", "fault", "absent"]
    detail: str = ""


@command
def doctor(
    *,
    place: Place,
    out: Out,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Re-fold the store from its events and compare.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="With --rebuild: write what differs anew.")
    ] = False,
) -> int:
    """Check the installation, the configuration and the store. 1 if there is a fault."""
    if repair and not rebuild:
        raise typer.BadParameter("--repair goes with --rebuild")
    findings = [
        *_system(),
        *_extras(),
        *_plugins(),
        *_commands(),
        *_configuration(place),
        # Before the application: its Rein may be the way to the store, and is closed after.
        *_store(place, out, rebuild=rebuild, repair=repair),
        *_application(place),
    ]
    faults = [f for f in findings if f.status == "fault"]
    out.document(
        {
            "findings": [
                {"area": f.area, "what": f.what, "status": f.status, "detail": f.detail}
                for f in findings
            ],
            "faults": len(faults),
        }
    )
    rows = [(f.status, f.area, f.what, f.detail) for f in findings]
    out.table(("status", "area", "what", "detail"), rows)
    out.line()
    out.line(counted(len(faults), "fault"))
    return 1 if faults else 0


def _system() -> Iterator[Finding]:
    from checkrein import __version__

    version = platform.python_version()
    fits = sys.version_info >= (3, 11)
    yield Finding("system", "checkrein", "ok", __version__)
    yield Finding(
        "system", "python", "ok" if fits else "fault", f"{version} on {platform.platform()}"
    )
    yield Finding("system", "sqlite", "ok", sqlite3.sqlite_version)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _extras() -> Iterator[Finding]:
    for extra, distributions in EXTRAS.items():
        found = {d: _version(d) for d in distributions}
        if all(found.values()):
            told = ", ".join(f"{d} {v}" for d, v in found.items())
            yield Finding("extra", extra, "ok", told)
        else:
            missing = ", ".join(d for d, v in found.items() if v is None)
            yield Finding("extra", extra, "absent", f"not installed: {missing}")


def _plugins() -> Iterator[Finding]:
    """Each installed plugin: it loads, or why it does not."""
    from checkrein.manager import available, load

    seen: set[str] = set()
    for plugin in available():
        if plugin.name in seen:
            continue
        seen.add(plugin.name)
        source = f"{plugin.distribution} {plugin.version}".strip()
        try:
            load(plugin.name)
        except CheckreinError as error:
            yield Finding("plugin", plugin.name, "fault", str(error))
        else:
            yield Finding("plugin", plugin.name, "ok", source)


def _commands() -> Iterator[Finding]:
    for entry in offered():
        try:
            entry.load()
        except ModuleNotFoundError as error:
            # The command's extra is not installed: nothing is broken.
            yield Finding("command", entry.name, "warning", f"{origin(entry)}: needs {error.name}")
        except Exception as error:  # noqa: BLE001 - importing runs other people's code
            yield Finding(
                "command", entry.name, "fault",
                f"{origin(entry)} does not load: {type(error).__name__}: {error}",
            )  # fmt: skip
        else:
            yield Finding("command", entry.name, "ok", origin(entry))


def _configuration(place: Place) -> Iterator[Finding]:
    path = place.file()
    if path is None:
        yield Finding("configuration", "file", "absent", "checkrein init writes one")
        return
    from checkrein.manager import Plugins
    from checkrein.policy import build_plugins

    chain = Plugins()
    try:
        found = place.document()
        if found is not None:
            chain.register(build_plugins(*found))
    except CheckreinError as error:
        yield Finding("configuration", str(path), "fault", str(error))
    else:
        yield Finding("configuration", str(path), "ok", counted(len(list(chain)), "plugin"))


def _application(place: Place) -> Iterator[Finding]:
    try:
        name = place.app_name()
    except CheckreinError:
        return  # told by the configuration's own line
    if name is None:
        yield Finding(
            "application", "app", "absent",
            "resume, rollback, recover and worker need --app MODULE:REIN",
        )  # fmt: skip
        return
    try:
        with place.application(name) as rein:
            tools = list(rein.tools)
    except CheckreinError as error:
        yield Finding("application", name, "fault", str(error))
        return
    yield Finding("application", name, "ok", f"{counted(len(tools), 'tool')} declared")
    undos = {(tool.info.undo or "").partition("(")[0] for tool in tools}
    for tool in tools:
        if tool.info.name in undos:
            continue
        if tool.info.effect != "read" and tool.fn is not None and _bare(tool.info):
            yield Finding(
                "application", tool.info.name, "warning", "no undo is declared: not undoable"
            )


def _bare(info: object) -> bool:
    name = str(getattr(info, "name", ""))
    return getattr(info, "undo", None) is None and not name.endswith(".undo")


# -- the store


def _store(place: Place, out: Out, *, rebuild: bool, repair: bool) -> Iterator[Finding]:
    try:
        rein = place.looking()
    except CheckreinError as error:
        named = place.store is not None or place.file() is not None or place.app is not None
        absent = not named or "does not exist" in str(error) or "no store is named" in str(error)
        yield Finding("store", "store", "absent" if absent else "fault", str(error))
        return
    with rein:
        try:
            yield Finding("store", "reachable", "ok", rein.store.url)
            yield from _chains(rein)
            yield from _approvals(rein)
            yield from _owners(rein)
            if rebuild:
                with out.working("re-folding the store"):
                    yield from _rebuilt(rein.store.rebuild(repair=repair), repair=repair)
        except CheckreinError as error:
            yield Finding("store", rein.store.url, "fault", str(error))


def _chains(rein: Rein) -> Iterator[Finding]:
    rows = rein.store.sessions(limit=SPOT).rows
    broken = 0
    for row in rows:
        event = rein.store.verify(row.id)
        if event is not None:
            broken += 1
            yield Finding(
                "store", f"chain of {row.id}", "fault",
                f"broken at event {event.n} ({event.kind}): somebody or something changed it",
            )  # fmt: skip
    if not broken:
        yield Finding("store", "chains", "ok", f"{counted(len(rows), 'newest session')} verified")


def _approvals(rein: Rein) -> Iterator[Finding]:
    """Approvals whose rows are not as they were written."""
    broken = checked = 0
    for record in rows_of(lambda after: rein.store.records("approval", after=after, limit=1000)):
        checked += 1
        try:
            rein.approvals.check(record)
        except CheckreinError as error:
            broken += 1
            yield Finding("store", f"approval {record.id}", "fault", str(error))
    if not broken:
        yield Finding("store", "approvals", "ok", f"{counted(checked, 'seal')} verified")


def _owners(rein: Rein) -> Iterator[Finding]:
    now = rein.clock()
    dead = [lease for lease in rein.store.owners() if not owner.alive(lease, now)]
    left = [d for d in dead if rein.store.sessions(owner=d.id, limit=1).rows]
    if left:
        pids = ", ".join(f"{d.host} pid {d.pid}" for d in left[:3])
        yield Finding(
            "store", "killed processes", "warning",
            f"{len(left)} left sessions behind ({pids}): checkrein recover",
        )  # fmt: skip
    doubt = rein.store.records("doubt", state="open", limit=1).rows
    if doubt:
        yield Finding(
            "store", "in doubt", "warning", f"session {doubt[0].id}: checkrein recover --settle"
        )


def _rebuilt(differences: list[str], *, repair: bool) -> Iterator[Finding]:
    if not differences:
        yield Finding(
            "store",
            "rebuild",
            "ok",
            "chains, states and holds agree (what was spent stands in no event)",
        )
    for text in differences:
        yield Finding("store", "rebuild", "warning" if repair else "fault",
                      f"{text} (written anew)" if repair else text)  # fmt: skip
