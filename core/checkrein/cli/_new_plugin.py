"""Write a new plugin as a distribution of its own: one module, a short pyproject, a test.

What is written works as it stands: it installs, its hook runs and its test passes. The guard
in it refuses the tools that it is given; the author replaces that rule.
"""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from string import Template

from checkrein.errors import ConfigError

_PYPROJECT = Template("""\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "checkrein-$dashed"
version = "0.1.0"
description = "A checkrein guard: $words."
requires-python = ">=3.11"
dependencies = ["checkrein"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points.checkrein]
$snake = "checkrein_$snake:$camel"

[tool.hatch.build.targets.wheel]
only-include = ["checkrein_$snake.py"]
""")

_MODULE = Template('''\
"""A checkrein guard: $words."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from checkrein import Call, Deny, Plugin


class $camel(Plugin):
    """Refuses the tools it is given.

    Configuration reaches a plugin as the arguments of its constructor.

    Args:
        tools: Names of tools, or patterns with `*`; a whole name must match.

    Raises:
        ValueError: No tool is named.
    """

    def __init__(self, tools: Sequence[str]) -> None:
        if isinstance(tools, str) or not tools:
            raise ValueError("tools: name at least one tool, as a list")
        self.tools = tuple(tools)

    def pre_call(self, call: Call) -> Deny | None:
        """Decide before the call. May be evaluated again: change nothing, count with Hold."""
        if call.kind == "tool" and any(fnmatchcase(call.name, tool) for tool in self.tools):
            return Deny(f"{call.name} is not allowed here", rule="$snake")
        return None
''')

_TEST = Template("""\
import pytest
from checkrein import Rein, errors
from checkrein_$snake import $camel


def send_mail() -> str:
    return "sent"


def test_a_named_tool_does_not_run() -> None:
    rein = Rein(plugins=[$camel(tools=["send_*"])], store="memory:")
    with pytest.raises(errors.Denied) as refused:
        rein.call(send_mail)
    assert refused.value.rule == "$snake"


def test_other_tools_run() -> None:
    rein = Rein(plugins=[$camel(tools=["delete_*"])], store="memory:")
    assert rein.call(send_mail) == "sent"
""")

_README = Template("""\
# checkrein-$dashed

    pip install -e '.[test]'
    python -m pytest

Installed, the plugin is available as `$snake`; it runs where a configuration names it:

```toml
[plugins.$snake]
tools = ["send_*"]
```
""")


def write_plugin(name: str, directory: Path) -> list[Path]:
    """Write the distribution `checkrein-NAME` into `directory`; return the files.

    Args:
        name: Letters, digits, `-`, `_` or spaces, beginning with a letter: `quiet-hours`.
        directory: Made if it is not there; must be empty if it is.

    Raises:
        ConfigError: The name cannot be used, or the directory holds something already.
            Nothing was written.
    """
    words = re.split(r"[-_ ]+", name.strip().removeprefix("checkrein-").lower())
    snake = "_".join(words)
    if not re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", snake) or keyword.iskeyword(snake):
        raise ConfigError(
            f"plugin name {name!r}: use letters, digits and '-', beginning with a letter, "
            "for example quiet-hours"
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{directory}: exists already and is not empty; name a new folder")
    values = {
        "snake": snake,
        "dashed": "-".join(words),
        "words": " ".join(words),
        "camel": "".join(word.capitalize() for word in words),
    }
    files = {
        "pyproject.toml": _PYPROJECT,
        f"checkrein_{snake}.py": _MODULE,
        f"tests/test_{snake}.py": _TEST,
        "README.md": _README,
    }
    written = []
    for relative, template in files.items():
        path = directory / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(template.substitute(values), encoding="utf-8")
        written.append(path)
    return written
