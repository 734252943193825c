"""`checkrein policy ...`, as people call it."""

import ast
import json
import re
import shutil
from pathlib import Path

import pytest

from checkrein import Rein, cli, errors
from checkrein_plugins.policy import Policy

EXAMPLES = Path(__file__).parents[2] / "examples" / "policies"
CASES = """
policy = "checkrein.toml"

[[cases]]
name = "a small refund"
call = { tool = "pay_refund", args = { order = "o1", amount = 42 } }
expect = "ALLOW"

[[cases]]
name = "a large refund asks"
call = { tool = "pay_refund", args = { order = "o2", amount = 269 } }
expect = "REQUIRE_APPROVAL"

[[cases]]
name = "mail to a stranger"
call = { tool = "deliver", args = { to = "eve@evil.test", body = "hello" } }
expect = "BLOCK"
"""


def demo() -> str:
    """The demo's policy, out of the demo: its module needs LangChain."""
    source = Path(__file__).parents[2] / "integrations/checkrein_integrations/demo/application.py"
    for statement in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "CONFIG":
            text = ast.literal_eval(statement.value).replace("{cap}", "0.04")
            # The application would need it as well; its tools are declared here instead.
            text = text.replace('app = "refund_desk:rein"\n', "")
            return (
                text + '[tools.pay_refund]\neffect = "write"\n[tools.deliver]\neffect = "egress"\n'
            )
    raise AssertionError("the demo has no CONFIG")


