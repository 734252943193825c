"""The commands that decide, stop and undo, over several real processes."""

import json
import signal
import time

import pytest


def ask(desk, *, amount=500, wait="suspend"):
    """An agent asks for something big and ends; the approval's id."""
    done = desk.python(f"import shop; shop.run(('o1', 5), ('o2', {amount}), wait={wait!r})")
    assert "ApprovalPending" in done.err
    (request,) = desk.approvals()
    return request["id"]


def test_one_terminal_asks_and_another_approves_and_resumes(desk):
    token = ask(desk)
    (session,) = desk.sessions()
    assert session["display_state"] == "AWAITING_APPROVAL"
    early = desk.cli("resume", token)
    assert early.code == 1
    assert f"checkrein approve {token}" in early.err
    assert desk.done() == {"o1": "5"}

    done = desk.cli("approve", token, "--by", "ann", "--masked-ok")
    assert (done.code, desk.sessions()[0]["display_state"]) == (0, "APPROVED")
    assert f"checkrein resume {token}" in done.err
    resumed = desk.cli("resume", token, "--json")
    assert resumed.code == 0
    assert resumed.tree["result"] == "o2"
    assert desk.done() == {"o1": "5", "o2": "500"}

    again = desk.cli("resume", token)
    assert (again.code, desk.done()) == (0, {"o1": "5", "o2": "500"})
    twice = desk.cli("approve", token, "--masked-ok")
    assert twice.code == 1
    assert "already" in twice.err


def test_an_agent_that_was_killed_while_it_waited_is_resumed(desk):
    process = desk.start("import shop; shop.run(('o1', 500), wait='block')")
    process.stdout.readline()
    while not desk.approvals():
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGKILL)
    process.wait()
    (request,) = desk.approvals()
    recovered = desk.cli("recover", "--json")
    assert (recovered.code, recovered.tree["waiting"]) == (0, [request["session"]])
    assert desk.look("approve", request["id"], "--masked-ok").code == 0
    assert desk.cli("resume", request["id"]).code == 0
    assert desk.done() == {"o1": "500"}


def test_an_agent_that_waits_goes_on_when_another_terminal_approves(desk):
    process = desk.start("import shop; shop.run(('o1', 500), wait='block')")
    process.stdout.readline()
    while not desk.approvals():
        assert process.poll() is None, process.stderr.read()
    (request,) = desk.approvals()
    assert desk.look("approve", request["id"], "--masked-ok").code == 0
    process.communicate()
    assert (process.returncode, desk.done()) == (0, {"o1": "500"})


def test_a_rejection_is_told_and_nothing_runs(desk):
    token = ask(desk)
    done = desk.look("reject", token, "--by", "ann", "--reason", "too much", "--json")
    assert (done.code, done.tree["state"], done.tree["by"]) == (0, "rejected", "ann")
    resumed = desk.cli("resume", token)
    assert resumed.code == 1
    assert "ann" in resumed.err
    # The refusal fails the session, as it would have where the agent waited.
    assert (desk.done(), desk.sessions()[0]["display_state"]) == ({}, "REVERTED")


