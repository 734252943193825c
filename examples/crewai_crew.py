"""A CrewAI crew with redaction, a budget, an approval and an undo; it needs no key.

Install with `pip install "checkrein[crewai]"`, run with `python examples/crewai_crew.py`.
"""

from crewai import Agent, Crew, Task

from checkrein import Rein
from checkrein.errors import ApprovalPending, BudgetExceeded
from checkrein_integrations.crewai import resume, supervise, supervised_tool
from checkrein_integrations.testing.crewai import ScriptedLLM, call
from checkrein_plugins.budget import Budget
from checkrein_plugins.guardrails import Scope
from checkrein_plugins.redaction import Redaction

balance = {"ann": 0}

rule = {"tool": "refund", "arguments": {"amount": {"ask_above": 50}}}
plugins = [Redaction(), Scope(rules=[rule]), Budget(calls=6, halt=True)]
rein = Rein(plugins=plugins, approvals="store")


def take_back(result: dict) -> None:
    """Undo a refund."""
    balance[result["customer"]] -= result["amount"]


@supervised_tool(rein, undo=take_back)
def refund(customer: str, amount: int) -> dict:
    """Refund an amount to a customer."""
    balance[customer] += amount
    return {"customer": customer, "amount": amount}


def crew(text: str, llm: ScriptedLLM) -> Crew:
    """A crew of one clerk."""
    clerk = Agent(role="clerk", goal="help", backstory="exact", llm=llm, tools=[refund])
    task = Task(description=text, expected_output="what was refunded", agent=clerk)
    return Crew(agents=[clerk], tasks=[task])


model = ScriptedLLM(script=[[call("refund", customer="ann", amount=80)], "80 refunded"])
desk = crew("Refund 80 to ann, mail ann@example.org", model)
try:
    with supervise(rein, session=rein.session(agent="desk", wait="suspend")):
        desk.kickoff()
except ApprovalPending as waiting:
    print("waits:", waiting.tool, "balance", balance)
    rein.approvals.approve(waiting.token, by="boss")
    print("model:", resume(rein, waiting.token, desk).raw, "balance", balance)
print("mail address sent to the model:", "ann@example.org" in model.sent)
endless = ScriptedLLM(script=[[call("refund", customer="ann", amount=n)] for n in range(9)])
try:
    with supervise(rein):
        crew("Now keep refunding", endless).kickoff()
except BudgetExceeded as error:
    print("stopped:", error.code, "balance", balance)
