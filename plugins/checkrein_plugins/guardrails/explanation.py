"""ExplanationRequired: no call without a reason that explains it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Annotated, Any, ClassVar, Unpack

from pydantic import Field, StrictBool, StrictInt

from checkrein.call import Call
from checkrein.verdicts import Ask, Deny
from checkrein_plugins._config import Name, Text
from checkrein_plugins._selection import first_match
from checkrein_plugins.guardrails import _history
from checkrein_plugins.guardrails._judge import Judgement, Model, Score, Unjudged
from checkrein_plugins.guardrails._judged import arguments_of, text_of
from checkrein_plugins.guardrails._model_guard import (
    GuardOptions,
    GuardSettings,
    ModelGuard,
    Threshold,
    read_guard,
)

LABEL = "explanation"
"""Label of a call that explains it: `rein.options(labels={"explanation": "..."})`."""


class _Judgement(Judgement):
    form: ClassVar[str] = (
        '"score": a number from 0 (explains nothing) to 1 (explains this very call), '
        '"reason": one sentence'
    )
    score: Score


class _Settings(GuardSettings):
    arguments: dict[Text, Text] = Field(default_factory=dict)
    words: Annotated[StrictInt, Field(ge=1)] = 5
    from_answer: StrictBool = True
    threshold: Threshold = 0.5
    name: Name = "explanation"


class ExplanationRequired(ModelGuard):
    """Refuses tool calls of which nobody says why.

    The explanation is the argument that `arguments` names for the tool (by glob:
    `{"pay_*": "reason"}`), else the label `explanation`, else (`from_answer`) the text of the
    session's last model answer. `words`: how many different ones it has at least. With a `model`,
    that judges whether it explains this very call; `threshold`: the score which that takes.
    `tools`: globs; by default every tool that changes something or sends data out.

    Other keys: `GuardSettings`. Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        model: Model | None = None,
        arguments: Mapping[str, str] | None = None,
        words: int = 5,
        from_answer: bool = True,
        threshold: float = 0.5,
        **options: Unpack[GuardOptions],
    ) -> None:
        where = "explanation"
        settings = read_guard(
            _Settings,
            where,
            options,
            arguments=dict(arguments or {}),
            words=words,
            from_answer=from_answer,
            threshold=threshold,
        )
        super().__init__(model, settings, where)
        self._argument = first_match(settings.arguments, f"{where}.arguments")
        self._words = settings.words
        self._from_answer = settings.from_answer
        self._threshold = settings.threshold
        self._stated = settings.tools is not None
        self.external = model is not None

    def concerns(self, call: Call) -> bool:
        """Whether it is a tool call that has to be explained."""
        if call.kind != "tool" or call.guard or not self._looks(call.name):
            return False
        return self._stated or call.tool.effect != "read"

    def pre_call(self, call: Call) -> Deny | Ask | Awaitable[Any] | None:
        """Look for the explanation, and have it judged."""
        if not self.concerns(call):
            return None
        told = self._explanation(call)
        if len({word.casefold() for word in told.split()}) < self._words:
            argument = self._argument(call.name)
            how = f"in the argument {argument!r}" if argument else "before calling it"
            return self._stop(
                "missing", f"say why it is called, {how} (at least {self._words} words)"
            )
        return None if self._judge is None else self._judged(call, told)

    def _explanation(self, call: Call) -> str:
        argument = self._argument(call.name)
        if argument is not None:
            given = call.arguments.get(argument)
            return given if isinstance(given, str) else ""
        if call.labels.get(LABEL):
            return call.labels[LABEL]
        if not self._from_answer or self.rein is None:
            return ""
        return " ".join(_texts(_history.last_words(self.rein, call), 0))

    async def _judged(self, call: Call, explanation: str) -> Any:
        task = (
            "Tell whether EXPLANATION says why the agent makes this very CALL: what for, and why "
            "with these arguments. Words that would fit any call explain nothing, and to repeat "
            "the call in words is no reason."
        )
        argument = self._argument(call.name)
        try:
            if argument is None:
                shown = arguments_of(call)
            else:
                rest = {k: v for k, v in call.arguments.items() if k != argument}
                shown = text_of({k: v for k, v in rest.items() if k not in call.tool.opaque})
            documents = {"CALL": f"{call.name}({shown})", "EXPLANATION": explanation}
            judged = await self._ask(call, task, documents, _Judgement, self._until())
        except Unjudged as error:
            return self._unjudged("insufficient", error)
        if judged.score >= self._threshold:
            return None
        return self._stop(
            "insufficient",
            f"what was said does not explain this call ({judged.score:.2f}): say what it is for",
            judged.reason,
        )


def _texts(answer: Any, depth: int) -> list[str]:
    """The texts of a recorded answer, in whatever shape: not names, ids and arguments of tools."""
    if isinstance(answer, str):
        return [answer]
    if depth > 12:
        return []
    if isinstance(answer, list):
        return [text for item in answer for text in _texts(item, depth + 1)]
    if not isinstance(answer, Mapping):
        return []
    found: list[str] = []
    for key in (
        "content",
        "text",
        "parts",
        "output",
        "output_text",
        "message",
        "choices",
        "kwargs",
    ):
        if key in answer:
            found += _texts(answer[key], depth + 1)
    return found
