"""The commands that look and set up: help, usage, output, files."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import tomllib

import pytest

from checkrein import Rein, cli, errors
from checkrein.cli._output import clean
from checkrein.cli._templates import FRAMEWORKS
from checkrein.store import Batch, NewEvent

PLAIN = re.compile(r"[^\x1b\x9b\u2500-\u257f]*\Z")
"""Text without escape sequences and box drawing."""


@pytest.fixture
def stored(desk):
    """A store with a completed session, one that failed, and one that says hostile things."""
    (desk.folder / "checkrein.toml").write_text('store = "sqlite:///shop.db"\n')
    with Rein(store=f"sqlite:///{desk.folder}/shop.db") as rein:

        def pay(order, secret="hush"):
            if order == "bad":
                raise ValueError("no such order")
            return {"paid": order}

        with rein.session(agent="billing", intent="pay o1", user="ann"):
            rein.call(pay, "o1")
        with (
            pytest.raises(ValueError, match="no such order"),
            rein.session(agent="billing", on_error="keep"),
        ):
            rein.call(pay, "bad")
        with rein.session(agent="evil\x1b[2J", intent="[bold]x[/bold]\nFAKE ROW"):
            rein.call(pay, "\x1b]0;title\x07")
    return desk


# -- help and usage


def test_help_names_every_command_and_imports_none(desk):
    done = desk.process(
        ["-X", "importtime", "-m", "checkrein", "--help"],
    )
    assert done.code == 0
    for name, (_, _, text) in cli.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(text)}$", done.out, re.MULTILINE)
    for word in ("--config", "--app", "--store", "--json", "Exit codes"):
        assert word in done.out
    loaded = {line.rpartition("|")[2].strip() for line in done.err.splitlines()}
    assert not loaded & {"typer", "rich", "pydantic", "sqlite3", "asyncio", "ruamel.yaml"}


@pytest.mark.parametrize("name", [n for n in cli.COMMANDS if n not in ("audit", "store")])
def test_every_command_explains_itself_and_has_the_shared_options(desk, name):
    done = desk.look(name, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: checkrein {name} ")
    assert cli.COMMANDS[name][2].rstrip(".") in " ".join(done.out.split())
    for option in ("--config", "--app", "--store", "--json"):
        assert option in done.out


def test_no_command_prints_the_help_and_version_the_version(desk):
    assert desk.look().out == desk.look("--help").out
    assert re.fullmatch(r"checkrein \d+\.\d+\.\d+\n", desk.look("--version").out)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sesions"], "did you mean sessions?"),
        (["--bogus"], "no such option: --bogus"),
        (["--json"], "name a command"),
        (["sessions", "--bogus"], "checkrein sessions --help"),
        (["sessions", "--limit", "many"], "--limit"),
        (["sessions", "--limit", "0"], "--limit"),
        (["sessions", "extra"], "extra"),
        (["sessions", "--state", "DEAD"], "AWAITING_APPROVAL"),
        (["show"], "SESSION"),
        (["approve"], "ID"),
        (["audit", "nothing"], "nothing"),
        (["audit"], "checkrein audit --help"),
        (["doctor", "--repair"], "--rebuild"),
        (["init", "--framework", "django"], "use one of python, langchain, crewai, openai-agents"),
        (["sessions", "--config", "missing.toml"], "checkrein init"),
        (["sessions", "--store", "memory:"], "sqlite:///checkrein.db"),
        (["sessions", "--store", "oracle://x"], "unknown scheme"),
    ],
)
def test_wrong_usage_is_2_and_one_line_on_standard_error(desk, arguments, told):
    done = desk.look(*arguments)
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.startswith("checkrein: ")
    assert done.err.count("\n") == 1
    assert told in done.err


def test_without_any_store_the_ways_to_name_one_are_told(desk):
    (desk.folder / "checkrein.toml").unlink()
    done = desk.look("sessions")
    assert done.code == 2
    for way in ("--store", "--config", "--app", "checkrein init"):
        assert way in done.err


def test_looking_makes_no_store(desk):
    done = desk.look("sessions")
    assert done.code == 1
    assert "nothing has been recorded there yet" in done.err
    assert not (desk.folder / "shop.db").exists()


def test_a_damaged_store_is_told_without_a_traceback(stored):
    (stored.folder / "shop.db").write_bytes(b"this is no database, but it is long enough" * 50)
    done = stored.cli("sessions")
    assert done.code == 1
    assert "not a SQLite database" in done.err
    assert "Traceback" not in done.err


# -- where things are found


def test_the_configuration_is_the_option_else_here_else_the_environment(stored, tmp_path):
    away = tmp_path / "away"
    away.mkdir()
    config = stored.folder / "checkrein.toml"
    assert stored.cli("sessions", cwd=away).code == 2
    assert stored.cli("sessions", "--config", config, cwd=away).code == 0
    assert stored.cli("sessions", cwd=away, CHECKREIN_CONFIG=str(config)).code == 0
    (away / "checkrein.toml").write_text('store = "sqlite:///other.db"\n')
    here = stored.cli("sessions", cwd=away, CHECKREIN_CONFIG=str(config))
    assert "other.db does not exist" in here.err


def test_the_application_is_found_here_and_beside_the_configuration(desk, tmp_path):
    away = tmp_path / "away"
    away.mkdir()
    config = desk.folder / "checkrein.toml"
    assert "shop:rein" in desk.cli("doctor", "--config", config, cwd=away).out
    assert desk.cli("recover", "--config", config, cwd=away).code == 0
    assert desk.cli("recover", "--config", config, "--app", "shop:rein", cwd=away).code == 0
    # What the file names is meant to be its neighbour; what the option names, what lies here.
    (away / "shop.py").write_text("raise RuntimeError('the one that lies here')\n")
    assert desk.cli("recover", "--config", config, cwd=away).code == 0
    here = desk.cli("recover", "--config", config, "--app", "shop:rein", cwd=away)
    assert here.code == 2
    assert "the one that lies here" in here.err
    assert f"run the command in {desk.folder}" in here.err


def test_doctor_names_tools_without_an_undo_and_not_the_undos(desk):
    with (desk.folder / "shop.py").open("a") as file:
        file.write(
            "\n@rein.tool\ndef unmake(id: str): ...\n"
            "@rein.tool(undo='unmake(result.id)')\ndef make(): ...\n"
        )
    told = desk.cli("doctor", "--json").tree["findings"]
    assert [f["what"] for f in told if "no undo" in f["detail"]] == ["mail"]


def test_ctrl_c_is_one_line_and_130(desk):
    # Short naps: a signal that comes just before a sleep begins is seen only after it.
    (desk.folder / "slow.py").write_text(
        "import time\nprint('importing', flush=True)\nwhile True: time.sleep(0.05)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "checkrein.cli", "recover", "--app", "slow:rein"],
        cwd=desk.folder, env=desk.env(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, err) == (130, "checkrein: interrupted\n")


def test_shared_options_may_stand_before_the_command(stored):
    config = stored.folder / "checkrein.toml"
    after = stored.look("sessions", "--config", config, "--json").out
    assert stored.look("--config", config, "--json", "sessions").out == after
    assert stored.look(f"--config={config}", "sessions", "--json").out == after
    url = f"sqlite:///{stored.folder}/shop.db"
    assert stored.look("--store", url, "sessions", "--json").out == after


# -- sessions and show


def test_sessions_are_listed_newest_first_and_by_page(stored):
    every = stored.look("sessions", "--json").tree
    states = [s["display_state"] for s in every["sessions"]]
    assert states == ["COMPLETED", "FAILED", "COMPLETED"]
    assert every["next"] is None
    first = stored.look("sessions", "--limit", "2", "--json").tree
    rest = stored.look("sessions", "--limit", "2", "--after", first["next"], "--json").tree
    assert first["sessions"] + rest["sessions"] == every["sessions"]
    failed = stored.look("sessions", "--state", "failed", "--json").tree["sessions"]
    assert [s["id"] for s in failed] == [every["sessions"][1]["id"]]
    billing = stored.look("sessions", "--agent", "billing", "--json").tree["sessions"]
    assert len(billing) == 2
    assert "--after" in stored.look("sessions", "--limit", "2").err


def test_a_timeline_tells_what_was_called_and_what_became_of_it(stored):
    rows = stored.look("sessions", "--json").tree["sessions"]
    shown = stored.look("show", rows[2]["id"][:12], "--json").tree
    assert (shown["agent"], shown["user"], shown["intent"]) == ("billing", "ann", "pay o1")
    (call,) = [e for e in shown["timeline"] if e.get("kind") == "tool"]
    assert (call["what"], call["step"], call["state"]) == ("pay", 1, "done")
    assert call["arguments"] == {"order": "o1", "secret": "hush"}
    assert call["result"] == {"paid": "o1"}
    assert "payloads" not in call
    failed = stored.look("show", rows[1]["id"]).out
    assert re.search(r"pay .*unknown .*ValueError: no such order", failed)
    assert (
        stored.look("show", rows[1]["id"], "--last", "1", "--json").tree["timeline"][0]["what"]
        == "session_ended"
    )


def test_exact_values_are_printed_on_demand_and_the_look_is_recorded(stored):
    id = stored.look("sessions", "--json").tree["sessions"][2]["id"]
    assert "revealed" not in stored.look("show", id).out
    revealed = stored.look("show", id, "--reveal", "--by", "bob", "--json").tree
    (call,) = [e for e in revealed["timeline"] if e.get("kind") == "tool"]
    assert {"arguments": {"order": "o1", "secret": "hush"}} in call["payloads"].values()
    events = [e for e in revealed["timeline"] if e["what"] == "revealed"]
    assert len(events) == 1
    assert "bob" in events[0]["detail"]
    assert "revealed" in stored.look("show", id).out


def test_what_an_agent_wrote_cannot_steer_the_terminal(stored):
    for done in (stored.look("sessions"), stored.look("show", _hostile(stored))):
        assert "\x1b" not in done.out
        assert "\x07" not in done.out
    listed = stored.look("sessions").out
    assert "\nFAKE ROW" not in listed
    assert "[bold]x[/bold] FAKE ROW" in listed
    assert clean("a\x1b\x9bb\u202ec") == "a\\x1b\\x9bb\\x202ec"


def _hostile(stored):
    return stored.look("sessions", "--json").tree["sessions"][0]["id"]


def test_a_terminal_without_these_letters_gets_others(stored):
    with Rein(store=f"sqlite:///{stored.folder}/shop.db") as rein, rein.session(intent="日本"):
        rein.call(int)
    done = stored.cli("sessions", PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert "\\u65e5\\u672c" in done.out


def test_a_session_that_is_not_there(stored):
    done = stored.look("show", "zzz")
    assert done.code == 1
    assert "checkrein sessions" in done.err


# -- output


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}])
def test_a_pipe_gets_plain_text_with_whole_values(stored, env):
    done = stored.cli("sessions", COLUMNS="20", **env)
    assert PLAIN.match(done.out)
    for session in stored.look("sessions", "--json").tree["sessions"]:
        assert session["id"] in done.out


@pytest.mark.parametrize(("env", "plain"), [({}, False), ({"NO_COLOR": "1"}, True)])
def test_a_terminal_gets_colours_unless_it_asks_not_to(stored, env, plain):
    seen = on_a_terminal(stored, "sessions", COLUMNS="200", **env)
    assert b"COMPLETED" in seen
    assert (b"\x1b[" in seen) is not plain


def test_a_narrow_terminal_gets_short_ids_and_whole_words(stored):
    rows = stored.look("sessions", "--json").tree["sessions"]
    listed = on_a_terminal(stored, "sessions", COLUMNS="80").decode()
    for row in rows:
        assert re.search(rf"{row['id'][:12]} .*{row['display_state']}", listed)
        assert row["id"] not in listed
    shown = on_a_terminal(stored, "show", rows[1]["id"], COLUMNS="80").decode()
    assert re.search(r"pay .*unknown", shown)
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in shown.splitlines()) <= 80


def on_a_terminal(stored, *arguments, **env):
    near, far = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "checkrein.cli", *arguments],
        cwd=stored.folder,
        env=stored.env(TERM="xterm", **env),
        stdout=far,
        stderr=far,
        stdin=far,
    )
    os.close(far)
    seen = b""
    while True:
        try:
            piece = os.read(near, 4096)
        except OSError:  # the other end was closed
            break
        if not piece:
            break
        seen += piece
    os.close(near)
    assert process.wait() == 0
    return seen


def test_a_reader_that_has_seen_enough_is_no_error(stored):
    done = subprocess.run(
        f"{sys.executable} -m checkrein.cli show {_hostile(stored)} | head -c 5",
        shell=True,
        cwd=stored.folder,
        env=stored.env(),
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["sessions"], ["approvals"], ["plugins"], ["doctor"], ["audit", "verify"], ["recover"],
        ["stop", "--all"], ["init", "--config", "new.toml"], ["new-plugin", "quiet-hours"],
    ],
    ids=lambda a: a[0],
)  # fmt: skip
def test_json_is_one_document_and_nothing_else(stored, arguments):
    done = stored.look(*arguments, "--json")
    assert isinstance(json.loads(done.out), dict)
    assert done.err == ""


# -- the chain


def test_a_changed_event_is_found(stored):
    assert stored.look("audit", "verify").code == 0
    import sqlite3

    connection = sqlite3.connect(stored.folder / "shop.db")
    with connection:
        connection.execute(
            "UPDATE events SET view = replace(view, 'o1', 'o9') WHERE kind = 'intent'"
        )
    connection.close()
    done = stored.look("audit", "verify", "--json")
    assert done.code == 1
    assert done.tree["verified"] == 3
    assert [b["kind"] for b in done.tree["broken"]] == ["intent"]
    doctor = stored.look("doctor")
    assert doctor.code == 1
    assert re.search(r"fault +store +chain of", doctor.out)


def test_doctor_re_folds_the_store(stored):
    assert "chains, states and holds agree" in stored.look("doctor", "--rebuild").out
    import sqlite3

    connection = sqlite3.connect(stored.folder / "shop.db")
    with connection:
        connection.execute("UPDATE sessions SET n = n + 5")
    connection.close()
    assert stored.look("doctor", "--rebuild").code == 1


# -- files


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_init_writes_a_file_that_can_be_read(desk, framework):
    (desk.folder / "checkrein.toml").unlink()
    done = desk.look("init", "--framework", framework)
    assert done.code == 0
    text = (desk.folder / "checkrein.toml").read_text()
    tree = tomllib.loads(text)
    assert list(tree["plugins"]) == ["redaction", "scope", "budget", "cost"]
    assert framework == "python" or framework.replace("-", "_") in text
    # Commented settings are settings: each can be switched on.
    for line in re.findall(r"^# (\w+ = [^#\n]*)", text, re.MULTILINE):
        assert set(tomllib.loads(line)) <= settings(), line


def test_what_init_writes_starts_with_the_built_in_plugins(desk, monkeypatch):
    project = tomllib.loads((desk.root / "pyproject.toml").read_text(encoding="utf-8"))
    info = desk.folder / "site" / "checkrein-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: checkrein\nVersion: 0.1.0\n")
    table = project["project"]["entry-points"]["checkrein"]
    (info / "entry_points.txt").write_text(
        "[checkrein]\n" + "\n".join(f"{name} = {value}" for name, value in table.items())
    )
    monkeypatch.syspath_prepend(str(desk.folder / "site"))
    assert desk.look("init", "--force").code == 0
    with Rein.from_file(desk.folder / "checkrein.toml") as rein:
        names = ["redaction", "scope", "budget", "cost"]
        assert [name for name, _ in rein.plugins] == names

        def shell_out():
            raise AssertionError("ran")

        with pytest.raises(errors.Denied), rein.session():
            rein.call(shell_out)


def settings():
    from checkrein._config_model import Settings, ToolSettings

    return {*Settings.model_fields, *ToolSettings.model_fields}


def test_init_overwrites_nothing_unless_told(desk):
    before = (desk.folder / "checkrein.toml").read_text()
    done = desk.look("init")
    assert done.code == 1
    assert "--force" in done.err
    assert (desk.folder / "checkrein.toml").read_text() == before
    assert desk.look("init", "--force").code == 0
    assert (desk.folder / "checkrein.toml").read_text() != before
    assert desk.look("init", "--config", "x.yaml").code == 2


def test_a_new_plugin_is_written_once(desk):
    done = desk.look("new-plugin", "quiet-hours", "--json")
    assert done.code == 0
    assert "checkrein-quiet-hours/checkrein_quiet_hours.py" in done.tree["written"]
    again = desk.look("new-plugin", "quiet-hours")
    assert again.code == 2
    assert "not empty" in again.err


# -- plugins and commands of other packages


@pytest.fixture
def others(desk, monkeypatch):
    """A distribution with a good and a broken plugin, and good and broken commands."""
    site = desk.folder / "site"
    info = site / "other_things-3.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-things\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text(
        "[checkrein]\nother_guard = other_things:Guard\nother_broken = other_broken:Guard\n"
        "[checkrein.commands]\nhello = other_things:hello\ngroup = other_things:group\n"
        "bad = other_broken:command\nsessions = other_broken:sessions\n"
    )
    (site / "other_things.py").write_text(OTHER)
    (site / "other_broken.py").write_text("1 / 0\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *_path()]))
    return desk


def _path():
    return list(filter(None, [os.environ.get("PYTHONPATH")]))


OTHER = '''
import typer
from checkrein import Deny, Plugin


class Guard(Plugin):
    def pre_call(self, call):
        return None

    def open_stream(self, call, channel):
        return Filter() if channel == "text" else None


class Filter:
    holdback = 12

    def feed(self, text):
        return text


def hello(name: str = "you"):
    """Greets."""
    print(f"hello {name}")


group = typer.Typer()


@group.command()
def one():
    raise typer.Exit(3)


@group.command()
def two():
    print("two")
'''


def test_commands_of_other_packages_are_listed_and_run(others):
    done = others.cli("--help")
    assert re.search(r"^  hello +from other-things 3\.1$", done.out, re.MULTILINE)
    assert re.search(r"^  bad +from other-things 3\.1$", done.out, re.MULTILINE)
    assert "Traceback" not in done.err
    assert others.cli("hello", "--name", "ann").out == "hello ann\n"
    assert others.cli("group", "two").out == "two\n"
    assert others.cli("group", "one").code == 3


def test_a_broken_command_breaks_itself_only(others):
    done = others.cli("bad")
    assert done.code == 1
    assert "other-things 3.1" in done.err
    assert "ZeroDivisionError" in done.err
    assert done.err.count("\n") == 1
    # Nobody takes the name of a command of the core.
    assert "nothing has been recorded" in others.cli("sessions").err


def test_doctor_lists_every_plugin_and_command_with_version_and_reason(others):
    done = others.cli("doctor", "--json")
    assert done.code == 1
    found = {(f["area"], f["what"]): f for f in done.tree["findings"]}
    assert found["plugin", "other_guard"]["status"] == "ok"
    assert "3.1" in found["plugin", "other_guard"]["detail"]
    for key in (("plugin", "other_broken"), ("command", "bad")):
        assert found[key]["status"] == "fault"
        assert "other-things 3.1" in found[key]["detail"]
        assert "ZeroDivisionError" in found[key]["detail"]
    assert found["command", "hello"]["status"] == "ok"
    assert found["system", "python"]["detail"].startswith("3.")


def test_plugins_prints_the_order_and_what_streams_hold_back(others):
    (others.folder / "checkrein.toml").write_text(
        '[plugins.late]\nuse = "other_guard"\n[plugins.other_guard]\n'
    )
    done = others.cli("plugins", "--json")
    assert done.code == 0, done.err
    assert done.tree["order"]["pre_call"] == ["late", "other_guard"]
    assert done.tree["hold_backs"] == [
        {"plugin": "late", "channel": "text", "characters": 12},
        {"plugin": "other_guard", "channel": "text", "characters": 12},
    ]
    names = {a["name"]: a for a in done.tree["installed"]}
    assert names["other_broken"]["version"] == "3.1"
    assert "late > other_guard" in others.cli("plugins").out
    assert "24 characters late" in others.cli("plugins").out


def test_a_configured_plugin_that_does_not_load_is_a_fault_with_its_line(others):
    (others.folder / "checkrein.toml").write_text("# x\n[plugins.other_broken]\n")
    done = others.cli("plugins")
    assert done.code == 2
    assert "checkrein.toml:2" in done.err
    doctor = others.cli("doctor")
    assert doctor.code == 1
    assert "checkrein.toml:2" in doctor.out


def test_states_that_no_process_makes_here(desk):
    """Rows as another process may have left them."""
    (desk.folder / "checkrein.toml").write_text('store = "sqlite:///shop.db"\n')
    with Rein(store=f"sqlite:///{desk.folder}/shop.db") as rein:
        from checkrein.store import SessionPut

        def put(id, **changes):
            event = NewEvent("session_started", "", rein.clock(), {})
            made = SessionPut(create=True, state="ACTIVE", owner="", body={"agent": "x"})
            rein.store.commit(Batch(id, (event,), event.at, session_put=made))
            for key, value in changes.items():
                event = NewEvent("note", "", rein.clock(), {})
                rein.store.commit(
                    Batch(id, (event,), event.at, session_put=SessionPut(**{key: value}))
                )

        put("a")
        put("b", rollback="rolling_back")
        put("c", rollback="rolled_back")
        put("d", rollback="partial")
        put("e", state="ABANDONED")
        put("f", stopped=True)
    found = {s["id"]: s["display_state"] for s in desk.look("sessions", "--json").tree["sessions"]}
    assert found == {
        "a": "SUSPENDED", "b": "ROLLING_BACK", "c": "REVERTED", "d": "PARTIALLY_REVERTED",
        "e": "ABANDONED", "f": "STOPPED",
    }  # fmt: skip


def test_commands_of_a_group_are_told_whole_and_by_their_own_name(capsys):
    assert cli.run(["audit", "--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]
    assert cli.run(["audit", "export", "--nope"]) == 2
    assert "(see checkrein audit export --help)" in capsys.readouterr().err