DEMO = demo()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = cli.run(["policy", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    def asked(*arguments):
        code, out, _ = call(*arguments, "--json")
        return code, json.loads(out)

    call.json = asked
    call.folder = tmp_path
    return call


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


# -- check and schema


def test_check_tells_line_and_key_of_every_error(run):
    bad = write(
        run.folder, "bad.toml",
        '[[rules]]\ntool = "a"\naction = "BLOCK"\nwhen = "foo.x > 1"\n\n'
        '[[rules]]\ntool = "b"\naction = "BLOCK"\nwhen = "args.x > 5 and args.x < 1"\n',
    )  # fmt: skip
    code, out, _ = run("check", bad)
    assert code == 1
    assert f"error: {bad}:4: rules[0].when: foo is unknown" in out
    assert f"error: {bad}:9: rules[1].when: can never fire" in out
    code, told = run.json("check", bad)
    assert code == 1
    assert [(f["line"], f["key"]) for f in told["faults"]] == [
        (4, "rules[0].when"), (9, "rules[1].when"),
    ]  # fmt: skip


def test_check_warns_of_tools_that_nobody_has(run):
    write(run.folder, "checkrein.toml", DEMO)
    policy = write(
        run.folder, "p.toml", '[[rules]]\ntool = ["pay_refnd", "x*"]\naction = "BLOCK"\n'
    )
    code, told = run.json("check", policy)
    assert code == 0
    (fault,) = told["faults"]
    assert fault["level"] == "warning"
    assert "did you mean 'pay_refund'?" in fault["text"]


def test_check_looks_through_a_whole_configuration(run):
    write(run.folder, "p.toml", '[[rules]]\ntool = "pay"\naction = "DENY"\n')
    write(
        run.folder, "checkrein.toml",
        DEMO.replace("[plugins.budget]\nusd", "[plugins.budget]\nusdd")
        .replace('tool = "deliver"', 'tool = "delivr"')
        + '[plugins.policy]\nfile = "p.toml"\n',
    )  # fmt: skip
    code, told = run.json("check")
    assert code == 1
    texts = [f"{Path(f['file']).name}:{f['line']} {f['level']} {f['text']}" for f in told["faults"]]
    assert any("p.toml:3 error must be one of 'ALLOW'" in text for text in texts)
    assert any("checkrein.toml:18 error" in text and "usdd" in text for text in texts)
    assert any("warning no tool that is known here is called 'delivr'" in text for text in texts)


APP = """
from checkrein import Rein

def pay(amount, to="x"): ...
def anything(**given): ...

def rein():
    made = Rein(store="memory:")
    made.declare("pay", pay)
    made.declare("anything", anything)
    return made
"""


def test_check_refuses_arguments_that_the_tool_does_not_take(run, monkeypatch):
    monkeypatch.syspath_prepend(run.folder)
    write(run.folder, "desk_app.py", APP)
    policy = write(
        run.folder, "p.toml",
        '[[rules]]\ntool = "pay"\naction = "BLOCK"\nwhen = "args.amuont > 5"\n'
        '[[rules]]\ntool = "anything"\naction = "BLOCK"\nwhen = "args.amuont > 5"\n'
        '[[rules]]\ntool = "p*"\naction = "BLOCK"\nwhen = "args.amonut > 5"\n'
        '[[rules]]\ntool = "pay"\naction = "BLOCK"\nwhen = "args.amount > 5"\n',
    )  # fmt: skip
    code, told = run.json("check", policy, "--app", "desk_app:rein")
    assert code == 1
    assert [(f["line"], f["level"]) for f in told["faults"]] == [(4, "error"), (12, "warning")]
    assert "amuont is no argument of pay (did you mean 'amount'?)" in told["faults"][0]["text"]
    write(
        run.folder, "checkrein.toml",
        'app = "desk_app:rein"\n[plugins.scope]\nrules = [\n'
        '  { tool = "Pay", arguments = { "tos.name" = { allow = ["x"] } } },\n'
        '  { tool = "anything", arguments = { amuont = { maximum = 5 } } },\n]\n',
    )  # fmt: skip
    code, told = run.json("check")
    assert code == 1
    (fault,) = told["faults"]
    assert (fault["level"], fault["line"]) == ("error", 3)  # where the rules begin
    assert fault["text"].startswith("tos is no argument of Pay")


def test_check_takes_the_policy_of_the_demo_and_the_examples(run):
    write(run.folder, "checkrein.toml", DEMO)
    assert run("check")[0] == 0
    files = EXAMPLES / "organisation.toml", EXAMPLES / "refund-desk.yaml"
    assert run.json("check", *files)[0] == 0


def test_without_anything_to_check(run):
    code, _, err = run("check")
    assert code == 2
    assert "name policy files" in err
    assert run("check", "missing.toml")[0] == 1
    assert run("check", "missing.txt")[0] == 1


def test_schema_is_a_json_schema(run):
    code, out, _ = run("schema")
    assert code == 0
    assert json.loads(out)["properties"]["rules"]["type"] == "array"


# -- explain


def test_explain_tells_which_rules_fired_and_why(run):
    policy = EXAMPLES / "organisation.toml"
    code, told = run.json("explain", "pay_refund(amount=269)", "--policy", policy)
    assert (code, told["verdict"]) == (0, "REQUIRE_APPROVAL")
    assert told["by"][0]["rule"] == "policy/organisation/large refund"
    assert [(r["rule"], r["fired"]) for r in told["rules"]] == [
        ("large refund", True), ("huge refund", False),
    ]  # fmt: skip
    code, out, _ = run("explain", "pay_refund(amount='269')", "--policy", policy)
    assert "cannot be evaluated, a text and a number cannot be compared -> fires closed" in out
    assert out.startswith("BLOCK")


def test_explain_asks_every_plugin_of_a_configuration(run):
    write(run.folder, "checkrein.toml", DEMO)
    for call, verdict in (
        ("pay_refund(amount=42)", "ALLOW"),
        ("pay_refund(amount=269)", "REQUIRE_APPROVAL"),
        ("pay_refund(amount=5000)", "BLOCK"),
        ('{"tool": "deliver", "args": {"to": "eve@evil.test"}}', "BLOCK"),
    ):
        code, told = run.json("explain", call)
        assert (code, told["verdict"]) == (0, verdict)


def test_explain_counts_as_told(run):
    given = ("explain", "pay_refund(amount=42)", "--policy", EXAMPLES / "organisation.toml")
    assert run.json(*given, "--count", "refunded=100")[1]["verdict"] == "ALLOW"
    assert run.json(*given, "--count", "refunded=1999")[1]["verdict"] == "BLOCK"


@pytest.mark.parametrize(
    "call",
    [
        "pay(", "pay(5)", "pay(a=b)", "pay(**{})", "{", '{"args": {}}', "", '{"tool": 3}',
        'pay {"amount": 5000}', "pay amount=5000",
    ],
)  # fmt: skip
def test_a_call_that_cannot_be_read(run, call):
    code, _, err = run("explain", call, "--policy", EXAMPLES / "organisation.toml")
    assert code == 2
    assert "call" in err


# -- test


def test_a_case_whose_call_is_no_table_is_told_in_plain_words(run):
    shutil.copy(EXAMPLES / "organisation.toml", run.folder / "p.toml")
    case = '[[cases]]\nname = "one"\ncall = "refund(amount=1)"\nexpect = "ALLOW"\n'
    code, _, err = run("test", write(run.folder, "p.test.toml", case).with_name("p.toml"))
    assert code == 2
    assert "cases[0].call: must be a table\n" in err


def test_the_examples_pass_their_cases(run):
    code, told = run.json("test", EXAMPLES / "organisation.toml")
    assert code == 0
    assert told["failed"] == 0
    assert told["passed"] >= 10


def test_a_case_that_fails_is_told_with_its_line(run):
    shutil.copy(EXAMPLES / "organisation.toml", run.folder / "p.toml")
    cases = write(
        run.folder, "p.test.toml",
        '[[cases]]\nname = "one"\ncall = { tool = "pay_refund", args = { amount = 5 } }\n'
        'expect = "BLOCK"\n[[cases]]\nname = "two"\ncall = { tool = "shell" }\nexpect = "BLOCK"\n'
        'rule = "other"\n',
    )  # fmt: skip
    code, out, _ = run("test", run.folder / "p.toml")
    assert code == 1
    assert f"{cases}:1: one: expected BLOCK, got ALLOW" in out
    assert f"{cases}:5: two: expected rule other, got policy/organisation/no shell" in out


@pytest.mark.parametrize(
    "cases",
    ["", 'policy = "p.toml"\ncases = []', '[[cases]]\nname = "x"\nexpect = "ALLOW"',
     '[[cases]]\nname = "x"\ncall = { tool = "a" }\nexpect = "ALLOW"\ncounters = { nope = 1 }'],
)  # fmt: skip
def test_cases_that_cannot_be_used(run, cases):
    shutil.copy(EXAMPLES / "organisation.toml", run.folder / "p.toml")
    write(run.folder, "p.test.toml", cases)
    assert run("test", "p.test.toml")[0] == 2


# -- replay


@pytest.fixture
def recorded(run):
    """A store with one session: refunds of 20, 150 and 5000, a mail, and an undo."""
    write(run.folder, "checkrein.toml", 'store = "sqlite:///checkrein.db"\n')
    rules = [
        {"name": "most", "tool": "pay", "when": "args.amount > 1000", "action": "BLOCK"},
        {"name": "mail", "tool": "mail", "action": "REQUIRE_APPROVAL"},
    ]
    policy = Policy(layers=[{"name": "old", "rules": rules}])
    with Rein([policy], store=f"sqlite:///{run.folder}/checkrein.db", approvals="store") as rein:

        def refund(amount):
            return -amount

        rein.tool(refund)

        @rein.tool(undo="refund(amount)")
        def pay(amount):
            return amount

        def mail(to):
            raise AssertionError

        with rein.session(agent="desk", wait="suspend") as session:
            pay(20)
            pay(150)
            with pytest.raises(errors.Denied):
                pay(5000)
            with pytest.raises(errors.ApprovalPending):
                rein.call(mail, "a@example.org")
    run.session = session.id
    return run


NEW = """
[counters.paid]
tool = "pay"
sum = "amount"
limit = 160

[[rules]]
tool = "pay"
when = "args.amount > 100 and args.amount < 1000"
action = "REQUIRE_APPROVAL"
"""


def test_replay_tells_what_would_have_changed(recorded):
    new = write(recorded.folder, "new.toml", NEW)
    code, told = recorded.json("replay", "--policy", new, "--session", recorded.session[:12])
    assert code == 0
    assert (told["sessions"], told["calls"]) == (1, 4)
    assert [(c["tool"], c["before"], c["now"]) for c in told["changes"]] == [
        ("pay", "ALLOW", "BLOCK"),
        ("mail", "REQUIRE_APPROVAL", "ALLOW"),
    ]
    code, told = recorded.json(
        "replay", "--policy", write(recorded.folder, "n.toml", NEW.replace("160", "9000")),
        "--since", "1",
    )  # fmt: skip
    assert told["newly_asked"] == 1
    assert told["newly_allowed"] == 2
    assert told["newly_blocked"] == 0
    assert recorded.json("replay", "--policy", new, "--since", "0")[1]["calls"] == 0
    code, out, _ = recorded("replay", "--policy", new, "--since", "1")
    assert "4 calls in 1 session: 1 newly blocked, 0 newly asked, 1 newly allowed" in out


def test_replay_wants_to_know_which_calls(recorded):
    new = write(recorded.folder, "new.toml", NEW)
    assert recorded("replay", "--policy", new)[0] == 2
    assert recorded("replay", "--policy", new, "--session", "nothing")[0] == 1


def test_every_command_on_the_policy_of_the_demo(run):
    """Refunds of the desk, recorded under its own policy; a stricter one is rehearsed on them."""
    config = write(run.folder, "checkrein.toml", DEMO)
    write(run.folder, "checkrein.test.toml", CASES)
    assert run("check")[0] == 0
    assert run("schema")[0] == 0
    assert run.json("explain", "pay_refund(order='o', amount=269)")[1]["verdict"] == (
        "REQUIRE_APPROVAL"
    )
    assert run.json("test", "checkrein.test.toml")[1]["passed"] == 3
    with Rein.from_file(config) as rein, rein.session(agent="desk", on_error="keep"):
        pay = rein.declare("pay_refund", lambda order, amount: order).fn
        for order, amount in (("o1", 42), ("o2", 90)):
            rein.call(pay, order=order, amount=amount)
        with pytest.raises(errors.Denied):
            rein.call(pay, order="o3", amount=5000)
    new = write(run.folder, "new.toml", DEMO.replace("ask_above = 100", "ask_above = 50"))
    _, told = run.json("replay", "--policy", new, "--since", "1")
    assert (told["calls"], told["newly_asked"], told["newly_blocked"]) == (3, 1, 0)
    assert [c["tool"] for c in told["changes"]] == ["pay_refund"]
    _, told = run.json("diff", config, new)
    assert [c["what"] for c in told["changes"]] == [
        "plugin scope.rules[0].arguments.amount.ask_above"
    ]


# -- diff


def test_diff_tells_what_loosens_and_what_narrows(run):
    old = write(run.folder, "old.toml", NEW)
    new = write(
        run.folder, "new.toml",
        NEW.replace("160", "500").replace("REQUIRE_APPROVAL", "BLOCK")
        + '[[rules]]\ntool = "drop"\naction = "BLOCK"\n',
    )  # fmt: skip
    code, told = run.json("diff", old, new)
    assert code == 0
    assert [(c["effect"], c["what"]) for c in told["changes"]] == [
        ("loosens", "new: counter paid: limit"),
        ("narrows", "new: rule drop"),
        ("narrows", "new: rule pay: action"),
    ]
    assert run("diff", old, old)[1] == "the two policies say the same\n"


def test_diff_of_two_configurations(run):
    old = write(run.folder, "old.toml", DEMO)
    new = write(run.folder, "new.toml", DEMO.replace("ask_above = 100", "ask_above = 200"))
    _, told = run.json("diff", old, new)
    (change,) = told["changes"]
    assert change["what"] == "plugin scope.rules[0].arguments.amount.ask_above"
    assert (change["before"], change["after"]) == ("100", "200")
    other = write(run.folder, "other.toml", re.sub(r"\[plugins\.budget\]\n(.+\n)+", "", DEMO))
    _, told = run.json("diff", old, other)
    assert {c["what"]: c["effect"] for c in told["changes"]}["plugin budget"] == "loosens"
