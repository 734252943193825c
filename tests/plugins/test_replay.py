"""Replay: recorded results answer the same calls of a new session, each in its own order."""

import subprocess
import sys

import pytest

from checkrein import Rein
from checkrein.errors import ConfigError, Conflict, Denied
from checkrein_plugins.replay import Replay

effects = []


def roll(sides):
    effects.append(sides)
    return {"n": len(effects), "sides": sides}


@pytest.fixture
def recorded(tmp_path):
    effects.clear()
    store = f"sqlite:///{tmp_path}/r.db"
    rein = Rein(store=store)
    with rein.session() as session:
        given = [rein.call(roll, n) for n in (6, 6, 20)]
    rein.close()
    return store, session.id, given


def test_the_same_calls_get_the_recorded_results_and_nothing_runs(recorded, go):
    store, id, given = recorded
    rein = Rein(plugins=[Replay(session=id, missing="deny")], store=store)
    for _ in range(2):
        with rein.session() as session:
            assert [go.call(rein, roll, n) for n in (6, 20, 6)] == [given[0], given[2], given[1]]
        assert session.spend().calls == 0
    assert len(effects) == 3
    rein.close()


def test_what_is_not_recorded_runs_or_ends_the_run(recorded):
    store, id, _ = recorded
    rein = Rein(plugins=[Replay(session=id)], store=store)
    with rein.session():
        assert rein.call(roll, 4)["sides"] == 4
    assert effects == [6, 6, 20, 4]
    rein.close()
    rein = Rein(plugins=[Replay(session=id, missing="deny")], store=store)
    with rein.session(on_error="keep"):
        rein.call(roll, 20)
        with pytest.raises(Denied, match="called so once there, and this is number 2") as caught:
            rein.call(roll, 20)
    assert caught.value.halt
    assert len(effects) == 4
    rein.close()


def test_wrong_settings(recorded):
    store, _, _ = recorded
    with pytest.raises(ConfigError, match="no session nowhere"):
        Rein(plugins=[Replay(session="nowhere")], store=store)
    for settings in ({"session": ""}, {"session": "a", "missing": "x"}, {"session": "a", "b": 1}):
        with pytest.raises(ConfigError, match="replay"):
            Replay(**settings)


# -- strict: what is not recorded never goes live


def ask(**request):
    effects.append("model")
    return f"answer {len(effects)}"


TOOLS = [{"name": "roll", "parameters": {"type": "object", "required": ["sides"]}}]


def conversation(rein, *, text="three", temperature="0", model="m", tools=TOOLS, last=20):
    """Five steps: a model call, a tool, a model call, two tools."""
    said = {"role": "user", "parts": [{"type": "text", "content": "one"}]}
    more = {"role": "user", "parts": [{"type": "text", "content": text}]}
    with rein.options(labels={"temperature": temperature}):
        given = [rein.model_call(ask, model=model, messages=[said], tools=tools)]
        given.append(rein.call(roll, 6))
        given.append(rein.model_call(ask, model=model, messages=[said, more], tools=tools))
    given += [rein.call(roll, 6), rein.call(roll, last)]
    return given


@pytest.fixture
def five(tmp_path):
    effects.clear()
    store = f"sqlite:///{tmp_path}/r.db"
    with Rein(store=store) as rein, rein.session() as session:
        given = conversation(rein)
    effects.clear()
    return store, session.id, given


REORDERED = [{"parameters": {"required": ["sides"], "type": "object"}, "name": "roll"}]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"text": "thrEe"}, r"step 3 .* first at messages\[1\]\.parts\[0\]\.content"),
        ({"temperature": "0.7"}, "step 1 .* m differs from step 1 in its labels"),
        ({"model": "n"}, "step 1 .* there it was m, not n"),
        ({"last": 8}, "step 5 .* roll differs from step 5 first at sides"),
    ],
)  # fmt: skip
def test_a_miss_names_the_step_and_the_first_difference_and_nothing_runs(five, changed, said):
    """D37: no upstream call, no effect, no cost."""
    store, id, _ = five
    with Rein(plugins=[Replay(session=id, missing="deny")], store=store) as rein:
        with rein.session(on_error="keep") as session:
            with pytest.raises(Denied, match=said) as caught:
                conversation(rein, **changed)
            assert caught.value.halt
        assert effects == []
        assert session.spend().nano_usd == 0


