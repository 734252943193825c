"""Reviews and undos that wait for a person, from the command line."""

import pytest


@pytest.fixture
def careful(desk):
    """A desk whose undos are asked about, and whose mails are reviewed."""
    shop = desk.folder / "shop.py"
    text = shop.read_text().replace(
        '        if call.name == "refund" and',
        '        if call.kind == "undo":\n'
        '            return Ask("take it back?", rule="undo")\n'
        '        if call.name == "refund" and',
    )
    shop.write_text(text)
    return desk


@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_an_undo_waits_for_another_terminal(careful, answer):
    done = careful.python("import shop; shop.run(('o1', 5))")
    assert done.code == 0, done.err
    (session,) = careful.sessions()
    first = careful.cli("rollback", session["id"])
    assert first.code == 1
    assert "waiting" in first.out
    assert careful.done() == {"o1": "5"}
    listed = careful.look("approvals").out
    assert "undo by refund.undo(order=o1)" in listed
    (request,) = careful.approvals()
    assert (request["kind"], request["status"]) == ("undo", "PENDING_APPROVAL")
    assert careful.look(answer, request["id"], "--by", "ann").code == 0
    resumed = careful.cli("resume", request["id"])
    if answer == "approve":
        assert resumed.code == 0
        assert "undone" in resumed.out
        assert careful.done() == {}
        assert careful.sessions()[0]["display_state"] == "REVERTED"
    else:
        assert resumed.code == 1
        assert "rejected by ann" in resumed.err
        assert careful.done() == {"o1": "5"}


def test_those_whose_turn_it_is_are_told_by_the_application(careful):
    done = careful.python("import shop; shop.run(('o1', 500), wait='suspend')")
    assert "ApprovalPending" in done.err
    told = careful.cli("approvals", "--escalate")
    assert (told.code, "told of 0 requests" in told.err) == (0, True)
    assert "refund(order=o1" in told.out
