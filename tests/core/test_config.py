"""Configuration files: what they build, and how each fault is told."""

import json
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein import Deny, Plugin, Rein, errors
from checkrein import _config_file as config_file

PLUGINS = """
from checkrein import Deny, Plugin
from checkrein.errors import ConfigError


class Guard(Plugin):
    def __init__(self, tools=(), limit: int = 1):
        if not isinstance(limit, int):
            raise ConfigError("guard.limit: must be a whole number")
        self.tools = tools
        self.limit = limit

    def pre_call(self, call):
        return Deny("not here", rule="guard") if call.name in self.tools else None


class Strict(Plugin):
    def __init__(self, *, size=1, **unknown):
        if unknown:
            raise ConfigError(f"strict: unknown key {min(unknown)!r}; allowed: size")

    def pre_call(self, call):
        return None


class Own(Plugin):
    def __init__(self, **given):
        raise ConfigError("own.size: must be 1; own.colour: is needed")

    def pre_call(self, call):
        return None


class Needs(Plugin):
    def __init__(self, url):
        self.url = url

    def pre_call(self, call):
        return None
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution with plugins, installed as pip would leave it."""
    site = tmp_path / "site"
    info = site / "sample_plugins-2.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sample-plugins\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text(
        "[checkrein]\nguard = sample_plugins:Guard\nstrict = sample_plugins:Strict\n"
        "needs = sample_plugins:Needs\nown = sample_plugins:Own\nbroken = sample_broken:Nothing\n"
    )
    (site / "sample_plugins.py").write_text(PLUGINS)
    (site / "sample_broken.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(str(site))
    yield site
    for name in ("sample_plugins", "sample_broken", "sample_tools"):
        sys.modules.pop(name, None)


@pytest.fixture
def write(tmp_path):
    def write(text, name="checkrein.toml"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        return path

    return write


TOML = """
    store = "memory:"
    mode = "observe"
    approval_expires = 60

    [plugins.guard]
    tools = ["a"]

    [plugins.strict]
    size = 3

    [plugins.guard-2]
    tools = ["b"]

    [plugins.mine]
    use = "guard"

    [tools.find]
    effect = "read"
    timeout = 2.5

    [tools.pay]
    undo = "refund(result.id)"
    opaque = ["session"]
    schema = {type = "object"}
"""
YAML = """
    store: "memory:"
    mode: observe
    approval_expires: 60
    plugins:
      guard: {tools: [a]}
      strict:
        size: 3
      guard-2: {tools: [b]}
      mine: {use: guard}
    tools:
      find: {effect: read, timeout: 2.5}
      pay:
        undo: refund(result.id)
        opaque: [session]
        schema: {type: object}
"""
CONFIG = {
    "store": "memory:",
    "mode": "observe",
    "approval_expires": 60,
    "plugins": {
        "guard": {"tools": ["a"]},
        "strict": {"size": 3},
        "guard-2": {"tools": ["b"]},
        "mine": {"use": "guard"},
    },
    "tools": {
        "find": {"effect": "read", "timeout": 2.5},
        "pay": {"undo": "refund(result.id)", "opaque": ["session"], "schema": {"type": "object"}},
    },
}


@pytest.mark.parametrize("kind", ["toml", "yaml", "mapping"])
def test_toml_yaml_and_a_mapping_build_the_same(kind, installed, write):
    if kind == "mapping":
        rein = Rein.from_config(CONFIG)
    else:
        rein = Rein.from_file(write({"toml": TOML, "yaml": YAML}[kind], f"checkrein.{kind}"))
    with rein:
        assert (rein.mode, rein.approval_expires) == ("observe", 60.0)
        assert [name for name, _ in rein.plugins] == ["guard", "strict", "guard-2", "mine"]
        assert rein.plugins.order("pre_call") == ["guard", "strict", "guard-2", "mine"]
        assert rein.tools.get("find").info.effect == "read"
        assert rein.tools.get("find").info.timeout == 2.5
        pay = rein.tools.get("pay").info
        assert (pay.undo, pay.opaque, pay.schema) == ("refund", ("session",), {"type": "object"})


def test_the_plugins_of_a_file_decide(installed, write):
    def a():
        raise AssertionError("ran")

    path = write('[plugins.guard]\ntools = ["a"]\n')
    with Rein.from_file(path) as rein, pytest.raises(errors.Denied) as refused:
        rein.call(a)
    assert refused.value.plugin == "guard"


FAULTS = [
    # (text, line, what the message says)
    ('store = "memory:"\nmood = "observe"\n', 2, ["mood", "did you mean 'mode'?", "allowed:"]),
    ('mode = "watch"\n', 1, ["mode", "'enforce', 'observe'"]),
    ('drain = "long"\n', 1, ["drain", "number"]),
    ("drain = true\n", 1, ["drain", "number"]),
    ("drain = -1\n", 1, ["drain", "greater than or equal to 0"]),
    ("drain = inf\n", 1, ["drain", "finite"]),
    ("undo_tries = 1.5\n", 1, ["undo_tries", "integer"]),
    ('mode = "observe"\nmode = "enforce"\n', 2, ["defined twice", "mode"]),
    ("[plugins.guard]\n\n[plugins.guard]\n", 3, ["defined twice", "plugins.guard"]),
    ("store =\n", 1, ["Invalid value"]),
    ("plugins = 3\n", 1, ["plugins", "must be a table"]),
    ("[plugins]\nguard = 3\n", 2, ["plugins.guard"]),
    ("# x\n[plugins.gard]\n", 2, ["plugins.gard", "not installed", "did you mean 'guard'?"]),
    ("# x\n[plugins.broken]\n", 2, ["sample-plugins 2.5", "no_such_module_at_all"]),
    ("[plugins.guard]\n\nlimits = 3\n", 3, ["plugins.guard.limits", "did you mean 'limit'?"]),
    ("[plugins.strict]\nsise = 3\n", 2, ["plugins.strict.sise", "did you mean 'size'?"]),
    ('[plugins.guard]\ntools = []\nlimit = "x"\n', 3, ["plugins.guard", "whole number"]),
    ("[plugins.needs]\n", 1, ["plugins.needs", "url"]),
    ("[plugins.x]\nuse = 3\n", 2, ["plugins.x.use", "name of an installed plugin"]),
    ('[plugins.x]\nuse = "gard"\n', 1, ["plugins.x", "did you mean 'guard'?"]),
    ('[tools.pay]\neffects = "write"\n', 2, ["tools.pay.effects", "did you mean 'effect'?"]),
    ('[tools.pay]\neffect = "writes"\n', 2, ["tools.pay.effect", "'read', 'write', 'egress'"]),
    ('[tools.pay]\nopaque = "x"\n', 2, ["tools.pay.opaque", "list"]),
    ('[tools.pay]\nopaque = ["x", 3]\n', 2, ["tools.pay.opaque[1]", "string"]),
    ("[tools.pay]\ntimeout = 0\n", 2, ["tools.pay.timeout", "greater than 0"]),
    ('[tools.pay]\nundo = "refund(1+1)"\n', 2, ["tools.pay.undo", "path"]),
    ('[tools.pay]\nprobe = "nowhere"\n', 2, ["tools.pay.probe", "module:name"]),
    ('[tools.pay]\nprobe = "no_such_mod:f"\n', 2, ["tools.pay.probe", "cannot be imported"]),
    ('[tools.pay]\nprobe = "json:nothing"\n', 2, ["tools.pay.probe", "json has no nothing"]),
    ('[tools.pay]\nprobe = "json:__name__"\n', 2, ["tools.pay.probe", "not a function"]),
    ('[tools.pay]\nno_effect_on = ["json:loads"]\n', 2, ["no_effect_on", "not an exception"]),
    ('# a\nstore = "postgre://x"\n', 2, ["unknown scheme 'postgre'", "sqlite:///PATH"]),
    ('counters = "redis://x"\n', 1, ["counters"]),
    ('app = "shop"\n', 1, ["app: must be module:rein"]),
    ("[plugins.own]\n", 1, ["plugins.own.size: must be 1; plugins.own.colour: is needed"]),
    ('[plugins.o2]\nuse = "own"\n', 1, ["plugins.o2.size: must be 1; plugins.o2.colour: is"]),
]


@pytest.mark.parametrize(("text", "line", "told"), FAULTS)
def test_a_fault_is_told_with_file_line_key_and_what_is_allowed(text, line, told, installed, write):
    path = write(text)
    with pytest.raises(errors.ConfigError) as refused:
        Rein.from_file(path)
    message = str(refused.value)
    assert message.startswith(f"{path}:{line}: "), message
    for part in told:
        assert part in message
    assert "\n" not in message


YAML_FAULTS = [
    ("store: 'memory:'\nmood: observe\n", 2, ["mood", "did you mean 'mode'?"]),
    ("mode: observe\nmode: enforce\n", 2, ["defined twice", "mode"]),
    ("mode: observe\nplugins:\n  guard:\n    limits: 3\n", 4, ["plugins.guard.limits"]),
    ("plugins:\n  guard:\n    tools: [a\n", 4, ["expected"]),
    ("- a\n- b\n", 1, ["must hold keys"]),
    ("plugins:\n  7: {}\n", 2, ["a key must be text"]),
    ("tools:\n  pay: {opaque: [a, 3]}\n", 2, ["tools.pay.opaque[1]"]),
    ("store: !!python/object:os.system x\n", 1, ["constructor"]),
    ("encrypt: yes\n", 1, ["encrypt", "boolean"]),
]


@pytest.mark.parametrize(("text", "line", "told"), YAML_FAULTS)
def test_yaml_faults_have_their_line_too(text, line, told, installed, write):
    path = write(text, "checkrein.yaml")
    with pytest.raises(errors.ConfigError) as refused:
        Rein.from_file(path)
    message = str(refused.value)
    assert message.startswith(f"{path}:{line}: "), message
    for part in told:
        assert part in message


def test_a_mapping_has_keys_instead_of_lines():
    with pytest.raises(errors.ConfigError, match=r"^configuration: tools\.pay\.effect: must be"):
        Rein.from_config({"tools": {"pay": {"effect": "big"}}})
    with pytest.raises(errors.ConfigError, match="must be a mapping"):
        Rein.from_config(["store"])


@pytest.mark.parametrize(
    ("name", "told"),
    [("missing.toml", "no such file"), ("checkrein.ini", "ending"), (".", "ending")],
)
def test_a_file_that_cannot_be_read(name, told, tmp_path):
    with pytest.raises(errors.ConfigError, match=told):
        Rein.from_file(tmp_path / name)


def test_a_file_that_is_not_text(tmp_path):
    path = tmp_path / "checkrein.toml"
    path.write_bytes(b'store = "\xff"')
    with pytest.raises(errors.ConfigError, match="not UTF-8"):
        Rein.from_file(path)


def test_a_wrong_file_has_no_effect(installed, write, tmp_path):
    path = write('store = "sqlite:///made.db"\n[plugins.guard]\nlimits = 1\n')
    with pytest.raises(errors.ConfigError):
        Rein.from_file(path)
    assert not (tmp_path / "made.db").exists()


def test_a_relative_store_lies_beside_its_file(write, tmp_path, monkeypatch):
    path = write('store = "sqlite:///data/made.db"\n')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    Rein.from_file(path).close()
    assert (tmp_path / "data" / "made.db").exists()
    assert list(elsewhere.iterdir()) == []


class Other(Plugin):
    def pre_call(self, call):
        return Deny("always", rule="other")


def test_overrides_are_arguments_of_rein_and_plugins_come_last(installed, write):
    path = write('mode = "observe"\n[plugins.guard]\n')
    with Rein.from_file(path, plugins=[Other()], mode="enforce", drain=1) as rein:
        assert rein.plugins.order("pre_call") == ["guard", "other"]
        assert (rein.mode, rein.drain) == ("enforce", 1.0)
    with pytest.raises(errors.ConfigError, match="did you mean 'drain'"):
        Rein.from_file(path, drian=1)


def test_one_plugin_in_the_file_and_in_code_would_run_twice(installed, write):
    path = write("# x\n[plugins.guard]\n")
    import sample_plugins

    with pytest.raises(errors.ConfigError, match=r"toml:2: plugins\.guard: a Guard is also passed"):
        Rein.from_file(path, plugins=[sample_plugins.Guard()])


def test_a_probe_is_found_by_module_and_name(installed, write):
    (installed / "sample_tools.py").write_text(
        "def there(order):\n    return True\nclass Refused(Exception):\n    pass\n"
    )
    path = write("""
        [tools.pay]
        probe = "sample_tools:there"
        no_effect_on = ["sample_tools:Refused", "builtins:ConnectionRefusedError"]
    """)
    with Rein.from_file(path) as rein:
        tool = rein.tools.get("pay")
        assert tool.info.has_probe
        assert tool.probe.fn("x") is True
        assert tool.no_effect_on[1] is ConnectionRefusedError


def test_a_declared_tool_gets_its_function_later(installed, write):
    path = write('[tools.pay]\nundo = "refund"\neffect = "egress"\n[tools.refund]\n')
    effects = []
    with Rein.from_file(path) as rein:

        def refund(order):
            effects.append(f"-{order}")

        rein.tools.of(refund)

        def pay(order):
            effects.append(order)

        with rein.session() as session:
            rein.call(pay, "o1")
            rein.rollback(session.id)
    assert effects == ["o1", "-o1"]


def policies(*texts, write):
    found = []
    for number, text in enumerate(texts):
        with Rein.from_file(write(text, f"p{number}.toml")) as rein:
            found.append(rein.policy)
    return found


def test_the_checksum_follows_what_decides_and_nothing_else(installed, write):
    store = 'store = "sqlite:///one.db"\n'
    base = store + '[plugins.guard]\ntools = ["a"]\nlimit = 2\n'
    same, order, spaced, drained = policies(
        base,
        store + '[plugins.guard]\nlimit = 2\ntools = ["a"]\n',
        "# words\n" + base.replace(" = ", "="),
        "drain = 3\n" + base,
        write=write,
    )
    assert same == order == spaced == drained != ""
    others = policies(
        base.replace("2", "3"),
        'mode = "observe"\n' + base,
        base + "[plugins.strict]\n",
        store + '[plugins.strict]\n[plugins.guard]\ntools = ["a"]\nlimit = 2\n',
        base + '[tools.pay]\neffect = "read"\n',
        base.replace("one.db", "two.db"),
        write=write,
    )
    assert len({same, *others}) == len(others) + 1


def test_a_session_keeps_the_checksum_of_its_policy(installed, write):
    with Rein.from_file(write("[plugins.guard]\n")) as rein, rein.session() as session:
        assert rein.read(session.id).row.body["policy"] == rein.policy != ""
    with Rein.from_file(write("[plugins.guard]\n"), policy="mine") as rein:
        assert rein.policy == "mine"


# -- lines of keys

NAMES = st.text(alphabet="abcdefg", min_size=1, max_size=4)
LEAVES = st.one_of(
    st.integers(-5, 5),
    st.booleans(),
    st.text(alphabet="ab\"'#=[]{}\n.\\", max_size=6),
    st.lists(st.text(alphabet="[]{}#\n", max_size=4), max_size=2),
)
TREES = st.dictionaries(NAMES, st.one_of(LEAVES, st.dictionaries(NAMES, LEAVES, max_size=3)))


def written(tree):
    """TOML of a tree of two levels, and the line of every key, said by the writer."""
    rows, lines = [], {}

    def put(key, value):
        lines[key] = len(rows) + 1
        if isinstance(value, list) and len(value) == 2:
            rows.extend([f"{key[-1]} = [  # ] [", f"  {json.dumps(value[0])},"])
            rows.append(f"  {json.dumps(value[1])}]")
        elif isinstance(value, str) and "\n" in value and "\\" not in value:
            text = value.replace('"', '\\"')
            rows.extend(f'{key[-1]} = """\n{text}"""'.split("\n"))
        else:
            rows.append(f"{key[-1]} = {json.dumps(value)}  # {key[-1]} = 1")

    for name, value in tree.items():
        if not isinstance(value, dict):
            put((name,), value)
    for name, value in tree.items():
        if isinstance(value, dict):
            rows.append("")
            lines[(name,)] = len(rows) + 1
            rows.append(f"[ {name} ] # [x]")
            for inner, leaf in value.items():
                put((name, inner), leaf)
    return "\n".join(rows), lines


@given(TREES)
def test_every_key_of_a_toml_file_has_its_line(tmp_path_factory, tree):
    text, lines = written(tree)
    path = tmp_path_factory.mktemp("lines") / "x.toml"
    path.write_text(text, encoding="utf-8")
    document = config_file.read(path)
    assert document.data == tree
    for key, line in lines.items():
        assert document.line(key) == line, (key, text)


def test_dotted_quoted_and_repeated_keys_have_their_lines(write):
    document = config_file.read(
        write("""
        a.b = 1
        "q.r" = { x = 1, y = [1,
          2] }

        [[rules]]
        tool = "x"
        [rules.limits]
        n = 1

        [[rules]]
        tool = "y"
        """)
    )
    assert document.line(("a", "b")) == 1
    assert document.line(("q.r", "y", 1)) == 2
    assert document.line(("rules", 0, "tool")) == 6
    assert document.line(("rules", 0, "limits", "n")) == 8
    assert document.line(("rules", 1, "tool")) == 11
    assert document.line(("nothing",)) is None


def test_pydantic_is_not_loaded_by_the_core(child):
    snippet = "import sys, checkrein, checkrein.policy; print('pydantic' in sys.modules)"
    assert child(snippet).communicate()[0].strip() == "False"
