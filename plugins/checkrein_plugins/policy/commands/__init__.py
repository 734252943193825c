"""`checkrein policy ...`: check, explain, test and rehearse policies before they are live."""

from __future__ import annotations

import typer

from checkrein_plugins.policy.commands.cases import test
from checkrein_plugins.policy.commands.check import check, schema
from checkrein_plugins.policy.commands.diff import diff
from checkrein_plugins.policy.commands.explain import explain
from checkrein_plugins.policy.commands.replay import replay

app = typer.Typer(
    help="Check, explain, test and rehearse policies.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _command in (check, schema, explain, test, replay, diff):
    app.command(_command.__name__)(_command)
