"""The agent as a process of its own: refunds the orders that it is told to, in one session.

    python -m checkrein_integrations.demo.agent_process FOLDER ORDER AMOUNT [ORDER AMOUNT ...]

It begins when it reads a line: importing LangChain takes seconds, which nobody has to watch.
"""

from __future__ import annotations

import sys
from pathlib import Path

from checkrein_integrations.demo import agent
from checkrein_integrations.demo.application import application
from checkrein_integrations.demo.desk import AGENT
from checkrein_integrations.testing.langchain import ai


def main() -> None:
    """Work until done or killed."""
    folder, *given = sys.argv[1:]
    orders = list(zip(given[::2], map(float, given[1::2]), strict=True))
    steps = [step for order, amount in orders for step in agent.refund_steps(order, amount)]
    if not sys.stdin.readline():
        return  # whoever started it is gone
    rein, desk = application(Path(folder))
    names = " and ".join(order for order, _ in orders)
    with rein, rein.session(agent=AGENT, intent=f"refund {names}"):
        agent.run(
            desk,
            model=agent.scripted([*steps, ai("Done.")]),
            question=f"Refund orders {names}.",
            heard=agent.Heard(),
        )


if __name__ == "__main__":
    main()
