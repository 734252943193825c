"""The demo's folder: its policy as a checkrein.toml, and the application that commands load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkrein import Rein
from checkrein_integrations.demo.desk import Desk, open_desk
from checkrein_integrations.demo.world import World

CONFIG = """\
# The policy of the refund desk.
store = "sqlite:///checkrein.db"
app = "refund_desk:rein"

# What leaves for the model, a tool or a person is redacted. Only the mail keeps its address.
[plugins.redaction.per_tool.deliver]
keep = ["email"]

[plugins.scope]
rules = [
  # A refund above 100 dollars asks a person; above 1000 it is refused.
  { tool = "pay_refund", arguments = { amount = { ask_above = 100, maximum = 1000 } } },
  # Mail goes to these domains only.
  { tool = "deliver", arguments = { to = { match = '[^@\\s]+@example\\.(org|net|com)' } } },
]

# No session may spend more dollars than this on models.
[plugins.budget]
usd = {cap}
per = "session"
max_output_tokens = 300

# What every model call used and cost.
[plugins.cost]
"""

APP = '''\
"""The refund desk as an application: `checkrein recover` and `rollback` find its tools here."""

from pathlib import Path

from checkrein_integrations.demo.application import application


def rein():
    return application(Path(__file__).parent)[0]
'''


def policy(cap: float = 0.04) -> str:
    """The text of checkrein.toml. `cap`: dollars that a session may spend on models."""
    return CONFIG.replace("{cap}", f"{cap:g}")


def prepare(folder: Path, *, cap: float = 0.04) -> None:
    """Write the policy and the application file into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "checkrein.toml").write_text(policy(cap), encoding="utf-8")
    (folder / "refund_desk.py").write_text(APP, encoding="utf-8")


def application(
    folder: Path,
    *,
    world: World | None = None,
    case_system: Callable[[str], None] | None = None,
    **overrides: Any,
) -> tuple[Rein, Desk]:
    """The desk's Rein, from the folder's policy, and its tools. `overrides` are of `Rein`."""
    world = world if world is not None else World(folder)
    rein = Rein.from_file(folder / "checkrein.toml", **overrides)
    return rein, open_desk(rein, world, case_system=case_system)
