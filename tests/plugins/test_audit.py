"""The plugin `audit`: copies of the audit log, complete in a file, counted where they are lost."""

import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from checkrein import Rein, export
from checkrein.errors import ConfigError
from checkrein_plugins.audit import Audit


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def work(rein, count=3, text="confidential"):
    with rein.session(agent="desk") as session:
        for _ in range(count):
            rein.call(str.upper, text)
    return session.id


def test_a_file_holds_every_event_once_and_goes_on_where_it_ended(tmp_path):
    path, store = tmp_path / "log" / "audit.jsonl", f"sqlite:///{tmp_path}/r.db"
    with Rein(store=store) as rein:
        work(rein)  # before there was a file
    for _ in range(2):
        with Rein(store=store, plugins=[Audit(file=str(path))]) as rein:
            work(rein)
    with Rein(store=store) as rein:
        assert lines(path) == list(export.rows(rein.store))
    assert path.stat().st_mode & 0o777 == 0o600


def test_metadata_only_copies_no_contents(tmp_path):
    path = tmp_path / "audit.jsonl"
    rein = Rein(store="memory:", plugins=[Audit(file=str(path), metadata_only=True)])
    work(rein)
    rein.close()
    assert len(lines(path)) == 8
    assert "confidential" not in path.read_text(encoding="utf-8").lower()


def test_functions_and_stdout_get_this_processs_events(tmp_path):
    program = """
        import sys
        from checkrein import Rein
        from checkrein_plugins.audit import Audit

        got = []
        rein = Rein(store="memory:", plugins=[Audit(to=got.append, stdout=True)])
        with rein.session():
            rein.call(max, 1, 2)
        rein.close()
        assert [row["kind"] for row in got] == [
            "session_started", "intent", "outcome", "session_ended"
        ], got
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["n"] for line in done.stdout.splitlines()] == [1, 2, 3, 4]


def test_what_a_sink_does_not_take_is_counted_and_the_run_goes_on(caplog):
    held = threading.Event()

    def slow(row):
        held.wait(20)

    def broken(row):
        raise OSError("down")

    audit = Audit(to=[slow, broken], queue=2)
    rein = Rein(store="memory:", plugins=[audit])
    with caplog.at_level(logging.WARNING, logger="checkrein.audit"):
        work(rein, count=5)  # 12 events: one is being taken, two wait
        held.set()
        rein.close()
    assert audit.dropped >= 9 + 1
    assert any("did not get" in record.getMessage() for record in caplog.records)
    assert "OSError" in caplog.text


def test_a_file_of_another_store_is_refused(tmp_path):
    path = tmp_path / "audit.jsonl"
    rein = Rein(store=f"sqlite:///{tmp_path}/a.db", plugins=[Audit(file=str(path))])
    work(rein)
    rein.close()
    with Rein(store=f"sqlite:///{tmp_path}/b.db") as other:
        work(other)
        work(other)
    with pytest.raises(ConfigError, match="belongs to another store"):
        Rein(store=f"sqlite:///{tmp_path}/b.db", plugins=[Audit(file=str(path))])
    with pytest.raises(ConfigError, match="lost its end"):
        Rein(store=f"sqlite:///{tmp_path}/c.db", plugins=[Audit(file=str(path))])
    path.write_text("not a row\n")
    with pytest.raises(ConfigError, match="no row of an audit log"):
        Rein(store=f"sqlite:///{tmp_path}/a.db", plugins=[Audit(file=str(path))])


WORKER = """
import sys
from checkrein import Rein
from checkrein_plugins.audit import Audit

rein = Rein(store=sys.argv[1], plugins=[Audit(file=sys.argv[2])])
print("up", flush=True)
while True:
    with rein.session():
        for number in range(20):
            rein.call(str.upper, "x" * number)
"""


def test_killed_writers_leave_a_file_without_gaps_and_repeats(tmp_path):
    path, store = tmp_path / "audit.jsonl", f"sqlite:///{tmp_path}/r.db"
    chance = random.Random(7)
    for _ in range(6):
        both = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, store, str(path)], stdout=subprocess.PIPE
            )
            for _ in range(2)
        ]
        for process in both:
            process.stdout.readline()
        time.sleep(chance.uniform(0.05, 0.4))
        for process in both:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
    if path.exists():  # a line that was cut by a kill
        with path.open("ab") as file:
            file.write(b'{"seq": 99999999, "sess')
    with Rein(store=store, plugins=[Audit(file=str(path))]) as rein:
        work(rein)
        every = [row["seq"] for row in export.rows(rein.store)]
    assert len(every) > 100
    assert [row["seq"] for row in lines(path)][: len(every)] == every


class Collector:
    """Takes log records over HTTP, or refuses them."""

    def __init__(self, status=200):
        self.bodies = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                outer.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_a_collector_gets_log_records():
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    with Collector() as collector:
        audit = Audit(otlp=collector.url)
        rein = Rein(store="memory:", plugins=[audit])
        id = work(rein)
        rein.close()
    records = [
        record
        for body in collector.bodies
        for resource in ExportLogsServiceRequest.FromString(body).resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
    assert [r.event_name for r in records][:2] == ["checkrein.session_started", "checkrein.intent"]
    assert len(records) == 8
    found = {a.key: a.value.string_value for a in records[0].attributes}
    assert found["checkrein.session"] == id
    assert audit.dropped == 0


def test_a_collector_that_refuses_is_counted():
    with Collector(status=400) as collector:
        audit = Audit(otlp=collector.url)
        rein = Rein(store="memory:", plugins=[audit])
        work(rein)
        rein.close()
    assert audit.dropped == 8


def test_a_collector_that_is_down_or_slow_does_not_hold_up_the_run(caplog):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        audit = Audit(otlp=url)
        rein = Rein(store="memory:", plugins=[audit])
        begun = time.monotonic()
        work(rein)
        assert time.monotonic() - begun < 2, "the run went on"
        rein.close()
    assert audit.dropped == 8
    assert "did not get 8 events" in caplog.text


def test_wrong_settings(tmp_path):
    for settings, said in [
        ({}, "name a sink"),
        ({"to": [3]}, r"audit.to\[0\]"),
        ({"file": ""}, "audit.file"),
        ({"otlp": "collector"}, "must be an http"),
        ({"fil": "x"}, "unknown key 'fil'"),
    ]:
        with pytest.raises(ConfigError, match=said):
            Audit(**settings)
    (tmp_path / "audit.jsonl").mkdir()
    with pytest.raises(ConfigError, match="Is a directory"):
        Rein(store="memory:", plugins=[Audit(file=str(tmp_path / "audit.jsonl"))])
