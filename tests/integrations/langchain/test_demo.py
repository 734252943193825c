"""`checkrein demo` as a newcomer meets it: real processes, pipes, a terminal, signals."""

import contextlib
import json
import os
import pty
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import entry_points
from pathlib import Path
from threading import Thread

import pytest

from checkrein.testing import OpenAIServer, Reply, ToolCall

INSTALLED = bool(entry_points(group="checkrein.commands", name="demo"))
pytestmark = pytest.mark.skipif(
    not INSTALLED and not os.environ.get("CHECKREIN_REQUIRE"),
    reason="the demo finds its plugins by entry points: install checkrein first",
)


def checkrein(*arguments, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "checkrein", *map(str, arguments)],
        cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240,
        env={**os.environ, **environment},
    )  # fmt: skip


def services(folder):
    """Payment services of this folder that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder / "payments.db").encode() in path.read_bytes():
                found.append(path)
    return found


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """One run with --yes, as JSON."""
    folder = tmp_path_factory.mktemp("demo") / "world"
    done = checkrein("demo", "--yes", "--json", "--spans", "--folder", folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_the_model_gets_redacted_data_and_the_mail_the_real_address(played):
    _, facts = played
    assert facts["a"]["leaked"] == []
    assert "[EMAIL]" in facts["a"]["model_got"]
    assert facts["a"]["mailed_to"] == ["casey.doyle@example.org"]
    assert facts["a"]["after"] == "$42.00 paid out, 1 refund row, 1 mail"


def test_a_refund_above_the_limit_was_approved(played):
    _, facts = played
    assert facts["b"]["approvals"] == ["done"]
    assert facts["b"]["after"] == "$311.00 paid out, 2 refund rows, 2 mails"


def test_a_late_failure_is_undone_newest_first(played):
    _, facts = played
    assert facts["c"]["undone"] == ["deliver", "record_refund", "pay_refund"]
    assert facts["c"]["during"] == ["$400.00 paid out, 3 refund rows, 3 mails"]
    assert facts["c"]["before"] == facts["c"]["after"] == facts["b"]["after"]


def test_the_loop_stops_below_the_cap(played):
    _, facts = played
    assert 0 < facts["d"]["spent"] <= facts["d"]["cap"]
    assert facts["d"]["model_calls"] == 13
    assert facts["bill_nano_usd"] > facts["d"]["spent"] * 1e9


def test_the_killed_process_is_recovered_although_recover_was_killed(played):
    folder, facts = played
    assert facts["e"]["killed"] == "$386.00 paid out, 3 refund rows, 3 mails"
    assert facts["e"]["after"] == facts["e"]["before"]
    assert {a["status"] for a in facts["e"]["recovered"]} == {"undone"}
    with contextlib.closing(sqlite3.connect(folder / "payments.db")) as db:
        applied = Counter(db.execute("select key, what from applied").fetchall())
    assert max(applied.values()) == 1
    assert applied["pay-o5", "reversed"] == 1


def test_the_spans_hang_together(played):
    _, facts = played
    roots = [line for line in facts["spans"] if not line.startswith(" ")]
    assert all(line.startswith("invoke_agent refund-desk") for line in roots)
    assert any(line.startswith("    execute_tool deliver") for line in facts["spans"])


def test_nothing_of_the_demo_runs_on(played):
    folder, _ = played
    assert services(folder) == []


def test_the_commands_that_it_names_work_on_its_folder(played):
    folder, facts = played
    listed = checkrein("sessions", "--json", cwd=folder)
    assert {row["id"] for row in json.loads(listed.stdout)["sessions"]} == set(
        facts["sessions"].values()
    )
    shown = checkrein("show", facts["sessions"]["c"][:8], cwd=folder)
    assert shown.returncode == 0
    assert "sam.iyer@example.com" not in shown.stdout
    assert checkrein("recover", cwd=folder).stdout == "nothing to recover\n"
    assert checkrein("audit", "verify", cwd=folder).returncode == 0
    undone = checkrein("rollback", facts["sessions"]["b"][:8], cwd=folder)
    assert undone.returncode == 0, undone.stderr
    assert services(folder) == []


def test_without_a_terminal_and_without_an_answer_it_is_no_on_a_plain_pipe(tmp_path):
    done = checkrein("demo", "--folder", tmp_path / "world", NO_COLOR="1", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert "pass --yes or --no" in done.stdout
    assert "could not refund" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    ours = [line for line in done.stdout.splitlines() if str(tmp_path) not in line]
    assert max(map(len, ours)) <= 80
    assert [line for line in ours if line != line.rstrip()] == []


def test_a_person_answers_at_the_terminal(tmp_path):
    parent, child = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "checkrein", "demo", "--folder", str(tmp_path / "world")],
        stdin=child, stdout=child, stderr=child,
    ) as process:  # fmt: skip
        os.close(child)
        told = b""
        with contextlib.suppress(OSError):  # the other end is gone
            while part := os.read(parent, 4096):
                told += part
                if part.endswith(b"'no': "):
                    os.write(parent, b"yes\n")
    os.close(parent)
    assert process.returncode == 0, told.decode()
    assert "Order o2 is refunded." in told.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_demo_leaves_nothing_running(tmp_path, number):
    folder = tmp_path / "world"
    with subprocess.Popen(
        [sys.executable, "-m", "checkrein", "demo", "--yes", "--folder", str(folder)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        until = time.monotonic() + 60
        while not services(folder) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(number)
        _, problems = process.communicate(timeout=60)
    # Interrupted inside an `exec` (imports of dataclasses), CPython ends as killed by Ctrl-C,
    # whatever the exit code is: shells show 130 for both.
    assert process.returncode in (130, -signal.SIGINT), problems
    assert "Traceback" not in problems
    assert services(folder) == []


def clerk(request):
    """A model that does a refund in order, as the demo's prompt says."""
    question = str(next(m["content"] for m in request["messages"] if m["role"] == "user"))
    order = re.search(r"o[1-5]\b", question).group()
    price = {"o1": 42, "o2": 269, "o3": 89, "o4": 75, "o5": 64}[order]
    steps = [
        ToolCall("look_up_order", {"order": order}),
        ToolCall("pay_refund", {"order": order, "amount": price}),
        ToolCall("record_refund", {"order": order, "amount": price}),
        ToolCall("send_mail", {"order": order, "text": "We refunded you."}),
        ToolCall("close_case", {"order": order}),
    ]
    done = sum(m["role"] == "tool" for m in request["messages"])
    if done < len(steps):
        return Reply(tool_calls=[steps[done]], input_tokens=900, output_tokens=60)
    return Reply("Refunded.", input_tokens=900, output_tokens=60)


