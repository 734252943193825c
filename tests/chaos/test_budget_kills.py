"""A cap holds while processes that spend are killed: 0 overshoot, and every hold is swept.

Threads of several processes drive one account after another to its refusal. What really reached
the provider is written down outside, by the provider itself. Workers are killed at random with
SIGKILL and others begun in their place; meanwhile and at the end what they left is recovered.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein
from checkrein.call import NANO

CAP = 3 * NANO
HOLD = 50_000_000
"""What a call holds, and what it costs at most."""

WORKER = """
import os, random, sys, threading
from checkrein import Rein
from checkrein.errors import BudgetExceeded, StoreUnavailable
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost

url, book, first, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
prices = {"mine": {"input": 1, "output": 0}}
rein = Rein(
    plugins=[Budget(usd=3, per="user", estimate_usd=0.05, prices=prices, halt=False),
             Cost(overlay=prices)],
    store=url,
)
provider_book = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

def spend(number):
    chance = random.Random()
    user = first
    while True:
        with rein.session(user=f"u{user}", on_error="keep"):

            def provider(**request):
                tokens = chance.randrange(50_001)
                # It costs something from here on, whoever is killed.
                os.write(provider_book, f"u{user} {tokens * 1000}\\n".encode())
                return {"usage": {"prompt_tokens": tokens, "completion_tokens": 0}}

            try:
                while True:
                    rein.model_call(provider, model="mine", messages=[])
            except BudgetExceeded:
                os.write(provider_book, f"u{user} refused\\n".encode())
        user += 1

for number in range(threads):
    threading.Thread(target=spend, args=(number,), daemon=True).start()
sys.stdin.read()  # until the end
os._exit(0)
"""


def read(book: Path) -> tuple[Counter[str], Counter[str], int]:
    """(what each user's calls really cost, refusals, calls that reached the provider)."""
    real: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    calls = 0
    for line in book.read_text().splitlines() if book.exists() else ():
        user, what = line.split()
        if what == "refused":
            refused[user] += 1
        else:
            real[user] += int(what)
            calls += 1
    return real, refused, calls


def kill(worker: subprocess.Popen[Any]) -> None:
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert worker.stdin is not None
    worker.stdin.close()


@pytest.mark.timeout(1800)
def test_no_overshoot_while_processes_are_killed(
    full: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    processes, threads, admissions, kills = (8, 8, 10_000, 30) if full else (3, 8, 400, 5)
    url, book = f"sqlite:///{tmp_path}/s.db", tmp_path / "book"
    Rein(store=url).close()
    chance = random.Random()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def start() -> subprocess.Popen[Any]:
        _, refused, _ = read(book)
        first = max((int(user[1:]) for user in refused), default=0)
        return subprocess.Popen(
            [sys.executable, "-c", WORKER, url, str(book), str(first), str(threads)],
            stdin=subprocess.PIPE, env=environment,
        )  # fmt: skip

    workers = [start() for _ in range(processes)]
    killed, calls, deadline = 0, 0, time.monotonic() + (1500 if full else 90)
    try:
        while calls < admissions or killed < kills:
            assert time.monotonic() < deadline, f"only {calls} calls came through"
            before = calls
            while calls < before + admissions // 40 and time.monotonic() < deadline:
                time.sleep(0.02)
                calls = read(book)[2]
            time.sleep(chance.random() * 0.05)
            victim = chance.randrange(processes)
            assert workers[victim].poll() is None, "a worker ended by itself"
            kill(workers[victim])
            workers[victim] = start()
            killed += 1
            if killed % 10 == 5:
                with Rein(store=url) as rein:
                    rein.recover()  # beside those that live
    finally:
        for worker in workers:
            kill(worker)

    with Rein(store=url) as rein:
        rein.recover()
        balances = {b.account.rpartition("/")[2]: b for b in rein.store.balances("budget/")}
        bill = {total.key: total for total in rein.store.totals("user")}
        assert rein.store.holds() == []
        assert rein.store.rebuild() == []
    real, refused, calls = read(book)
    assert calls >= admissions
    over = {user: real[user] for user in real if real[user] > CAP}
    assert not over
    for user, balance in balances.items():
        assert balance.held == 0
        assert real[user] <= balance.spent <= CAP
        assert bill[user].cost == balance.spent, "rows add up to what the budget charged"
    # A call is refused only where not even one more hold had room: nothing is lost for good.
    for user in refused:
        assert balances[user].spent > CAP - (processes * threads) * HOLD
    with capsys.disabled():
        sys.stdout.write(
            f"\n{calls} calls, {sum(refused.values())} refusals, {killed} kills, "
            f"{len(balances)} accounts: {len(over)} over their cap\n"
        )
