"""A sub-agent spends its parent's money: one cap over both, and one of its own.

python examples/shared_cap.py
"""

from __future__ import annotations

from typing import Any

from checkrein import Rein, errors
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost

PRICES = {"my-model": {"input": 3.0, "output": 15.0}}
MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "look it up"}]}]


def provider(**_request: Any) -> dict[str, Any]:
    """Stand in for a model: each answer costs one cent."""
    return {"model": "my-model", "usage": {"prompt_tokens": 1000, "completion_tokens": 467}}


def work(rein: Rein, agent: str, most: int) -> int:
    """Let an agent call its model up to `most` times; how often it could."""
    done = 0
    with rein.session(agent=agent, on_error="keep"), rein.options(labels={"max_tokens": "500"}):
        try:
            for _ in range(most):
                rein.model_call(provider, model="my-model", messages=MESSAGES)
                done += 1
        except errors.BudgetExceeded as refused:
            print(f"{agent}: {refused.reason}")
    return done


def main() -> tuple[int, int]:
    """Run a parent with two sub-agents; how often each sub-agent could call."""
    plugins = [
        Budget(usd=0.08, per="session", prices=PRICES),
        Budget(usd=0.06, per=["session", "agent"], name="agent", prices=PRICES),
        Cost(overlay=PRICES),
    ]
    with Rein(plugins=plugins) as rein, rein.session(agent="parent", on_error="keep") as run:
        first, second = work(rein, "researcher", 10), work(rein, "writer", 10)
        print(f"the run: ${run.spend().usd:.4f} of $0.08")
        for total in rein.store.totals("agent"):
            print(f"  {total.key}: ${total.cost / 1e9:.4f} in {total.calls} calls")
    return first, second


if __name__ == "__main__":
    main()
