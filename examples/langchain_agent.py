"""A LangChain agent with redaction, a budget, an approval and an undo; it needs no key.

Install with `pip install "checkrein[langchain]"`, run with `python examples/langchain_agent.py`.
"""

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from checkrein import Rein
from checkrein.errors import BudgetExceeded
from checkrein_integrations.langchain import CheckreinMiddleware, resume
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call
from checkrein_plugins.budget import Budget
from checkrein_plugins.guardrails import Scope
from checkrein_plugins.redaction import Redaction

balance = {"ann": 0}
THREAD = {"configurable": {"thread_id": "t1"}}


@tool
def refund(customer: str, amount: int) -> dict:
    """Refund an amount to a customer."""
    balance[customer] += amount
    return {"customer": customer, "amount": amount}


def take_back(result: dict) -> None:
    """Undo a refund."""
    balance[result["customer"]] -= result["amount"]


rein = Rein(
    plugins=[
        Redaction(),
        Scope(rules=[{"tool": "refund", "arguments": {"amount": {"ask_above": 50}}}]),
        Budget(calls=6, halt=True),
    ],
    approvals="store",
)
rein.declare("refund", undo=take_back)

steps = [ai("", call("refund", customer="ann", amount=80)), ai("80 refunded")]
steps += [ai("", call("refund", customer="ann", amount=5)) for _ in range(9)]
model = ScriptedChatModel(script=steps)
guard, saver = CheckreinMiddleware(rein), InMemorySaver()
agent = create_agent(model, [refund], middleware=[guard], checkpointer=saver)

agent.invoke({"messages": [("user", "Refund 80 to ann, mail ann@example.org")]}, THREAD)
(asked,) = rein.approvals.pending()
print("waits:", asked.tool, dict(asked.arguments), "balance", balance)
rein.approvals.approve(asked.id, by="boss")
print("model:", resume(rein, asked.id, agent)["messages"][-1].content, "balance", balance)
print("mail address sent to the model:", "ann@example.org" in model.sent)
try:
    agent.invoke({"messages": [("user", "Now keep refunding")]}, THREAD)
except BudgetExceeded as error:
    print("stopped:", error.code, "balance", balance)
