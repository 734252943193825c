"""Versions: what the extra brings, and what is said where a part is missing."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import requires, version

import pytest
from agents import Agent, FunctionTool
from packaging.requirements import Requirement

from checkrein.errors import ConfigError
from checkrein_integrations.openai_agents import framework, run_config, supervise_agent
from checkrein_integrations.openai_agents.execution import cell_of, with_cells
from checkrein_integrations.testing.openai_agents import ScriptedModel

from .conftest import agent_of


def test_what_the_extra_names_is_installed():
    wanted = [
        requirement
        for requirement in map(Requirement, requires("checkrein") or [])
        if requirement.marker and requirement.marker.evaluate({"extra": "openai-agents"})
    ]
    assert {"openai-agents"} <= {requirement.name for requirement in wanted}
    for requirement in wanted:
        assert requirement.specifier.contains(version(requirement.name), prereleases=True)


@pytest.mark.parametrize(
    ("owner", "name"), [(Agent, "get_all_tools"), (framework.RunState, "from_string")]
)
def test_a_method_that_moved_is_named_at_construction(rein, monkeypatch, owner, name):
    monkeypatch.delattr(next(cls for cls in owner.__mro__ if name in vars(cls)), name)
    for make in (lambda: supervise_agent(rein(), agent_of(ScriptedModel([]))),
                 lambda: run_config(rein())):  # fmt: skip
        with pytest.raises(ConfigError, match=r"openai-agents .* has no .*supported: .*0\.24"):
            make()


def test_a_field_that_moved_is_named_at_construction(rein, monkeypatch):
    fields = dict(FunctionTool.__dataclass_fields__)
    del fields["needs_approval"]
    monkeypatch.setattr(FunctionTool, "__dataclass_fields__", fields)
    with pytest.raises(ConfigError, match=r"FunctionTool\.needs_approval.*supported"):
        supervise_agent(rein(), agent_of(ScriptedModel([])))


def test_a_function_behind_a_tool_that_is_made_otherwise_is_named():
    with pytest.raises(ConfigError, match=r"the_func.*supported"):
        cell_of(lambda: None, "the_func")
    with pytest.raises(ConfigError, match=r"self.*supported"):
        with_cells(len, self=1)


def test_the_missing_extra_is_named_with_its_command():
    code = "import sys; sys.modules['agents'] = None\nimport checkrein_integrations.openai_agents"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ConfigError" in done.stderr
    assert "pip install 'checkrein[openai-agents]'" in done.stderr


def test_the_sdk_is_imported_by_its_adapter_only():
    code = "import sys, checkrein, checkrein_integrations; assert 'agents' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
