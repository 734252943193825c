"""A session that is taken up after a kill: circuit breakers and budgets stand where they stood."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein, errors
from checkrein_plugins.budget import Budget
from checkrein_plugins.resilience.breaker import CircuitBreaker

APP = """
import os, signal, sys
from checkrein import Rein
from checkrein_plugins.budget import Budget
from checkrein_plugins.resilience.breaker import CircuitBreaker

rein = Rein([Budget(calls=5, per="session"), CircuitBreaker(threshold=2, reset=3600)],
            store=sys.argv[1], on_error="keep")

def shaky():
    raise ConnectionError

with rein.session("desk", id=sys.argv[2]) as session:
    rein.call(len, "a")
    for _ in range(2):
        try:
            rein.call(shaky)
        except ConnectionError:
            pass
    print(session.id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_counts_is_as_it_was(go: Any, child: Any, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    process = child(APP, store, "run-1")
    assert process.wait() == -signal.SIGKILL, process.stderr.read()
    plugins = [Budget(calls=5, per="session"), CircuitBreaker(threshold=2, reset=3600)]

    def shaky() -> None:
        raise AssertionError("the circuit is open: it is not called")

    with Rein(plugins, store=store, on_error="keep") as rein, rein.session(id="run-1") as session:
        with pytest.raises(errors.Denied) as refused:
            go.call(rein, shaky)
        assert refused.value.code == "circuit_open"
        # Three of five calls were made before the kill.
        go.call(rein, len, "b")
        go.call(rein, len, "c")
        with pytest.raises(errors.BudgetExceeded):
            go.call(rein, len, "d")
        assert (session.agent, session.spend().calls) == ("desk", 5)
