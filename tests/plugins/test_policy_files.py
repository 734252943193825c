"""Policy files that cannot be used: refused with file, line and key."""

import json
import textwrap

import jsonschema_rs
import pytest

from checkrein import errors
from checkrein_plugins.policy import Policy
from checkrein_plugins.policy.layers import read_layers
from checkrein_plugins.policy.shape import json_schema


def faults(tmp_path, *texts):
    paths = []
    for number, text in enumerate(texts):
        plain = textwrap.dedent(text)
        path = tmp_path / f"p{number}.{'yaml' if plain.startswith('#yaml') else 'toml'}"
        path.write_text(plain)
        paths.append(path)
    return [(f.line, f.key, f.text, f.level) for f in read_layers(paths, [])[1]]


BLOCK_A = '[[rules]]\ntool = "a"\naction = "BLOCK"\n'

REFUSED = {
    "unknown key": (f'{BLOCK_A}whenn = "x"', 4, "did you mean 'when'"),
    "unknown action": ('[[rules]]\ntool = "a"\naction = "DENY"', 3, "must be one of 'ALLOW'"),
    "missing action": ('\n[[rules]]\ntool = "a"', 2, "is needed"),
    "no tool": ('[[rules]]\ntool = " "\naction = "BLOCK"', 2, "must not be empty"),
    "unknown effect": (
        f'{BLOCK_A}effects = ["wrote"]', 4, "must be one of 'read'",
    ),
    "unknown field": (
        f'{BLOCK_A}when = "call.nam == 1"', 4, "call.nam is unknown",
    ),
    "unknown counter": (
        f'{BLOCK_A}when = "counters.n > 1"', 4,
        "counters.n is unknown; known: none is declared",
    ),
    "unknown function": (
        f'{BLOCK_A}when = "lenn(args.x) > 1"', 4, "did you mean 'len'",
    ),
    "unknown category": (
        f'{BLOCK_A}when = "finds(args.x, \'mails\')"', 4,
        "no category of private data",
    ),
    "pattern outside the engine": (
        f'{BLOCK_A}when = "matches(args.x, \'(?=a)\')"', 4,
        "not a pattern that RE2 can run",
    ),
    "method": (
        f'{BLOCK_A}when = "args.x.lower() == \'a\'"', 4, "no methods",
    ),
    "not an expression": (
        f'{BLOCK_A}when = "args.x ="', 4, "cannot be read",
    ),
    "contradiction": (
        f'{BLOCK_A}when = "args.x>1"\n[[rules]]\ntool = "A"\naction = "ALLOW"\nwhen = "args.x > 1"',
        5, "contradicts rules[0]",
    ),
    "twice": (
        BLOCK_A + BLOCK_A, 4,
        "says the same",
    ),
    "hidden": (
        BLOCK_A.replace('"a"', '"shell*"')
        + BLOCK_A.replace('"a"', '"shell_run"').replace("BLOCK", "REQUIRE_APPROVAL"),
        4, "can never fire: rules[0]",
    ),
    "hidden by a later one": (
        '[[rules]]\ntool = "shell_run"\naction = "ALLOW"\n[[rules]]\ntool = "*"\naction = "BLOCK"',
        1, "can never fire: rules[1]",
    ),
    "impossible": (
        f'{BLOCK_A}when = "args.x > 5 and args.x < 3"', 4,
        "can never fire",
    ),
    "impossible text": (
        f'{BLOCK_A}when = "args.x == \'a\' and args.x == \'b\'"', 4,
        "can never fire",
    ),
    "meaningless": (
        f"{BLOCK_A}quorum = 2", 4, "can never matter",
    ),
    "same name": (
        BLOCK_A + 'name = "n"\n' + BLOCK_A.replace('"a"', '"b"') + 'name = "n"',
        8, "taken by rules[0]",
    ),
    "agent layer for nobody": ('layer = "agent"', 1, "for whom"),
    "counter with a wrong limit": (
        '[counters.n]\ntool = "a"\nlimit = -1', 3, "must not be negative",
    ),
    "a window that a condition looks through": (
        '[counters.n]\ntool = "a"\nwindow = 60\n' + BLOCK_A + 'when = "counters.n > 1"', 7,
        "has a window",
    ),
    "not TOML": ("rules = ]", 1, "Invalid value"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "told"), REFUSED.values(), ids=REFUSED)
