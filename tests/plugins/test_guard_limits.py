"""No limit of a guard is passed by one: threads, tasks, and eight processes on one store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein, errors
from checkrein_plugins.guardrails import CategoryRateLimit, IdempotencyGuard, Scope
from checkrein_plugins.policy import Policy

MOST = 7
"""Calls that each of these lets run."""

GUARDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rates": (CategoryRateLimit, {"limits": [{"tool": "pay", "calls": MOST, "per": "agent"}]}),
    "window": (
        CategoryRateLimit,
        {"limits": [{"category": "write", "calls": MOST, "per": "agent", "window": 3600}]},
    ),
    "calls": (Scope, {"rules": [{"tool": "pay", "max_calls": MOST}]}),
    "total": (
        Scope,
        {"rules": [{"tool": "pay", "arguments": {"amount": {"total": MOST * 10 + 9}}}]},
    ),
    "counter": (
        Policy,
        {
            "layers": [
                {"name": "p", "counters": {"n": {"tool": "pay", "limit": MOST, "per": "agent"}}}
            ]
        },
    ),
    "sum": (
        Policy,
        {
            "layers": [
                {
                    "name": "p",
                    "counters": {
                        "n": {
                            "tool": "pay", "sum": "amount", "limit": MOST * 10 + 9, "per": "agent",
                        }
                    },
                }
            ]
        },
    ),
}  # fmt: skip


@pytest.fixture(params=["memory:", "sqlite"])
def store(request: Any, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else str(request.param)


@pytest.mark.parametrize("guard", GUARDS)
def test_threads(store, guard) -> None:
    ran: list[int] = []

    def pay(amount: int) -> None:
        ran.append(amount)

    def attempt(_: int) -> bool:
        try:
            rein.call(pay, 10)
        except errors.BudgetExceeded:
            return False
        return True

    kind, settings = GUARDS[guard]
    with (
        Rein([kind(**settings)], store=store) as rein,
        rein.session(agent="a", on_error="keep") as session,
        ThreadPoolExecutor(16) as pool,
    ):
        passed = list(pool.map(session.bind(attempt), range(48)))
    assert len(ran) == sum(passed) == MOST


@pytest.mark.parametrize("guard", GUARDS)
def test_tasks(store, guard) -> None:
    ran: list[int] = []

    async def pay(amount: int) -> None:
        ran.append(amount)
        await asyncio.sleep(0.001)

    async def run() -> list[Any]:
        kind, settings = GUARDS[guard]
        with Rein([kind(**settings)], store=store) as rein:
            async with rein.session(agent="a", on_error="keep"):
                calls = (rein.acall(pay, 10) for _ in range(48))
                return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(run())
    assert len(ran) == found.count(None) == MOST
    assert sum(isinstance(one, errors.BudgetExceeded) for one in found) == 48 - MOST


PROCESS = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
from checkrein import Rein, errors
from checkrein_plugins import guardrails, policy, resilience

store, effects, kind, settings, calls = sys.argv[1:]
plugin = getattr(guardrails, kind, None) or getattr(resilience, kind, None) or policy.Policy
log = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def pay(amount):
    os.write(log, b"begun\\n")

def down(amount):
    os.write(log, b"begun\\n")
    time.sleep(0.01)
    raise OSError("down")

def probe(amount):
    os.write(log, b"begun\\n")
    time.sleep(0.3)
    os.write(log, b"ended\\n")

def attempt(tool):
    try:
        rein.call(tool, 10)
    except (OSError, errors.BudgetExceeded):
        pass

rein = Rein([plugin(**json.loads(settings))], store=store)
tools = {"pay": pay, "down": down, "probe": probe}
name, number = calls.split("*")
tool = rein.declare("pay", tools[name], effect="write").fn
print("ready", flush=True)
sys.stdin.readline()
with rein.session(agent="a", on_error="keep") as session, ThreadPoolExecutor(8) as pool:
    list(pool.map(session.bind(attempt), [tool] * int(number)))
rein.close()
"""


def eight(
    child: Callable[..., Any], folder: Path, kind: type, settings: dict[str, Any], calls: str
) -> list[str]:
    """What eight processes did that began at once, line by line."""
    effects = folder / "effects"
    given = (f"sqlite:///{folder}/s.db", effects, kind.__name__, json.dumps(settings), calls)
    processes = [child(PROCESS, *given) for _ in range(8)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told
    return effects.read_text().splitlines()


# A session belongs to one process: what counts per session is not shared by others.
@pytest.mark.parametrize("guard", ["window", "counter", "sum"])
def test_processes(tmp_path, child, guard) -> None:
    assert len(eight(child, tmp_path, *GUARDS[guard], "pay*6")) == MOST


def test_eight_processes_do_one_operation_once(tmp_path, child) -> None:
    settings = {"keys": {"pay": ["amount"]}, "per": "all"}
    assert len(eight(child, tmp_path, IdempotencyGuard, settings, "pay*6")) == 1


def test_failures_of_eight_processes_do_not_pass_the_threshold(tmp_path, child) -> None:
    from checkrein_plugins.resilience import CircuitBreaker

    settings = {"threshold": 3, "reset": 3600}
    assert 1 <= len(eight(child, tmp_path, CircuitBreaker, settings, "down*7")) <= 3


@pytest.mark.parametrize("wait", [True, False])
def test_eight_processes_send_one_probe(tmp_path, child, wait) -> None:
    from checkrein_plugins.resilience import CircuitBreaker

    settings = {"threshold": 1, "reset": 0.2, "wait": wait}

    def down(amount: int) -> None:
        raise OSError("down")

    with Rein([CircuitBreaker(**settings)], store=f"sqlite:///{tmp_path}/s.db") as rein:
        tool = rein.declare("pay", down).fn
        with rein.session(on_error="keep"), pytest.raises(OSError, match="down"):
            rein.call(tool, 1)
    lines = eight(child, tmp_path, CircuitBreaker, settings, "probe*4")
    assert lines.index("ended") == 1, lines