def test_the_order_of_keys_does_not_matter(five):
    store, id, given = five
    with Rein(plugins=[Replay(session=id, missing="deny")], store=store) as rein, rein.session():
        assert conversation(rein, tools=REORDERED) == given
    assert effects == []


def test_after_the_last_step_a_strict_replay_says_so(five):
    store, id, _ = five
    rein = Rein(plugins=[Replay(session=id, missing="deny")], store=store)
    with rein, rein.session(on_error="keep"):
        conversation(rein)
        with pytest.raises(Denied, match="sorted was never called there, and its last step"):
            rein.call(sorted, [2, 1])


def test_parallel_calls_are_never_swapped(five):
    from concurrent.futures import ThreadPoolExecutor

    store, _, _ = five
    with Rein(store=store) as rein, rein.session() as session:
        recorded = {sides: rein.call(roll, sides) for sides in range(2, 40)}
    rein = Rein(plugins=[Replay(session=session.id, missing="deny")], store=store)
    with rein, rein.session() as again, ThreadPoolExecutor(8) as pool:
        bound = again.bind(lambda sides: rein.call(roll, sides))
        got = dict(zip(recorded, pool.map(bound, recorded), strict=True))
    assert got == recorded


# -- going on from a step


def test_a_session_goes_on_from_an_edited_step(five):
    store, id, given = five
    with Rein(plugins=[Replay()], store=store) as rein:
        new = rein.replay(id, from_step=3, edits={3: "another answer", 2: {"n": 99, "sides": 6}})
        with rein.session(id=new):
            got = conversation(rein)
        assert got[:3] == [given[0], {"n": 99, "sides": 6}, "another answer"]
        assert effects == [6, 20], "what comes after runs"
        effects.clear()
        # A session that was not prepared is left alone.
        with rein.session():
            rein.call(roll, 6)
        assert effects == [6]
        sources = [e.view["source"] for e in rein.read(new).events() if e.kind == "answered"]
        assert sources == ["replay"] * 3


def test_what_cannot_be_gone_on_from_is_refused(five):
    store, id, _ = five
    with Rein(plugins=[Replay()], store=store) as rein:
        with pytest.raises(Conflict, match="has no step 9"):
            rein.replay(id, from_step=9)
        with pytest.raises(ConfigError, match="step 4 is not among the steps 1 to 3"):
            rein.replay(id, from_step=3, edits={4: "x"})
        with pytest.raises(ConfigError, match="step 3 must be plain data"):
            rein.replay(id, from_step=3, edits={3: object()})
        with pytest.raises(Conflict, match="no events"):
            rein.replay("nobody", from_step=1)
    with Rein(store=store) as rein, pytest.raises(Conflict, match="plugin replay is not active"):
        rein.replay(id, from_step=1)


def test_the_command_prepares_a_session(five, tmp_path):
    store, id, given = five
    (tmp_path / "shop.py").write_text(
        "from checkrein import Rein\nfrom checkrein_plugins.replay import Replay\n"
        f"rein = Rein(plugins=[Replay()], store={store!r})\n"
    )
    (tmp_path / "edit.json").write_text('"another answer"')

    def command(*more):
        return subprocess.run(
            [sys.executable, "-m", "checkrein", "replay", id, "--app", "shop:rein", *more],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    done = command("--from", "3", "--edit", "edit.json")
    assert done.returncode == 0, done.stderr
    with Rein(plugins=[Replay()], store=store) as rein, rein.session(id=done.stdout.strip()):
        assert conversation(rein)[:3] == [*given[:2], "another answer"]
    (tmp_path / "edit.json").write_text("{not json")
    assert "--edit edit.json: Expecting" in command("--from", "3", "--edit", "edit.json").stderr
    assert "--edit nothing: No such file" in command("--from", "3", "--edit", "nothing").stderr
    assert "--edit needs --from" in command("--edit", "edit.json").stderr