def test_a_providers_model_plays_the_demo(tmp_path):
    with OpenAIServer(clerk) as provider:
        done = checkrein(
            "demo", "--yes", "--json", "--model", "openai:gpt-4o", "--folder", tmp_path / "world",
            OPENAI_BASE_URL=provider.url, OPENAI_API_KEY="none",
        )  # fmt: skip
        asked = len(provider.requests)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert asked == 6 + 6 + 5
    assert (facts["a"]["leaked"], facts["a"]["after"]) == (
        [], "$42.00 paid out, 1 refund row, 1 mail"
    )  # fmt: skip
    assert (facts["c"]["restored"], facts["d"]["within"]) == (True, True)


UNHEARD = """
import os, signal, time, weakref
from checkrein_integrations.demo.interrupts import Interrupts

class Thing:
    pass

def gone(_):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)

thing = Thing()
watched = weakref.ref(thing, gone)
try:
    with Interrupts() as interrupts:
        with interrupts.insist():
            del thing
            print("not heard", flush=True)
            time.sleep(60)
        print("never reached")
except KeyboardInterrupt:
    print("heard")
"""


def test_an_interrupt_that_python_discards_is_raised_again():
    done = subprocess.run(
        [sys.executable, "-c", UNHEARD], capture_output=True, text=True, timeout=50
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "not heard\nheard\n", "")


def test_spans_go_to_a_collector(tmp_path):
    got = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        done = checkrein("demo", "--no", "--folder", tmp_path / "world", "--otlp", url)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert got
    assert all(path == "/v1/traces" for path, _ in got)
    sent = b"".join(body for _, body in got)
    assert b"execute_tool pay_refund" in sent
    assert b"casey.doyle@example.org" not in sent


def test_spans_that_no_collector_takes_are_not_told_as_sent(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    done = checkrein("demo", "--no", "--folder", tmp_path / "world", "--otlp", url)
    assert done.returncode == 1
    assert re.search(rf"  0 of \d+ spans were taken by {url}\n", done.stdout)


def test_the_program_that_the_commands_mean_is_named_where_it_would_not_be_found(tmp_path):
    done = checkrein("demo", "--no", "--folder", tmp_path / "world", PATH=os.defpath)
    own = Path(sys.executable).parent
    assert f"$ export PATH={own}:$PATH\n" in done.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--folder", "."], "not empty"),
        (["--model", "nobody:nothing"], "--model nobody:nothing"),
        (["--otlp", "ftp://here"], "--otlp ftp://here"),
    ],
)
def test_options_that_cannot_be_used_are_refused_before_anything_starts(tmp_path, options, told):
    (tmp_path / "something").write_text("")
    done = checkrein("demo", "--no", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["something"]


def test_without_langchain_it_says_what_to_install(monkeypatch):
    from checkrein.errors import ConfigError
    from checkrein_integrations.demo import command

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'checkrein\[demo\]'"):
        command(answer=True)
