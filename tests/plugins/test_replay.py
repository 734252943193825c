"""Replay: recorded results answer the same calls of a new session, each in its own order."""

import pytest

from checkrein import Rein
from checkrein.errors import ConfigError, Denied
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
        with pytest.raises(Denied, match="no result number 2") as caught:
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
