"""Safety: content that must not be produced, sent or read, judged by a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Unpack

from pydantic import Field

from checkrein.call import Call
from checkrein.verdicts import Ask, Deny
from checkrein_plugins._config import Name, Text
from checkrein_plugins.guardrails._judge import Judgement, Model, Score, Unjudged
from checkrein_plugins.guardrails._model_guard import (
    PLACES_TOLD,
    GuardOptions,
    Place,
    Places,
    TextGuard,
    TextSettings,
    Threshold,
    chosen,
    read_guard,
)

CATEGORIES: Mapping[str, str] = {
    "violence": "threats, incitement to or instructions for violence against people or animals",
    "self_harm": "encouragement of or instructions for suicide or self-harm",
    "sexual": "sexual content, and any sexual content about minors",
    "hate": "contempt or incitement against people for what they are, and harassment",
    "weapons": "instructions for explosives, or for chemical, biological or nuclear weapons",
    "crime": "help with fraud, theft, drugs, trafficking or other serious crime",
    "malware": "malicious code, or help with breaking into systems",
}

_TASK = """\
Tell how likely the text falls under each of these categories of harmful content:
{categories}
To report, quote, warn of or refuse something is not to do it. The text is {place}."""


class _Judgement(Judgement):
    scores: dict[str, Score]


class _Settings(TextSettings):
    places: Places
    categories: Annotated[dict[Name, Text], Field(min_length=1)]
    threshold: Threshold = 0.5
    name: Name = "safety"


class Safety(TextGuard):
    """Stops harmful content.

    `places`: `arguments` of tools and `answers` of models by default; also `results` and `inputs`.
    `categories`: names (of `CATEGORIES`), or own ones with what they mean. `threshold`: the score
    of one of them from which on the text is stopped. A category without a score is no judgement.

    Other keys: `GuardSettings`. Raises `ConfigError` for a key or value that cannot be used.
    """

    rule = "safety"

    def __init__(
        self,
        *,
        model: Model,
        places: Sequence[Place] = ("arguments", "answers"),
        categories: Sequence[str] | Mapping[str, str] | None = None,
        threshold: float = 0.5,
        **options: Unpack[GuardOptions],
    ) -> None:
        where = "safety"
        known = chosen(categories, CATEGORIES, where)
        settings = read_guard(
            _Settings, where, options, places=places, categories=known, threshold=threshold
        )
        super().__init__(model, settings, where)
        self._categories = settings.categories
        self._threshold = settings.threshold
        names = ", ".join(f'"{name}": SCORE' for name in self._categories)
        form = f'"scores": {{{names}}}, "reason": one sentence (SCORE: a number from 0 to 1)'
        self._form: type[_Judgement] = type("_Scores", (_Judgement,), {"form": form})

    async def _piece(self, call: Call, text: str, place: Place, end: float) -> Deny | Ask | None:
        """Every category has a score; the highest ones are told."""
        listed = "\n".join(f"* {name}: {means}" for name, means in self._categories.items())
        task = _TASK.format(categories=listed, place=PLACES_TOLD[place])
        judged = await self._ask(call, task, {"TEXT": text}, self._form, end)
        if judged.scores.keys() != self._categories.keys():
            raise Unjudged("the model's answer has not exactly one score for each category")
        over = [name for name, score in judged.scores.items() if score >= self._threshold]
        if not over:
            return None
        told = f"{PLACES_TOLD[place]}: harmful content ({', '.join(sorted(over))})"
        return self._stop("safety", told, judged.reason)
