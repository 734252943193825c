"""Processes for `test_demo_kills.py`: imports everything once and forks one for each command.

    work FIRST      refunds for orders FIRST-0, FIRST-1, ... until it is killed
    recover         `rein.recover()`
    settle          `rein.recover(settle=True)`; the same
    wait PID        waits for a process and prints its exit status

Each of the first three prints the pid of its process.
"""

import itertools
import os
import sys
import tomllib
from pathlib import Path

from checkrein import Rein
from checkrein_integrations.demo.application import policy
from checkrein_integrations.demo.desk import open_desk
from checkrein_integrations.demo.world import World
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost
from checkrein_plugins.guardrails import Scope
from checkrein_plugins.redaction import Redaction


def opened(folder, settle):
    """The demo's desk under the demo's policy, without an installed entry point."""
    plugins = tomllib.loads(policy())["plugins"]
    rein = Rein(
        [
            Redaction(**plugins["redaction"]),
            Scope(**plugins["scope"]),
            Budget(**plugins["budget"], calls=10_000),
            Cost(),
        ],
        store=f"sqlite:///{folder}/checkrein.db",
    )
    return rein, open_desk(rein, World(folder), settle=settle)


def work(folder, settle, first):
    rein, desk = opened(folder, settle)
    world = World(folder)
    for number in itertools.count():
        order = f"{first}-{number}"
        with world.shop() as db:
            db.execute("insert into orders values (?, 'c1', 'lamp', 4200, '')", (order,))
        with rein.session(agent="refund-desk", task=order):
            desk.refund(order, 42.0)


def recover(folder, settle, wait):
    rein, _ = opened(folder, settle)
    rein.recover(settle=wait)
    rein.close()


def tell(number):
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def main():
    folder, settle = Path(sys.argv[1]), float(sys.argv[2])
    opened(folder, settle)[0].close()
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "wait":
            tell(os.waitpid(int(rest[0]), 0)[1])
            continue
        pid = os.fork()
        if pid:
            tell(pid)
            continue
        code = 1
        try:
            if command == "work":
                work(folder, settle, rest[0])
            else:
                recover(folder, settle, command == "settle")
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)


if __name__ == "__main__":
    main()
