"""The `crewai` extra brings what the adapter needs; what is missing is named, with the remedy."""

from __future__ import annotations

from importlib.metadata import requires, version

import pytest
from crewai.hooks.dispatch import InterceptionPoint
from crewai.llms.base_llm import BaseLLM
from crewai.tools import BaseTool
from packaging.requirements import Requirement

from checkrein.errors import ConfigError
from checkrein_integrations.crewai import supervise, supervise_model, supervised_tool
from checkrein_integrations.testing.crewai import ScriptedLLM

WITHOUT = """
import sys
from importlib.abc import MetaPathFinder
class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == MISSING or name.startswith(MISSING + "."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
MISSING = sys.argv[1]
sys.meta_path.insert(0, Missing())
from checkrein.errors import ConfigError
try:
    import checkrein_integrations.crewai
except ConfigError as error:
    print(error)
"""


def test_what_the_extra_names_is_installed():
    wanted = [
        requirement
        for requirement in map(Requirement, requires("checkrein") or [])
        if requirement.marker and requirement.marker.evaluate({"extra": "crewai"})
    ]
    assert {"crewai"} <= {requirement.name for requirement in wanted}
    for requirement in wanted:
        assert requirement.specifier.contains(version(requirement.name), prereleases=True)


@pytest.mark.parametrize(
    ("missing", "said"),
    [("crewai", "needs crewai 1.15"), ("crewai.hooks.dispatch", "has parts in other places")],
)
def test_a_missing_package_or_part_is_named_with_the_remedy(child, missing, said):
    out, problems = child(WITHOUT, missing).communicate(timeout=60)
    assert said in out, problems
    assert "pip install 'checkrein[crewai]'" in out


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (BaseLLM, "_emit_stream_chunk_event"),
        (BaseLLM, "_track_token_usage_internal"),
        (BaseTool, "_validate_kwargs"),
        (InterceptionPoint, "POST_TOOL_CALL"),
    ],
)
def test_a_framework_that_lacks_a_part_is_refused_at_construction(rein, monkeypatch, owner, name):
    class Other:
        """As the real one, without the part."""

    from checkrein_integrations.crewai import framework

    needed = tuple(
        (Other, names) if it is owner and name in names else (it, names)
        for it, names in framework._NEEDED
    )
    monkeypatch.setattr(framework, "_NEEDED", needed)
    r = rein()
    for make in (
        lambda: supervise(r),
        lambda: supervise_model(r, ScriptedLLM()),
        lambda: supervised_tool(r, lambda: None),
    ):
        with pytest.raises(ConfigError, match=r"supported: crewai 1\.15"):
            make()


@pytest.mark.parametrize("other", ["1.15.28", "1.9.0", "2.0.0", "0.100"])
def test_a_version_that_is_not_supported_is_refused(rein, monkeypatch, other):
    from checkrein_integrations.crewai import framework

    monkeypatch.setattr(framework, "installed", lambda: other)
    with pytest.raises(ConfigError, match=rf"crewai {other} is not supported: crewai 1\.15"):
        supervise(rein())
