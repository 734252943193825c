"""What the adapter needs of its framework: said at the start, with the remedy."""

from importlib.metadata import requires, version

import pytest
from packaging.requirements import Requirement

pytest.importorskip("langchain")

from langchain_core.tools import tool

from checkrein.errors import ConfigError
from checkrein_integrations.langchain import (
    CheckreinCallbackHandler,
    CheckreinMiddleware,
    framework,
    supervise_tool,
    tool_node_wrappers,
)

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
    import checkrein_integrations.langchain
except ConfigError as error:
    print(error)
"""


@tool
def look(what: str) -> str:
    """Look at something."""
    return what


def test_what_the_extra_names_is_installed():
    wanted = [
        requirement
        for requirement in map(Requirement, requires("checkrein") or [])
        if requirement.marker and requirement.marker.evaluate({"extra": "langchain"})
    ]
    assert {"langchain", "langgraph"} <= {requirement.name for requirement in wanted}
    for requirement in wanted:
        assert requirement.specifier.contains(version(requirement.name), prereleases=True)


@pytest.mark.parametrize(
    ("missing", "said"),
    [("langgraph", "needs langchain 1.5 and langgraph 1.2"),
     ("langgraph.prebuilt.tool_node", "have parts in other places")],
)  # fmt: skip
def test_a_missing_package_or_part_is_named_with_the_remedy(child, missing, said):
    out, problems = child(WITHOUT, missing).communicate(timeout=60)
    assert said in out, problems
    assert "pip install 'checkrein[langchain]'" in out


WAYS_IN = {
    "middleware": CheckreinMiddleware,
    "callbacks": CheckreinCallbackHandler,
    "tool": lambda rein: supervise_tool(rein, look),
    "node": tool_node_wrappers,
}


@pytest.fixture(autouse=True)
def _fresh():
    framework._missing.cache_clear()
    yield
    framework._missing.cache_clear()


@pytest.mark.parametrize("way", WAYS_IN)
@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("langchain.agents.middleware.AgentMiddleware.awrap_tool_call", "awrap_tool_call"),
        ("langchain_core.language_models.BaseChatModel._should_stream", "_should_stream"),
        ("langgraph._internal._constants.CONFIG_KEY_CHECKPOINTER", "__pregel_checkpointer"),
    ],
)
def test_a_framework_that_lacks_a_part_is_refused_at_construction(
    rein, monkeypatch, part, said, way
):
    r = rein()
    monkeypatch.delattr(part)
    with pytest.raises(ConfigError, match=rf"{said}.*supported: langchain 1\.5"):
        WAYS_IN[way](r)


@pytest.mark.parametrize("way", WAYS_IN)
@pytest.mark.parametrize("other", ["1.4.9", "0.3.27", "2.0.0", None])
def test_a_version_that_is_not_supported_is_refused(rein, monkeypatch, other, way):
    monkeypatch.setattr(
        framework, "_installed", lambda name: other if name == "langchain" else "1.2.24"
    )
    with pytest.raises(ConfigError, match=r"not supported: langchain 1\.5 and langgraph 1\.2"):
        WAYS_IN[way](rein())
