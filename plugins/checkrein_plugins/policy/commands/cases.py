"""`checkrein policy test`: cases beside a policy, each a call and what must be said of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from checkrein import _config_file
from checkrein._config_file import Document
from checkrein.cli._output import Out, counted
from checkrein.cli._place import Place, command
from checkrein.errors import ConfigError
from checkrein_plugins._config import Number, Settings, read
from checkrein_plugins.policy.commands.calls import CallSettings, call_of
from checkrein_plugins.policy.commands.subject import Asked, load, with_counts
from checkrein_plugins.policy.shape import Action, Text, Texts

ENDINGS = (".test.toml", ".test.yaml", ".test.yml")


class CaseSettings(Settings):
    """One case."""

    name: Text
    call: CallSettings
    counters: dict[str, Number] = Field(default_factory=dict)
    """What was counted before the call; others are 0."""
    expect: Action
    rule: Text | None = None
    """Name of the rule that must decide, without plugin and layer."""


class CasesSettings(Settings):
    """A file of cases."""

    policy: Text | Texts | None = None
    """The policy files or the configuration, relative to this file. Default: the file of the
    same name without `.test`."""
    cases: Annotated[list[CaseSettings], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one case."""

    case: CaseSettings
    line: int | None
    verdict: str
    by: str
    wrong: str


@command
def test(
    *,
    place: Place,
    out: Out,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Cases, or the policy beside them.")],
) -> int:
    """Run the test cases of a policy. Nothing is executed."""
    path = cases_of(file)
    document = _config_file.read(path)
    settings = read(CasesSettings, document.data, str(path))
    subject = load(_policies(path, settings), place)
    with subject.asked() as asked:
        results = [_run(asked, document, i, case) for i, case in enumerate(settings.cases)]
    failed = [r for r in results if r.wrong]
    out.document(
        {
            "file": str(path), "policy": subject.name, "passed": len(results) - len(failed),
            "failed": len(failed), "cases": [_tree(r) for r in results],
        }
    )  # fmt: skip
    for result in failed:
        where = path if result.line is None else f"{path}:{result.line}"
        out.line(f"{where}: {result.case.name}: {result.wrong}")
    out.line(
        f"{counted(len(results), 'case')}, {len(results) - len(failed)} as expected"
        + (f", {len(failed)} not" if failed else "")
    )
    return 1 if failed else 0


def _tree(result: Result) -> dict[str, Any]:
    return {
        "name": result.case.name, "line": result.line, "expected": result.case.expect,
        "verdict": result.verdict, "by": result.by, "wrong": result.wrong or None,
    }  # fmt: skip


def cases_of(file: Path) -> Path:
    """The file of cases: this one, or the one beside this policy. Raises `ConfigError`."""
    if file.name.endswith(ENDINGS):
        return file
    found = [file.with_name(file.stem + end) for end in ENDINGS]
    for path in found:
        if path.exists():
            return path
    if file.exists() and "cases" in _config_file.read(file).data:
        return file
    raise ConfigError(f"{file}: has no cases beside it; write them into {found[0]}")


def _policies(path: Path, settings: CasesSettings) -> list[Path]:
    if settings.policy is None:
        stem = path.name
        for end in ENDINGS:
            stem = stem.removesuffix(end)
        for suffix in _config_file.SUFFIXES:
            if (path.parent / f"{stem}{suffix}").exists():
                return [path.parent / f"{stem}{suffix}"]
        raise ConfigError(f'{path}: name the policy: policy = "FILE"')
    named = [settings.policy] if isinstance(settings.policy, str) else settings.policy
    return [path.parent / name for name in named]


def _run(asked: Asked, document: Document, index: int, case: CaseSettings) -> Result:
    line = document.line(("cases", index))
    for policy in asked.subject.policies:
        unknown = with_counts(policy.deciding, case.counters)
        if unknown:
            raise document.error(
                ("cases", index, "counters", unknown[0]), "is no counter of this policy"
            )
    decision = asked.decide(call_of(case.call), dict(case.counters))
    by = decision.by[0][1] if decision.by else ""
    wrong = ""
    if decision.verdict != case.expect:
        reason = f" ({decision.by[0][2]})" if decision.by else ""
        wrong = f"expected {case.expect}, got {decision.verdict}{reason}"
    elif case.rule is not None and not any(_is(case.rule, rule) for _, rule, _ in decision.by):
        wrong = f"expected rule {case.rule}, got {by or 'none'}"
    return Result(case, line, decision.verdict, by, wrong)


def _is(name: str, rule: str) -> bool:
    return rule == name or rule.endswith(f"/{name}")
