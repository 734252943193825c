"""`checkrein audit`: verify, sign and export what was recorded."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from checkrein import anchors, export, keys
from checkrein.cli._ids import rows_of, session_of
from checkrein.cli._output import Out, counted
from checkrein.cli._place import Place, command
from checkrein.cli._times import moment
from checkrein.errors import ConfigError, Conflict

KEY = "CHECKREIN_SIGNING_KEY"
"""Holds the private key of anchors, where no file does."""

audit = typer.Typer(
    rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False,
    help="Verify, sign and export what was recorded.",
)  # fmt: skip


@audit.callback()
def _group() -> None:
    """Verify, sign and export what was recorded."""


KeyOption = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help=f"The private key. [{KEY}]"),
]


@command
def verify(
    *,
    place: Place,
    out: Out,
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="Only this one: its id, or how the id begins."),
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="Check the signed anchors as well, with this key."),
    ] = None,
    kept: Annotated[
        str, typer.Option("--anchor", metavar="DIGEST", help="An anchor that must be there.")
    ] = "",
) -> int:
    """Recompute the hash chain of every session, or of one; with a key, check the anchors.

    A chain shows changed, missing and inserted events of a session. That a whole session is
    missing, or that an end was rewritten, is shown by signed anchors: `audit sign`.
    """
    if kept and public_key is None:
        raise ConfigError("--anchor needs --public-key: a digest is checked with its signature")
    with place.looking() as rein:
        store = rein.store
        rows = (
            [session_of(store, session)]
            if session is not None
            else rows_of(lambda after: store.sessions(after=after, limit=500))
        )
        count = 0
        bad: list[tuple[str, int, int, str]] = []
        with out.working("verifying"):
            for row in rows:
                count += 1
                event = store.verify(row.id)
                if event is not None:
                    bad.append((row.id, event.n, event.seq, event.kind))
            anchored = None if public_key is None else anchors.check(store, public_key, kept=kept)
    names = ("session", "event", "seq", "kind")
    tree: dict[str, Any] = {
        "verified": count, "broken": [dict(zip(names, row, strict=True)) for row in bad]
    }  # fmt: skip
    if anchored is not None:
        tree["anchors"] = {
            "anchors": anchored.anchors, "heads": anchored.heads,
            "forgotten": anchored.forgotten, "last": anchored.last,
            "unanchored": anchored.unanchored, "faults": anchored.faults,
        }  # fmt: skip
    out.document(tree)
    if bad:
        out.table(names, bad)
    out.line(f"{counted(count, 'session')} verified, {len(bad)} broken")
    if anchored is None:
        out.line("anchors: not checked (--public-key)")
    else:
        _anchored(out, anchored)
    return 1 if bad or (anchored is not None and anchored.faults) else 0


def _anchored(out: Out, found: anchors.Anchored) -> None:
    for fault in found.faults:
        out.line(f"fault: {fault}")
    forgotten = f", {found.forgotten} of forgotten sessions" if found.forgotten else ""
    out.line(
        f"{counted(found.anchors, 'anchor')} checked: {found.heads} heads as signed{forgotten}, "
        f"{counted(len(found.faults), 'fault')}; {counted(found.unanchored, 'event')} not anchored"
    )
    if found.last:
        out.line(f"newest anchor: {found.last}")


@command
def sign(*, place: Place, out: Out, key: KeyOption = None) -> int:
    """Sign the heads of all sessions that changed since the last anchor.

    The key is made at first use. Keep it, and the digest printed, where nobody who can write
    the store can write.
    """
    signer = anchors.Signer(_seed(key))
    with place.looking() as rein, out.working("signing"):
        made = signer.anchor(rein.store, rein.clock)
    out.document({"made": len(made), "last": made[-1] if made else "", "key": signer.public_key})
    out.line(f"{counted(len(made), 'anchor')} made" + (f": {made[-1]}" if made else ""))
    out.line(f"public key: {signer.public_key}")
    return 0


def _seed(path: Path | None) -> bytes:
    if path is not None:
        return keys.store_key(path)
    seed = keys.key_in(KEY)
    if seed is None:
        raise ConfigError(
            f"name the private key: --key FILE (made at first use, mode 0600), or {KEY}"
        )
    return seed


@command
def export_(
    *,
    place: Place,
    out: Out,
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="Only this one: its id, or how the id begins."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this date or time on (ISO 8601).")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Up to this date or time, without it.")
    ] = None,
    zone: Annotated[
        str, typer.Option("--timezone", metavar="ZONE", help="Of times without an offset.")
    ] = "UTC",
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this agent.")] = None,
    form: Annotated[str, typer.Option("--format", metavar="FORM", help="jsonl or csv.")] = "jsonl",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to. [the pipe]")
    ] = None,
    metadata_only: Annotated[
        bool, typer.Option("--metadata-only", help="Without arguments, results and texts.")
    ] = False,
) -> int:
    """Write every event as one row, oldest first: JSON lines or CSV."""
    if form not in ("jsonl", "csv"):
        raise ConfigError(f"--format {form}: jsonl or csv")
    if out.as_json and output is None:
        raise ConfigError("--json needs -o FILE: the rows have the pipe")
    begin, end = moment("--since", since, zone), moment("--until", until, zone)
    count = 0
    with place.looking() as rein, _opened(output) as file:
        id = None if session is None else session_of(rein.store, session).id
        write = _csv(file) if form == "csv" else _lines(file)
        found = export.rows(
            rein.store, session=id, since=begin, until=end, agent=agent, metadata_only=metadata_only
        )
        with out.progress("exporting", _last(rein.store)) as told:
            for row in found:
                write(row)
                count += 1
                told(row["seq"])
    out.document({"rows": count, "file": str(output)})
    out.note(f"{counted(count, 'row')} exported")
    return 0


def _last(store: Any) -> int:
    found = store.events(reverse=True, limit=1)
    return found[0].seq if found else 0


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise Conflict(f"{path} cannot be written: {error.strerror}") from error
    with file:
        yield file


def _lines(file: TextIO) -> Callable[[dict[str, Any]], None]:
    def write(row: dict[str, Any]) -> None:
        file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")

    return write


def _csv(file: TextIO) -> Callable[[dict[str, Any]], None]:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(export.COLUMNS)

    def write(row: dict[str, Any]) -> None:
        view = json.dumps(row["view"], ensure_ascii=False)
        writer.writerow([view if name == "view" else row[name] for name in export.COLUMNS])

    return write


audit.command("verify")(verify)
audit.command("sign")(sign)
audit.command("export")(export_)
