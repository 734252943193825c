"""The `langchain` extra brings what the adapter needs, in versions that it accepts."""

from importlib.metadata import requires, version

from packaging.requirements import Requirement


def test_what_the_extra_names_is_installed():
    wanted = [
        requirement
        for requirement in map(Requirement, requires("checkrein") or [])
        if requirement.marker and requirement.marker.evaluate({"extra": "langchain"})
    ]
    assert {"langchain", "langgraph"} <= {requirement.name for requirement in wanted}
    for requirement in wanted:
        assert requirement.specifier.contains(version(requirement.name), prereleases=True)