def test_an_edited_argument_is_what_runs(desk):
    token = ask(desk)
    done = desk.look("approve", token, "--set", "amount=90", "--set", 'card="99"', "--masked-ok")
    assert done.code == 0, done.err
    assert desk.cli("resume", token).code == 0
    assert desk.done() == {"o1": "5", "o2": "90"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("amount", "NAME=JSON"),
        ("amunt=3", "card, order"),
        ("order=o3", "needs quotes"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(desk, given, told):
    token = ask(desk)
    done = desk.look("approve", token, "--set", given, "--masked-ok")
    assert done.code == 2
    assert told in done.err
    assert [a["state"] for a in desk.approvals()] == ["pending"]


def test_masked_fields_take_a_look_or_a_word_and_both_are_recorded(desk):
    token = ask(desk)
    listed = desk.look("approvals")
    assert "card=**** (masked)" in listed.out
    assert "4242" not in listed.out
    refused = desk.look("approve", token)
    assert refused.code == 1
    assert "--reveal" in refused.err
    assert "--masked-ok" in refused.err

    shown = desk.look("approve", token, "--reveal", "--by", "ann")
    assert shown.code == 0
    assert "4242" in shown.out
    (session,) = desk.sessions()
    timeline = desk.look("show", session["id"], "--json").tree["timeline"]
    whats = [entry["what"] for entry in timeline]
    assert whats.index("revealed") < whats.index("approval_decided")
    assert "ann" in next(e["detail"] for e in timeline if e["what"] == "revealed")


def test_an_approval_is_listed_with_what_a_person_needs(desk):
    token = ask(desk)
    (request,) = desk.approvals()
    assert (request["tool"], request["rule"], request["risk"]) == ("refund", "big", "high")
    assert (request["agent"], request["masked"], request["who"]) == ("desk", ["card"], [])
    (row,) = [line for line in desk.look("approvals").out.splitlines() if token in line]
    for part in ("desk", "refund(order=o2, amount=500, card=**** (masked))", "more than 100 [big]"):
        assert part in row


def test_a_tool_that_raises_when_it_is_resumed_is_told_in_one_line(desk):
    text = (desk.folder / "shop.py").read_text()
    token = ask(desk)
    failing = text.replace(
        "    if order ==", "    print('noise')\n    raise OSError('no')\n    if "
    )
    (desk.folder / "shop.py").write_text(failing.replace("import os\n", "import os\nprint('hi')\n"))
    desk.look("approve", token, "--masked-ok")
    done = desk.cli("resume", token, "--json")
    assert (done.code, done.out) == (1, "")
    assert "refund raised OSError: no; its effect may have happened" in done.err
    assert "Traceback" not in done.err


def test_standard_output_is_the_commands_own(desk):
    desk.python("import shop; shop.run(('o1', 1), ('killed', 3))")
    text = (desk.folder / "shop.py").read_text()
    noisy = text.replace("import os\n", "import os\nprint('noise')\n", 1)
    noisy = noisy.replace("def take_back(order):\n", "def take_back(order):\n    print('noise')\n")
    (desk.folder / "shop.py").write_text(noisy)
    done = desk.cli("recover", "--json")
    assert (done.code, done.tree["left"]) == (0, 0)
    assert "noise" in done.err


def test_lapsed_requests_do_not_hide_those_that_wait(desk):
    old = ask(desk)
    desk.python("import shop; shop.run(('o3', 600), wait='suspend')")
    import sqlite3

    connection = sqlite3.connect(desk.folder / "shop.db")
    with connection:
        changed = connection.execute(
            "UPDATE records SET body = replace(body, '\"expires\":', '\"expires\":0.') "
            "WHERE kind = 'approval' AND id = ?",
            (old,),
        )
        assert changed.rowcount == 1
    connection.close()
    listed = desk.look("approvals", "--limit", "1", "--json").tree["approvals"]
    assert [request["arguments"]["order"] for request in listed] == ["o3"]


def test_ids_may_be_cut_as_long_as_they_are_unique(desk):
    token = ask(desk)
    desk.python("import shop; shop.run(('o3', 600), wait='suspend')")
    several = desk.look("approve", "ap-", "--masked-ok")
    assert several.code == 1
    assert "2 approvals begin with" in several.err
    assert desk.look("approve", "", "--masked-ok").code == 1
    none = desk.look("approve", "ap-zz", "--masked-ok")
    assert none.code == 1
    assert "checkrein approvals" in none.err
    assert desk.look("approve", token[:14], "--masked-ok").code == 0
    assert desk.look("approve", token[3:14], "--masked-ok").code == 1  # the same: decided already


def test_recover_undoes_what_a_killed_process_left(desk):
    killed = desk.python("import shop; shop.run(('o1', 1), ('o2', 2), ('killed', 3))")
    assert killed.code == -signal.SIGKILL
    assert desk.done() == {"killed": "3", "o1": "1", "o2": "2"}
    (session,) = desk.sessions()
    story = desk.look("show", session["id"], "--json").tree["timeline"]
    assert [e["state"] for e in story if e.get("kind")] == ["done", "done", "unknown"]
    (session,) = desk.sessions()
    assert session["display_state"] == "ORPHANED"
    doctor = desk.cli("doctor", "--json")
    assert "checkrein recover" in json.dumps(doctor.tree)

    done = desk.cli("recover", "--json")
    assert (done.code, done.tree["left"]) == (0, 0)
    (report,) = done.tree["sessions"]
    assert [a["status"] for a in report["actions"]] == ["undone"] * 3
    assert desk.done() == {}
    assert desk.sessions()[0]["display_state"] == "REVERTED"
    again = desk.cli("recover")
    assert (again.code, again.out) == (0, "nothing to recover\n")


def test_recover_settles_what_is_in_doubt_only_after_its_time(desk):
    text = (desk.folder / "shop.py").read_text()
    lost = text.replace(
        "    (EFFECTS / order).write_text(str(amount))\n    if order", "    if order"
    )
    (desk.folder / "shop.py").write_text(lost.replace("settle_time=0", "settle_time=600"))
    begun = time.time()
    desk.python("import shop; shop.run(('killed', 3))")
    first = desk.cli("recover", "--json")
    assert first.code == 1
    assert 0 < first.tree["settles_in"] <= 600
    assert first.tree["sessions"][0]["actions"][0]["status"] == "in_doubt"
    assert "--settle" in desk.cli("recover").err
    # Due in about three seconds from now: the command waits for what is left of them.
    due = time.time() - begun + 3
    (desk.folder / "shop.py").write_text(lost.replace("settle_time=0", f"settle_time={due}"))
    settled = desk.cli("recover", "--settle", "--json")
    assert (settled.code, settled.tree["left"]) == (0, 0)
    assert time.time() - begun >= due


def test_recover_without_the_application_leaves_a_session_alone(desk):
    desk.python("import shop; shop.run(('o1', 1), ('killed', 3))")
    (desk.folder / "checkrein.toml").write_text('store = "sqlite:///shop.db"\n')
    done = desk.cli("recover")
    assert done.code == 2
    assert "--app MODULE:REIN" in done.err
    assert desk.sessions()[0]["display_state"] == "ORPHANED"
    assert desk.cli("recover", "--app", "shop:rein").code == 0
    assert desk.done() == {}


def test_a_session_is_stopped_before_its_next_call_in_another_process(desk):
    process = desk.start("""
        import shop
        from checkrein import errors
        with shop.rein.session(agent="desk", on_error="keep") as session:
            shop.refund("o1", 1)
            print(session.id, flush=True)
            input()
            try:
                shop.refund("o2", 2)
            except errors.Halted as error:
                print("halted", flush=True)
    """)
    session = process.stdout.readline().strip()
    done = desk.cli("stop", session[:10], "--json")
    assert (done.code, done.tree) == (0, {"stopped": 1})
    assert desk.sessions()[0]["display_state"] == "STOPPED"
    out, err = process.communicate("go\n")
    assert out == "halted\n", err
    assert desk.done() == {"o1": "1"}
    late = desk.look("stop", session)
    assert late.code == 1


def test_stop_takes_an_agent_or_all_and_nothing_at_once(desk):
    ask(desk)
    assert desk.look("stop").code == 2
    assert desk.look("stop", "--all", "--agent", "desk").code == 2
    nobody = desk.look("stop", "--agent", "nobody", "--json")
    assert (nobody.code, nobody.tree) == (1, {"stopped": 0})
    assert desk.look("stop", "--agent", "nobody").out == (
        "no session of agent nobody is open: nothing was stopped\n"
    )
    assert desk.look("stop", "--agent", "desk", "--json").tree == {"stopped": 1}
    assert desk.look("stop", "--all", "--json").tree == {"stopped": 1}


def test_rollback_prints_its_plan_and_then_does_it(desk):
    desk.python("""
        import shop
        with shop.rein.session(agent="desk") as session:
            shop.refund("o1", 1)
            shop.mail("ann")
            shop.refund("o2", 2)
    """)
    (session,) = desk.sessions()
    assert session["display_state"] == "COMPLETED"
    plan = desk.cli("rollback", session["id"], "--dry-run", "--json")
    steps = [(a["name"], a["status"]) for a in plan.tree["actions"]]
    assert steps == [("refund", "planned"), ("mail", "not_undoable"), ("refund", "planned")]
    assert desk.done() == {"mail-ann": "", "o1": "1", "o2": "2"}

    done = desk.cli("rollback", session["id"][:8])
    assert done.code == 1
    assert "2 undone, 1 not_undoable" in done.out
    assert desk.done() == {"mail-ann": ""}
    assert desk.sessions()[0]["display_state"] == "PARTIALLY_REVERTED"


def test_what_needs_the_application_says_so(desk):
    token = ask(desk)
    desk.look("approve", token, "--masked-ok")
    (desk.folder / "checkrein.toml").write_text('store = "sqlite:///shop.db"\n')
    for command in (["resume", token], ["rollback", desk.sessions()[0]["id"]]):
        done = desk.cli(*command)
        assert done.code == 2
        assert "--app MODULE:REIN" in done.err
    assert desk.done() == {"o1": "5"}
    assert desk.cli("resume", token, "--app", "shop:rein").code == 0


@pytest.mark.parametrize(
    ("app", "told"),
    [
        ("shop", "MODULE:REIN"),
        ("nowhere:rein", "cannot be imported"),
        ("shop:rain", "its Rein is called rein"),
        ("shop:HERE", "not a Rein"),
        ("broken:rein", "ZeroDivisionError"),
    ],
)
def test_an_application_that_cannot_be_used(desk, app, told):
    (desk.folder / "broken.py").write_text("1 / 0\n")
    ask(desk)
    done = desk.cli("recover", "--app", app)
    assert done.code == 2
    assert told in done.err
    assert "Traceback" not in done.err


def test_an_application_may_be_a_function_that_makes_the_rein(desk):
    ask(desk)
    (desk.folder / "factory.py").write_text("def make():\n    import shop\n    return shop.rein\n")
    assert desk.cli("recover", "--app", "factory:make").code == 0


def test_what_only_undoes_needs_no_terminal_for_an_approver_that_asks_at_one(desk):
    shop = desk.folder / "shop.py"
    shop.write_text(
        "from checkrein_plugins.approvers import Console\n"
        + shop.read_text().replace("AskAbove()]", "AskAbove(), Console()]")
    )
    refused = desk.python("import shop")
    assert "there is no terminal to ask at" in refused.err
    shop.write_text(shop.read_text().replace("Console()", "Console(answer='no')"))
    assert desk.python("import shop; shop.run(('o1', 5), ('killed', 6))").code == -signal.SIGKILL
    shop.write_text(shop.read_text().replace("Console(answer='no')", "Console()"))
    recovered = desk.cli("recover")
    assert recovered.code == 0, recovered.err
    assert desk.done() == {}


def test_a_part_of_a_session_is_undone_from_another_terminal(desk):
    done = desk.python("import shop; shop.run(('o1', 1), ('o2', 2), ('o3', 3))")
    session = done.out.strip()
    plan = desk.cli("rollback", session, "--to", "2", "--dry-run", "--json").tree
    assert [a["status"] for a in plan["actions"]] == ["planned", "kept", "kept"]
    assert plan["to"] == 2 and len(desk.done()) == 3
    assert desk.cli("rollback", session, "--to", "2").code == 0
    assert sorted(desk.done()) == ["o1", "o2"]

    first = [
        e["call"] for e in desk.look("show", session, "--json").tree["timeline"] if "step" in e
    ]
    assert desk.cli("rollback", session, "--action", first[0]).code == 0
    assert sorted(desk.done()) == ["o2"]
    assert desk.sessions()[0]["display_state"] == "PARTIALLY_REVERTED"

    both = desk.cli("rollback", session, "--to", "1", "--action", first[0])
    assert (both.code, "one of --to" in both.err) == (2, True)
    wrong = desk.cli("rollback", session, "--action", "zzz")
    assert (wrong.code, "no call begins with 'zzz'" in wrong.err) == (1, True)


def test_a_call_in_doubt_is_settled_from_another_terminal(desk):
    desk.python(
        """
        import shop

        @shop.rein.tool(undo=lambda: None)
        def blind():
            raise OSError

        with shop.rein.session() as session:
            blind()
        """
    )
    (session,) = desk.sessions()
    call = desk.look("show", session["id"], "--json").tree["timeline"]
    (call,) = {e["call"] for e in call if e.get("what") == "blind"}
    assert desk.look("settle", call, "gone").code == 2
    assert desk.look("settle", "nope", "undone").code == 1
    settled = desk.look("settle", call, "not_done", "--by", "ann", "--note", "asked the bank")
    assert (settled.code, settled.out) == (0, f"{call} not_done, says ann\n")
    assert desk.sessions()[0]["display_state"] == "REVERTED"


def test_a_session_is_paused_continued_and_restarted_from_another_terminal(desk):
    process = desk.start(
        """
        import shop
        from checkrein import errors

        with shop.rein.session(agent="desk") as session:
            print(session.id, flush=True)
            while input() == "go":
                try:
                    shop.mail("ann")
                    print("ran", flush=True)
                except errors.Paused:
                    print("paused", flush=True)
                except errors.Halted:
                    print("halted", flush=True)
        """
    )
    session = process.stdout.readline().strip()

    def go():
        process.stdin.write("go\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    assert go() == "ran"
    assert desk.look("pause", session[:8]).out == "1 session paused\n"
    assert (go(), desk.sessions()[0]["display_state"]) == ("paused", "PAUSED")
    again = desk.look("pause", session)
    assert (again.code, "only open sessions" in again.err) == (1, True)
    assert desk.look("continue", "--agent", "desk").out == "1 session may go on\n"
    assert go() == "ran"
    assert desk.look("restart", session).code == 1
    assert desk.look("stop", session).code == 0
    assert go() == "halted"
    assert desk.look("continue", session).code == 1
    new = desk.look("restart", session, "--json").tree["session"]
    counts = desk.look("sessions", "--counts", "--json").tree["counts"]
    assert counts == {"SUSPENDED": 1, "STOPPED": 1}
    process.stdin.write("end\n")
    process.stdin.flush()
    assert process.wait(30) == 0
    resumed = desk.python(f"import shop\nwith shop.rein.session(id={new!r}): shop.mail('bob')")
    assert (resumed.code, sorted(desk.done())) == (0, ["mail-ann", "mail-bob"])
    for wrong in (["pause"], ["continue", session, "--all"]):
        assert desk.look(*wrong).code == 2


def test_old_sessions_are_forgotten(desk):
    desk.python("import shop; shop.run(('o1', 1))")
    assert desk.look("forget", "--older-than", "1d", "--json").tree["sessions"] == 0
    erased = desk.look("forget", "--older-than", "0s", "--payloads", "--json").tree
    assert (erased["sessions"], erased["payloads"] > 0) == (1, True)
    assert (
        desk.look("forget", "--older-than", "0s").out == "1 session: forgotten; 0 files removed\n"
    )
    assert desk.look("audit", "verify").code == 0
    assert desk.look("forget", "--older-than", "soon").code == 2


def test_a_refused_session_needs_the_application_to_be_recovered(desk):
    token = ask(desk)
    assert desk.look("reject", token, "--by", "ann").code == 0
    (desk.folder / "checkrein.toml").write_text('store = "sqlite:///shop.db"\n')
    alone = desk.cli("recover")
    assert (alone.code, "application's tools" in alone.err) == (2, True)
    assert desk.sessions()[0]["display_state"] == "SUSPENDED"
    (desk.folder / "checkrein.toml").write_text('store = "sqlite:///shop.db"\napp = "shop:rein"\n')
    assert desk.cli("recover").code == 0
    assert (desk.done(), desk.sessions()[0]["display_state"]) == ({}, "REVERTED")
