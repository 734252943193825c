"""`checkrein policy check` and `checkrein policy schema`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from checkrein import _config_file
from checkrein._config_file import Document, Key
from checkrein._config_model import near
from checkrein.call import ToolInfo
from checkrein.cli._output import Out, counted
from checkrein.cli._place import JsonOption, Place, command
from checkrein.errors import ConfigError
from checkrein_plugins._patterns import fold, is_glob
from checkrein_plugins.policy.commands.subject import is_policy
from checkrein_plugins.policy.faults import Fault, fault, from_error, ordered
from checkrein_plugins.policy.layers import Layer, patterns, read_layers
from checkrein_plugins.policy.shape import json_schema

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
    tools = {name: ToolInfo(name, schema=tool.json_schema) for name, tool in settings.tools.items()}
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
            if isinstance(rule, dict) and isinstance(rule.get("tool"), (str, list)):
                key: Key = ("plugins", name, "rules", index, "tool")
                yield from _unknown(document, key, patterns(rule["tool"]), tools)


def _named(options: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    files = [options["file"]] if isinstance(options.get("file"), str) else []
    more = options.get("files")
    inline = options.get("layers")
    files += [f for f in more if isinstance(f, str)] if isinstance(more, list) else []
    return files, [one for one in inline if isinstance(one, dict)] if isinstance(
        inline, list
    ) else []


def _tools(place: Place) -> dict[str, ToolInfo]:
    """The application's tools, where it is named; else those that a configuration declares."""
    if place.app_name() is not None:
        with place.acting() as rein:
            return {tool.info.name: tool.info for tool in rein.tools}
    found = place.document()
    if found is None:
        return {}
    return {name: ToolInfo(name, schema=t.json_schema) for name, t in found[1].tools.items()}


def _against_tools(layers: Sequence[Layer], tools: dict[str, ToolInfo]) -> Iterator[Fault]:
    if not tools:
        return
    for layer in layers:
        for rule in layer.rules:
            if "tool" in rule.settings.kinds:
                key = (*rule.key, "tool")
                yield from _unknown(layer.document, key, rule.globs, tools)
                yield from _unknown_arguments(layer, rule, tools)
        for name, counter in layer.counters.items():
            listed = patterns(counter.settings.tool)
            yield from _unknown(layer.document, ("counters", name, "tool"), listed, tools)


def _unknown(
    document: Document, key: Key, listed: Sequence[str], tools: dict[str, ToolInfo]
) -> Iterator[Fault]:
    if not tools:
        return
    folded = {fold(name).replace("_", "") for name in tools}
    for glob in listed:
        if not is_glob(glob) and fold(glob).replace("_", "") not in folded:
            text = f"no tool that is known here is called {glob!r}{near(glob, list(tools))}"
            yield fault(document, key, text, "warning")


def _unknown_arguments(layer: Layer, rule: Any, tools: dict[str, ToolInfo]) -> Iterator[Fault]:
    if rule.condition is None:
        return
    known = [
        set(info.schema["properties"])
        for name, info in tools.items()
        if rule.about(name)
        and info.schema is not None
        and isinstance(info.schema.get("properties"), dict)
        and info.schema.get("additionalProperties") is False
    ]
    for argument in sorted(rule.condition.arguments()):
        if known and not any(argument in names for names in known):
            every = sorted(set().union(*known))
            text = f"args.{argument} is no argument of these tools{near(argument, every)}"
            yield fault(layer.document, (*rule.key, "when"), text, "warning")


def schema(json: JsonOption = True) -> int:  # noqa: ARG001 - it is JSON, whatever is asked for
    """Print the JSON Schema of policy files, for editors."""
    Out(as_json=True).document(json_schema())
    return 0
