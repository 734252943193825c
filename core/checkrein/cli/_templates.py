"""What `checkrein init` writes."""

from __future__ import annotations

_HEAD = """\
# Configuration of checkrein. Unknown keys and wrong types are refused with their line.
# A relative store path is taken from this file's own directory.

store = "sqlite:///checkrein.db"
# durability = "power"        # "process" survives kills; "power" also power cuts, and is slower
# mode = "observe"            # evaluate everything, let everything pass, record the difference
# record = "tools"            # keep exact requests and answers of tools only, not of models
# on_rejected = "rollback"    # a refused approval undoes the session at once
# approval_expires = 86400    # seconds that a person has to answer
# unattributed = "refuse"     # calls outside any session: refuse them

# Where the command line finds your application's Rein, and so its tools: needed by
# `checkrein resume`, `rollback`, `recover` and `worker`.
# app = "my_agent:rein"
"""

_PLUGINS = """
# Plugins run in the order of this file. `checkrein plugins` lists what is installed.

[plugins.redaction]           # private data is masked before a model, a log or a person sees it

[plugins.scope]               # which tools may run, with which arguments
rules = [
  # { tool = "refund", arguments = { amount = { ask_above = 100, maximum = 1000 } } },
  { tool = "shell*", action = "deny" },
]

[plugins.budget]              # a cap that holds before the call, over all processes
usd = 5
per = "session"

[plugins.cost]                # what each model call cost
"""

_TOOLS = """
# Tools that are declared elsewhere: by a framework, a toolkit, an SDK. The undo is a tool's
# name or a template; it gets its arguments from the call's arguments and from `result`.

# [tools.send_mail]
# effect = "egress"           # "read" changes nothing, "write" changes something
# [tools.create_customer]
# undo = "delete_customer(result.id)"
# probe = "my_tools:customer_exists"      # "is the effect in place now?", for calls in doubt
# settle_time = 30            # seconds until a probe's "no" is final
"""

_USE = {
    "python": """
# Use it:
#
#     from checkrein import Rein
#
#     rein = Rein.from_file("{name}")
#     with rein.session(agent="billing"):
#         rein.call(charge, customer="c1", amount=10)
""",
    "langchain": """
# Use it:
#
#     from checkrein import Rein
#     from checkrein_integrations.langchain import CheckreinMiddleware
#
#     rein = Rein.from_file("{name}")
#     agent = create_agent(model, tools, middleware=[CheckreinMiddleware(rein)])
""",
    "crewai": """
# Use it:
#
#     from checkrein import Rein
#     from checkrein_integrations.crewai import supervise
#
#     rein = Rein.from_file("{name}")
#     with rein.session(agent="billing"), supervise(rein):
#         crew.kickoff()
""",
    "openai-agents": """
# Use it:
#
#     from checkrein import Rein
#     from checkrein_integrations.openai_agents import run
#
#     rein = Rein.from_file("{name}")
#     async with rein.session(agent="billing"):
#         result = await run(rein, agent, "charge c1")
""",
}

FRAMEWORKS = tuple(_USE)


def configuration(framework: str, name: str) -> str:
    """A commented configuration; every line that is not a comment works as it stands."""
    return _HEAD + _USE[framework].format(name=name) + _PLUGINS + _TOOLS
