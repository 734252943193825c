"""SemanticPII: private data that has no pattern, found by a model: names, health, beliefs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack

from pydantic import BaseModel, ConfigDict, Field

from checkrein.call import Call, Outcome
from checkrein.verdicts import Ask, Deny, Replace, Rewrite
from checkrein_plugins._config import Name, Text
from checkrein_plugins.guardrails._judge import Judgement, Model, Unjudged
from checkrein_plugins.guardrails._judged import (
    Remembered,
    arguments_of,
    messages_of,
    result_of,
)
from checkrein_plugins.guardrails._model_guard import (
    PLACES_TOLD,
    GuardOptions,
    Place,
    Places,
    TextGuard,
    TextSettings,
    chosen,
    read_guard,
)
from checkrein_plugins.redaction.faults import Unredactable
from checkrein_plugins.redaction.leaves import Leaves
from checkrein_plugins.redaction.rebuild import Rebuild

CATEGORIES: Mapping[str, str] = {
    "person": "names of private persons, and nicknames that tell who somebody is",
    "address": "where a private person lives or is",
    "health": "what somebody suffers from or is treated for",
    "belief": "somebody's religion, politics or union",
    "family": "somebody's family, relationships or sexual orientation",
    "money": "what a private person earns, owes or owns",
    "birth": "when somebody was born, or how old they are",
}

_TASK = """\
Find private data of people in the text, of these categories:
{categories}
Public figures, companies and the agent itself are none. Answer with the exact words, copied from \
the text, as short as possible. The text is {place}."""


class _Found(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)
    text: Annotated[str, Field(min_length=1, max_length=500)]
    category: str


class _Judgement(Judgement):
    form: ClassVar[str] = (
        '"found": [{"text": exact words, "category": one of the categories}, ...] or [], '
        '"reason": ""'
    )
    found: Annotated[list[_Found], Field(max_length=200)]


class _Settings(TextSettings):
    places: Places
    categories: Annotated[dict[Name, Text], Field(min_length=1)]
    pii: Literal["mask", "stop"] = "mask"
    name: Name = "semantic_pii"


class SemanticPII(TextGuard):
    """Masks, or stops, private data that only a reader recognises.

    `places`: `results` of tools (default), their `arguments`, `inputs` and `answers` of models.
    `pii`: `mask` puts `[PERSON]` and the like in its place; `stop` does what `action` says.
    `categories`: names (of `CATEGORIES`), or own ones with what they mean. A model that names
    words which do not stand there has not judged.

    What a tool gave is recorded before it is judged: to keep such data out of the journal, set
    `record`, or `encrypt`. Other keys: `GuardSettings`. Raises `ConfigError` for a key or value
    that cannot be used.
    """

    rule = "pii"

    def __init__(
        self,
        *,
        model: Model,
        places: Sequence[Place] = ("results",),
        categories: Sequence[str] | Mapping[str, str] | None = None,
        pii: Literal["mask", "stop"] = "mask",
        **options: Unpack[GuardOptions],
    ) -> None:
        where = "semantic_pii"
        settings = read_guard(
            _Settings,
            where,
            options,
            places=places,
            categories=chosen(categories, CATEGORIES, where),
            pii=pii,
        )
        super().__init__(model, settings, where)
        self._categories = settings.categories
        self._known: Remembered[dict[str, str]] = Remembered()
        self.rewrites = self._masks = settings.pii == "mask"

    async def _before(self, call: Call) -> Any:
        tool = call.kind == "tool"
        try:
            if tool:
                found = await self._all(call, arguments_of(call), "arguments")
            else:
                found = await self._messages(call)
            if not found or not self._masks:
                return self._told(found, "arguments" if tool else "inputs")
            kept = {k: v for k, v in call.arguments.items() if k in call.tool.opaque}
            rest = {k: v for k, v in call.arguments.items() if k not in kept}
            return Rewrite(call.replace(arguments={**_masked(rest, found), **kept}))
        except Unjudged as error:
            return self._unjudged(self.rule, error)

    async def _after(self, call: Call, outcome: Outcome) -> Any:
        place: Place = "results" if call.kind == "tool" else "answers"
        try:
            found = await self._all(call, result_of(outcome), place)
            if not found or not self._masks:
                return self._told(found, place)
            if outcome.error is not None:
                # An error cannot be masked: it is withheld.
                return self._told(found, place)
            return Replace(_masked(outcome.value, found))
        except Unjudged as error:
            return self._unjudged(self.rule, error)

    async def _messages(self, call: Call) -> dict[str, str]:
        """As `_all`, of what a model is told; what is known of a message is not asked again."""
        texts = messages_of(call)
        fresh = [text for text in texts if self._known.get(text) is None]
        new = await self._all(call, "\n".join(fresh), "inputs")
        for text in fresh:
            self._known.put(text, {word: kind for word, kind in new.items() if word in text})
        found = dict(new)
        for text in texts:
            found.update(self._known.get(text) or {})
        return found

    async def _all(self, call: Call, text: str, place: Place) -> dict[str, str]:
        """Category by words, of the whole text. Raises `Unjudged`."""
        found: dict[str, str] = {}
        listed = "\n".join(f"* {name}: {means}" for name, means in self._categories.items())
        task = _TASK.format(categories=listed, place=PLACES_TOLD[place])
        end = self._until()
        for piece in self._parts(text):
            judged = await self._ask(call, task, {"TEXT": piece}, _Judgement, end)
            for one in judged.found:
                if one.category not in self._categories:
                    raise Unjudged("the model names a category that there is not")
                found[one.text] = one.category
        return found

    def _told(self, found: Mapping[str, str], place: Place) -> Deny | Ask | None:
        if not found:
            return None
        kinds = ", ".join(sorted(set(found.values())))
        return self._stop("pii", f"{PLACES_TOLD[place]}: private data ({kinds})")


def _masked(value: Any, found: Mapping[str, str]) -> Any:
    """`value` with the words replaced, the longest first. Raises `Unjudged`."""
    words = sorted(found, key=len, reverse=True)
    leaves = Leaves("refuse")
    try:
        leaves.add(value)
        texts: list[str | None] = []
        seen: set[str] = set()
        for text in leaves.parts[::2]:
            new = text
            for word in words:
                if word in new:
                    seen.add(word)
                    new = new.replace(word, f"[{found[word].upper()}]")
            texts.append(None if new == text else new)
        if any(word not in seen and not any(word in other for other in seen) for word in words):
            raise Unjudged("the model names words that do not stand there")
        return Rebuild(iter(texts), "refuse", frozenset()).of(value, "")
    except Unredactable as error:
        raise Unjudged(f"it cannot be masked: {error.why}") from error
