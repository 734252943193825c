"""`checkrein redact`: files and pipes, in real processes."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein_plugins.redaction import redact, scan

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]
MAIL = "casey.lund@example.org"
TEXT = (
    f"mail {MAIL}\r\nand\ncard 4242 4242 4242 4242 "
    "-----BEGIN PRIVATE KEY-----\nMHcCAQEEIBkg4LVWM9nuwNSk3yBy\n-----END PRIVATE KEY-----\n"
    "日本 call 212-555-0147"
)
MEASURED = """
import os, sys
from checkrein.cli import run
code = run(sys.argv[1:])
peak = "0"
if os.path.exists("/proc/self/status"):
    with open("/proc/self/status") as status:
        peak = status.read().partition("VmHWM:")[2].split()[0]
sys.stderr.write(f"peak {peak}")
sys.exit(code)
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the command, found through its entry point."""
    info = tmp_path / "site" / "redact_command-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: redact-command\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[checkrein.commands]\nredact = checkrein_plugins.redaction.command:command\n"
    )
    paths = [str(tmp_path / "site"), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def start(
        *arguments: str, fed: bytes = b"", environment: Any = environment
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-c", MEASURED, "redact", *arguments],
            input=fed, capture_output=True, check=False, env=environment, timeout=120,
        )  # fmt: skip

    return functools.partial(start, environment=environment)


def told(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stderr.decode().rpartition("peak ")[0]


def test_a_file_and_a_pipe_are_redacted_byte_for_byte(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(TEXT.encode())
    done = run(str(file), "-", fed=f"from {MAIL}".encode())
    assert done.returncode == 0
    assert done.stdout == (redact(TEXT) + "from [EMAIL]").encode()
    assert told(done) == ""


def test_explanations_name_place_rule_and_what_decided(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(TEXT.encode())
    done = run(str(file), "--explain")
    lines = told(done).splitlines()
    assert [line.split(": ")[0].rpartition(":")[2] for line in lines] == ["1", "3", "3", "6"]
    assert lines[0].endswith("email at 5-27: rule email; form of the address and its domain")
    assert MAIL not in told(done)


def test_the_json_document_holds_text_counts_and_findings(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(TEXT.encode())
    done = run(str(file), "-", "--json", "--explain", fed=b'quote " and \\')
    first, second = json.loads(done.stdout)["files"]
    assert first["text"] == redact(TEXT)
    assert first["bytes"] == len(TEXT.encode())
    assert first["counts"] == {"email": 1, "credit_card": 1, "secret": 1, "phone": 1}
    assert [(row["start"], row["end"]) for row in first["findings"]] == [
        (row.start, row.end) for row in scan(TEXT)
    ]
    assert second == {
        "name": "standard input", "text": 'quote " and \\', "bytes": 13, "counts": {},
        "findings": [],
    }  # fmt: skip


def test_categories_and_patterns_are_chosen(run: Run) -> None:
    text = f"{MAIL} TCK-123456 212-555-0147".encode()
    assert run("-", "--category", "phone", fed=text).stdout == f"{MAIL} TCK-123456 [PHONE]".encode()
    only = run("-", "--pattern", "ticket=TCK-[0-9]{6}", fed=text)
    assert only.stdout == f"{MAIL} [TICKET] 212-555-0147".encode()


@pytest.mark.parametrize(
    ("arguments", "fed", "code", "message"),
    [
        (["-", "--category", "emails"], b"", 2, "categories: unknown emails; known are secret"),
        (["-", "--pattern", "ticket=(?=a)"], b"", 2, "custom.ticket.pattern: RE2 refuses"),
        (["-", "--pattern", "ticket"], b"", 2, "--pattern: give NAME=PATTERN"),
        (["-", "-"], b"", 2, "standard input can be read once"),
        (["no-such-file"], b"", 2, "no-such-file: there is no such file"),
        (["."], b"", 2, ".: is a folder"),
        ([], b"", 2, "FILE"),
        (["-"], b"one\ntwo \xff", 1, "standard input: byte 8 is not UTF-8"),
        (["-"], b"one\ntwo \xe6\x97", 1, "standard input: byte 8 is not UTF-8"),
    ],
)
def test_bad_input_is_named(run: Run, arguments: Any, fed: bytes, code: int, message: str) -> None:
    done = run(*arguments, fed=fed)
    assert done.returncode == code
    assert message in told(done)


def test_bytes_are_counted_over_all_of_a_long_file(run: Run) -> None:
    front = "word 日本\n".encode() * 20_000
    done = run("-", fed=front + b"\xfe" + MAIL.encode())
    assert f"byte {len(front)} " in told(done)
    assert front.startswith(done.stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="told by Linux only")
def test_memory_does_not_grow_with_the_file(run: Run) -> None:
    row = f"2026-03-14 a request of some length came in and was answered\nfrom {MAIL}\n".encode()
    peaks = []
    for rows in (10_000, 60_000):
        done = run("-", "--json", "--explain", fed=row * rows)
        assert json.loads(done.stdout)["files"][0]["counts"] == {"email": rows}
        peaks.append(int(done.stderr.rpartition(b"peak ")[2]))
    assert peaks[1] - peaks[0] < 2_000  # kilobytes; the second text has 4.3 MB more


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="told by Linux only")
def test_a_pipe_of_any_length_in_constant_memory(tmp_path: Path, run: Run, full: bool) -> None:
    """A gigabyte with `--full`; 8 MB otherwise."""
    row = f"2026-03-14 09:26:53 INFO request 4711 was answered, from {MAIL} id 550e8400\n".encode()
    block = row * (1_000_000 // len(row))
    count = 1000 if full else 8
    environment = run.keywords["environment"]  # type: ignore[attr-defined]
    with subprocess.Popen(
        [sys.executable, "-c", MEASURED, "redact", "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout and process.stderr
        feeding = threading.Thread(target=feed, args=(process.stdin, block, count))
        feeding.start()
        got = 0
        while data := process.stdout.read(1 << 20):
            got += len(data)
            assert MAIL.encode() not in data
        feeding.join()
        peak = int(process.stderr.read().rpartition(b"peak ")[2])
    assert got == count * len(block.replace(MAIL.encode(), b"[EMAIL]"))
    assert peak < 100_000  # kilobytes


def feed(pipe: Any, block: bytes, count: int) -> None:
    """Write `block` so often, and close."""
    with pipe:
        for _ in range(count):
            pipe.write(block)
