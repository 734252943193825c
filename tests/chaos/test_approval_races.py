"""Eight processes answer and resume the same approvals at once: every call runs exactly once."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from checkrein import Ask, Call, Plugin, Rein, errors

APP = """
import os, sys
from checkrein import Ask, Plugin, Rein, errors

class Asks(Plugin):
    def pre_call(self, call):
        return Ask("sure?")

url, log, tokens, contenders, me = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
rein = Rein(plugins=[Asks()], store=url)
effects = os.open(log, os.O_WRONLY | os.O_APPEND)

@rein.tool
def pay(amount: int) -> int:
    os.write(effects, b"%d\\n" % amount)
    return amount

lines = [line.split() for line in open(tokens)]
mine = [(int(n), token) for n, token in lines if (me - int(n)) % 8 < contenders]
print("ready", flush=True)
sys.stdin.readline()
wrong = 0
for amount, token in mine:
    try:
        rein.approvals.approve(token, by=f"p{me}")
    except errors.Conflict:
        pass  # another process has
    wrong += rein.resume(token) != amount
rein.close()
print(wrong, flush=True)
"""


class Asks(Plugin):
    def pre_call(self, call: Call) -> Ask:
        return Ask("sure?")


def test_races_to_answer_and_to_resume_give_one_effect_each(
    child: Callable[..., subprocess.Popen[str]], tmp_path: Path, full: bool
) -> None:
    count, contenders = (10_000, 2) if full else (64, 8)
    url, log, tokens = f"sqlite:///{tmp_path}/s.db", tmp_path / "log", tmp_path / "tokens"
    log.touch()

    def pay(amount: int) -> int:
        raise AssertionError

    with Rein(plugins=[Asks()], store=url) as rein, tokens.open("w") as file:
        rein.declare("pay", fn=pay)
        for amount in range(count):
            try:
                with rein.session(wait="suspend"):
                    rein.call(pay, amount)
            except errors.ApprovalPending as pending:
                file.write(f"{amount} {pending.token}\n")
    processes = [child(APP, url, log, tokens, contenders, me) for me in range(8)]
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=280) for process in processes]
    assert [out for out, _ in answers] == ["0\n"] * 8, [err[-500:] for _, err in answers if err]
    ran = Counter(log.read_text().split())
    assert len(ran) == count
    assert set(ran.values()) == {1}
    with Rein(store=url) as rein:
        states = Counter(
            rein.store.record("approval", line.split()[1]).state
            for line in tokens.read_text().splitlines()
        )
    assert states == {"done": count}
