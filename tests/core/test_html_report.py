"""The HTML report of a session: whole in itself, safe, and usable in a browser."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from checkrein import Deny, Plugin, Rein
from checkrein.html_report import html_report
from checkrein.replay import Replay

HOSTILE = "</script><img src=x onerror=alert(1)>&amp;\u2028"


class Guard(Plugin):
    def pre_call(self, call):
        return Deny("not today", rule="no") if call.name == "wipe" else None


@pytest.fixture
def rein():
    with Rein(plugins=[Guard()], store="memory:") as made:
        yield made


def record(rein, calls):
    """A session with so many calls, every tenth of them refused."""

    @rein.tool(name=f"pay{calls}")
    def pay(order, note="a note of some length, as agents write them"):
        return {"order": order, "paid": True, "note": note}

    @rein.tool(name="wipe")
    def wipe():
        pass

    with rein.session(agent="desk", on_error="keep") as session:
        for number in range(calls):
            if number % 10 == 9:
                with contextlib.suppress(Exception):
                    wipe()
            else:
                pay(f"order-{number}")
    return session


def test_it_loads_nothing_and_holds_the_journals_views(rein):
    with rein.session() as session:
        rein.call(str.upper, HOSTILE)
    text = html_report(Replay(session), {"agent": HOSTILE})
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", text)
    assert "default-src 'none'" in text
    # The one script element with data ends where it is meant to.
    inside = text.split('type="application/json">')[1].split("</script>")[0]
    data = json.loads(inside)
    assert dict(map(tuple, data["facts"]))["agent"] == HOSTILE
    assert any(HOSTILE.upper() in row for row in data["rows"])
    assert text.count("<img") == 0


def test_ten_thousand_calls_stay_under_five_megabytes(rein):
    text = html_report(Replay(record(rein, 10_000)))
    assert len(text.encode()) < 5_000_000
    data = json.loads(text.split('type="application/json">')[1].split("</script>")[0])
    assert len(data["rows"]) == 10_002
    assert "cut at" in data["note"]


def test_long_texts_are_cut_after_they_were_viewed(rein):
    with rein.session() as session:
        rein.call(str.upper, "x" * 50_000)
    text = html_report(Replay(session))
    assert len(text) < 60_000


def test_the_command_writes_a_file_and_says_why_it_cannot(tmp_path):
    url = f"sqlite:///{tmp_path}/r.db"
    with Rein(store=url) as made, made.session() as session:
        made.call(max, 1, 2)

    def command(*more):
        return subprocess.run(
            [sys.executable, "-m", "checkrein", "report", session.id, "--store", url, *more],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    done = command("-o", str(tmp_path / "r.html"))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert command("-o", "-").stdout.startswith("<!doctype html>")
    done = command("-o", str(tmp_path / "no" / "r.html"))
    assert done.returncode == 1
    assert "r.html cannot be written: No such file or directory" in done.stderr


# -- in a browser


class Browser:
    """Headless Chromium, spoken to as WebDriver says."""

    def __init__(self, url):
        self.url = url
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        options = {"args": ["--headless=new", "--disable-gpu", *root]}
        found = shutil.which("chromium") or shutil.which("chromium-browser")
        if found:
            options["binary"] = found
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        self.session = self.post("/session", wanted)["sessionId"]

    def post(self, path, body):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, path):
        self.post(f"/session/{self.session}/url", {"url": path.as_uri()})

    def size(self, width, height):
        self.post(f"/session/{self.session}/window/rect", {"width": width, "height": height})

    def run(self, script):
        return self.post(f"/session/{self.session}/execute/sync", {"script": script, "args": []})


@pytest.fixture(scope="module")
def browser():
    driver = shutil.which("chromedriver")
    if driver is None:
        if os.environ.get("CHECKREIN_REQUIRE_BROWSER"):
            pytest.fail("chromedriver is missing: install Debian's chromium-driver")
        pytest.skip("no chromedriver here: the page is not opened in a browser")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(300):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/status"):
                    break
                time.sleep(0.1)
            page = Browser(url)
            yield page
            request = urllib.request.Request(f"{url}/session/{page.session}", method="DELETE")
            urllib.request.urlopen(request, timeout=30).close()
        finally:
            process.terminate()


ROWS = "return [...document.querySelectorAll('#room .row')].map((row) => row.textContent)"
CHOOSE = """
const input = document.getElementById("{id}");
input.value = {value};
input.dispatchEvent(new Event("input", {{ bubbles: true }}));
return document.getElementById("count").textContent;
"""


def test_a_browser_shows_filters_and_opens_the_rows(rein, browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(html_report(Replay(record(rein, 2_000))), encoding="utf-8")
    browser.size(1200, 900)
    browser.open(path)
    rows = browser.run(ROWS)
    assert 10 < len(rows) < 100, "only what can be seen is drawn"
    assert "session_started" in rows[0]
    assert "order-0" in rows[1]
    assert browser.run("return document.querySelectorAll('#charts figure').length") >= 3
    # 2,000 calls, the session's begin and end.
    assert browser.run("return document.getElementById('count').textContent") == "2002 steps"
    denied = browser.run(
        "const options = [...document.getElementById('outcome').options];"
        "return options.find((option) => option.text === 'denied').value"
    )
    assert browser.run(CHOOSE.format(id="outcome", value=f'"{denied}"')) == "200 of 2002 steps"
    assert all("wipe" in row for row in browser.run(ROWS))
    assert browser.run(CHOOSE.format(id="outcome", value='""')) == "2002 steps"
    assert browser.run(CHOOSE.format(id="text", value='"order-77"')) == "10 of 2002 steps"
    browser.run("document.querySelector('#room .row').click()")
    shown = browser.run("return document.querySelector('dialog[open] dl').textContent")
    assert '"order": "order-77"' in shown


def test_scrolling_reaches_the_last_row(rein, browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(html_report(Replay(record(rein, 2_000))), encoding="utf-8")
    browser.open(path)
    browser.run(
        "const list = document.getElementById('list'); list.scrollTop = list.scrollHeight;"
        "list.dispatchEvent(new Event('scroll'))"
    )
    assert "session_ended" in browser.run(ROWS)[-1]


def test_a_phone_sees_it_without_scrolling_sideways(rein, browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(html_report(Replay(record(rein, 50))), encoding="utf-8")
    browser.size(500, 900)
    browser.open(path)
    wide = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert browser.run(wide)
    assert "order-0" in browser.run(ROWS)[1]


def test_what_an_agent_wrote_is_text_in_the_browser(rein, browser, tmp_path):
    with rein.session() as session:
        rein.call(str.upper, HOSTILE)
    path = tmp_path / "report.html"
    path.write_text(html_report(Replay(session), {"agent": HOSTILE}), encoding="utf-8")
    browser.open(path)
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert HOSTILE in browser.run("return document.getElementById('facts').textContent")