def test_bad_files_are_refused_with_their_place(tmp_path, text, line, told):
    found = faults(tmp_path, text)
    assert found[0][0] == line
    assert told in found[0][2]
    assert found[0][3] == "error"
    path = tmp_path / "p0.toml"
    with pytest.raises(errors.ConfigError, match=f"p0.toml:{line}: "):
        Policy(file=path)


def test_every_fault_is_told_not_only_the_first(tmp_path):
    text = """\
    #yaml
    rules:
      - tool: a
        action: BLOCK
        when: foo.x > 1
      - tool: b
        action: BLOCK
        when: args.y ** 2 > 1
      - tool: c
        action: BLOCK
        when: 1 > 2
    """
    assert [(line, key) for line, key, *_ in faults(tmp_path, text)] == [
        (5, "rules[0].when"), (8, "rules[1].when"), (11, "rules[2].when"),
    ]  # fmt: skip


WIDENS = {
    "blocked above": (
        '[[rules]]\ntool = "drop*"\naction = "BLOCK"',
        'layer = "team"\n[[rules]]\ntool = "drop_one"\naction = "ALLOW"',
        "rules[0] 'drop*' answers BLOCK",
    ),
    "asked above": (
        '[[rules]]\ntool = "*"\naction = "REQUIRE_APPROVAL"',
        'layer = "agent"\nagents = ["x"]\n[[rules]]\ntool = "a"\naction = "ALLOW"',
        "answers REQUIRE_APPROVAL",
    ),
    "not listed above": (
        'default = "BLOCK"\n[[rules]]\ntool = "look"\naction = "ALLOW"',
        'layer = "team"\n[[rules]]\ntool = "write"\naction = "ALLOW"',
        "its default is BLOCK",
    ),
    "a looser default": (
        'default = "BLOCK"', 'layer = "team"\ndefault = "ALLOW"', "says BLOCK",
    ),
    "a higher limit": (
        '[counters.n]\ntool = "a"\nlimit = 3',
        'layer = "team"\n[counters.n]\ntool = "a"\nlimit = 4',
        "the limit of",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("above", "below", "told"), WIDENS.values(), ids=WIDENS)
@pytest.mark.parametrize("turned", [False, True])
def test_a_layer_that_widens_is_refused(tmp_path, above, below, told, turned):
    texts = (below, above) if turned else (above, below)
    wrong = [text for _, _, text, level in faults(tmp_path, *texts) if level == "error"]
    assert any("widens" in text and told in text for text in wrong)


def test_a_layer_that_narrows_is_taken(tmp_path):
    above = 'default = "BLOCK"\n[[rules]]\ntool = "look*"\naction = "ALLOW"'
    below = 'layer = "team"\n[[rules]]\ntool = "look_up"\naction = "REQUIRE_APPROVAL"'
    assert faults(tmp_path, above, below) == []


def test_a_counter_that_does_nothing_is_only_warned_about(tmp_path):
    assert faults(tmp_path, '[counters.n]\ntool = "a"')[0][3] == "warning"


def test_the_schema_takes_what_is_taken_and_refuses_what_is_refused():
    valid = jsonschema_rs.validator_for(json.loads(json.dumps(json_schema())))
    rule = {"tool": ["a", "b*"], "action": "BLOCK", "when": "args.x > 1"}
    assert valid.is_valid({"$schema": "policy.json", "rules": [rule]})
    assert not valid.is_valid({"rules": [{**rule, "action": "DENY"}]})
    assert not valid.is_valid({"rules": [{**rule, "whenn": "x"}]})


@pytest.mark.parametrize(
    "given",
    [{}, {"file": 3}, {"files": "a.toml"}, {"layers": {"rules": []}}, {"layers": ["x"]},
     {"file": "missing.toml"}, {"file": "a.json"}, {"layers": [{}], "name": ""}, {"fil": "x"}],
    ids=str,
)  # fmt: skip
def test_arguments_that_cannot_be_used_are_refused(given):
    with pytest.raises(errors.ConfigError):
        Policy(**given)
