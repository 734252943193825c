"""An OpenAI Agents SDK agent with redaction, a budget, an approval and an undo; it needs no key.

Install with `pip install "checkrein[openai-agents]"`, run with `python examples/openai_agents.py`.
"""

from agents import Agent, function_tool, set_tracing_disabled

from checkrein import Rein
from checkrein.errors import BudgetExceeded
from checkrein_integrations.openai_agents import resume, run_sync
from checkrein_integrations.testing.openai_agents import ScriptedModel, ask, call
from checkrein_plugins.budget import Budget
from checkrein_plugins.guardrails import Scope
from checkrein_plugins.redaction import Redaction

set_tracing_disabled(True)
balance = {"ann": 0}


@function_tool
def refund(customer: str, amount: int) -> dict:
    """Refund an amount to a customer."""
    balance[customer] += amount
    return {"customer": customer, "amount": amount}


def take_back(result: dict) -> None:
    """Undo a refund."""
    balance[result["customer"]] -= result["amount"]


rule = {"tool": "refund", "arguments": {"amount": {"ask_above": 50}}}
plugins = [Redaction(), Scope(rules=[rule]), Budget(calls=6, halt=True)]
rein = Rein(plugins=plugins, approvals="store")
rein.declare("refund", undo=take_back)

steps = [ask(call("refund", customer="ann", amount=80)), "80 refunded"]
steps += [ask(call("refund", customer="ann", amount=5)) for _ in range(9)]
model = ScriptedModel(steps)
agent = Agent(name="clerk", model=model, tools=[refund])

run_sync(rein, agent, "Refund 80 to ann, mail ann@example.org")
(asked,) = rein.approvals.pending()
print("waits:", asked.tool, dict(asked.arguments), "balance", balance)
rein.approvals.approve(asked.id, by="boss")
print("model:", resume(rein, asked.id, agent).final_output, "balance", balance)
print("mail address sent to the model:", "ann@example.org" in model.sent)
try:
    run_sync(rein, agent, "Now keep refunding")
except BudgetExceeded as error:
    print("stopped:", error.code, "balance", balance)
