"""`checkrein policy check` and `checkrein policy schema`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from checkrein import _config_file
from checkrein._config_file import Document, Key
from checkrein._config_model import near
from checkrein.cli._output import Out, counted
from checkrein.cli._place import JsonOption, Place, command
from checkrein.errors import ConfigError
from checkrein.tools import Tool
from checkrein_plugins._patterns import fold, is_glob
from checkrein_plugins._patterns import names as folded_names
from checkrein_plugins.policy.commands.subject import is_policy
from checkrein_plugins.policy.faults import Fault, fault, from_error, ordered
from checkrein_plugins.policy.layers import Layer, patterns, read_layers
from checkrein_plugins.policy.shape import json_schema

Tools: TypeAlias = "dict[str, frozenset[str] | None]"
"""By name of a tool: the arguments that it takes; None where that is not known."""

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE]...", help="Policy files or one configuration. [checkrein.toml]"),
]


@command
def check(*, place: Place, out: Out, files: Files = None) -> int:
    """Check policy files, or a configuration with the policies that it names."""
    chosen = list(files or ())
    if not chosen:
        found = place.file()
        if found is None:
            raise ConfigError("name policy files or a configuration; there is none here")
        chosen = [found]
    faults: list[Fault] = []
    policies: list[Path] = []
    for path in chosen:
        try:
            document = _config_file.read(path)
        except ConfigError as error:
            faults.append(from_error(Document({}, str(path), path), error))
            continue
        if is_policy(document):
            policies.append(path)
        else:
            faults += _configuration(document, place)
    layers, wrong = read_layers(policies, [])
    faults += wrong
    if policies:
        faults += _against_tools(layers, _tools(place))
    faults = ordered(faults)
    errors = [f for f in faults if f.level == "error"]
    out.document(
        {"ok": not errors, "files": list(map(str, chosen)), "faults": [f.tree() for f in faults]}
    )
    for one in faults:
        out.line(f"{one.level}: {one}")
    if not errors:
        warnings = f", {counted(len(faults), 'warning')}" if faults else ""
        out.line(f"{', '.join(map(str, chosen))}: can be used{warnings}")
    else:
        out.line(f"{counted(len(errors), 'error')}; nothing of this can be used")
    return 1 if errors else 0


def _configuration(document: Document, place: Place) -> Iterator[Fault]:
    """What is wrong with a configuration, plugin by plugin."""
    from checkrein import policy

    try:
        settings = policy.check(document)
    except ConfigError as error:
        yield from_error(document, error)
        return
    tools = {name: _of_schema(tool.json_schema) for name, tool in settings.tools.items()}
    tools |= _tools(Place(document.path, place.app, None))
    for name, options in settings.plugins.items():
        if policy.used(name, options) == "policy":
            files, inline = _named(options)
            token = _config_file.FOLDER.set(document.path.parent if document.path else None)
            try:
                layers, wrong = read_layers(files, inline)
            finally:
                _config_file.FOLDER.reset(token)
            yield from wrong
            yield from _against_tools(layers, tools)
            if any(f.level == "error" for f in wrong):
                continue
        only = settings.model_copy(update={"plugins": {name: options}})
        try:
            policy.build_plugins(document, only)
        except ConfigError as error:
            yield from_error(document, error)
            continue
        rules = options.get("rules")
        for index, rule in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(rule, dict):
                yield from _of_rule(document, ("plugins", name, "rules", index), rule, tools)


def _of_rule(
    document: Document, key: Key, rule: Mapping[str, Any], tools: Tools
) -> Iterator[Fault]:
    """A rule of a scope against the tools that are known."""
    tool: Any = rule.get("tool")
    if not isinstance(tool, (str, list)):
        return
    listed = patterns(tool)
    yield from _unknown(document, (*key, "tool"), listed, tools)
    arguments: Any = rule.get("arguments")
    if isinstance(arguments, dict):
        heads = {name: str(name).partition(".")[0] for name in arguments}
        yield from _untaken(document, (*key, "arguments"), listed, heads, tools)


def _named(options: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    files = [options["file"]] if isinstance(options.get("file"), str) else []
    more = options.get("files")
    inline = options.get("layers")
    files += [f for f in more if isinstance(f, str)] if isinstance(more, list) else []
    return files, [one for one in inline if isinstance(one, dict)] if isinstance(
        inline, list
    ) else []


def _tools(place: Place) -> Tools:
    """The application's tools, where it is named; else those that a configuration declares."""
    if place.app_name() is not None:
        with place.acting() as rein:
            return {tool.info.name: _of_tool(tool) for tool in rein.tools}
    found = place.document()
    if found is None:
        return {}
    return {name: _of_schema(t.json_schema) for name, t in found[1].tools.items()}


def _of_tool(tool: Tool) -> frozenset[str] | None:
    # One that takes any name takes this one too.
    if not tool.signature_known or tool.takes("?"):
        return _of_schema(tool.info.schema)
    return frozenset(tool.parameters)


def _of_schema(schema: Mapping[str, Any] | None) -> frozenset[str] | None:
    if schema is None or schema.get("additionalProperties") is not False:
        return None
    properties = schema.get("properties")
    return frozenset(properties) if isinstance(properties, dict) else None


def _against_tools(layers: Sequence[Layer], tools: Tools) -> Iterator[Fault]:
    if not tools:
        return
    for layer in layers:
        for rule in layer.rules:
            if "tool" in rule.settings.kinds:
                key = (*rule.key, "tool")
                yield from _unknown(layer.document, key, rule.globs, tools)
                if rule.condition is not None:
                    key = (*rule.key, "when")
                    for argument in sorted(rule.condition.arguments()):
                        named = {None: argument}
                        yield from _untaken(layer.document, key, rule.globs, named, tools)
        for name, counter in layer.counters.items():
            listed = patterns(counter.settings.tool)
            yield from _unknown(layer.document, ("counters", name, "tool"), listed, tools)


def _unknown(document: Document, key: Key, listed: Sequence[str], tools: Tools) -> Iterator[Fault]:
    if not tools:
        return
    folded = {fold(name).replace("_", "") for name in tools}
    for glob in listed:
        if not is_glob(glob) and fold(glob).replace("_", "") not in folded:
            text = f"no tool that is known here is called {glob!r}{near(glob, list(tools))}"
            yield fault(document, key, text, "warning")


def _untaken(
    document: Document, key: Key, listed: Sequence[str], names: Mapping[Any, str], tools: Tools
) -> Iterator[Fault]:
    """Arguments that no tool takes which a rule is about. `names`: by their own part of the key.

    An error where the rule names its tools; through a glob other tools may be meant.
    """
    about = folded_names(listed)
    known = [arguments for name, arguments in tools.items() if about(name)]
    if not known or None in known:
        return
    every = sorted(frozenset[str]().union(*(names or () for names in known)))
    level: Literal["error", "warning"] = "warning" if any(map(is_glob, listed)) else "error"
    for part, name in names.items():
        if name not in every:
            text = f"{name} is no argument of {', '.join(listed)}{near(name, every)}"
            yield fault(document, (*key, part) if part is not None else key, text, level)


def schema(json: JsonOption = True) -> int:  # noqa: ARG001 - it is JSON, whatever is asked for
    """Print the JSON Schema of policy files, for editors."""
    Out(as_json=True).document(json_schema())
    return 0
