"""What guards that ask a model have in common: settings, time, and what comes of no answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, TypedDict, TypeVar

from pydantic import Field, StrictBool, StrictInt

from checkrein.call import Call, Outcome
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Ask, Deny, Unchecked
from checkrein_plugins._config import (
    Name,
    Number,
    Seconds,
    Settings,
    Text,
    Texts,
    listed,
    read,
    refuse_twins,
)
from checkrein_plugins._selection import selected
from checkrein_plugins.guardrails._judge import LEEWAY, Judge, Judgement, Model, Unjudged
from checkrein_plugins.guardrails._judged import (
    Remembered,
    arguments_of,
    messages_of,
    pieces,
    result_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from checkrein.rein import Rein

Stop: TypeAlias = "Deny | Ask | Unchecked"
Threshold = Annotated[Number, Field(gt=0, le=1)]

QUOTED = 200
"""Characters of a model's own words that people and refusals show."""

MOST_PIECES = 8
"""Questions about one text; what is longer is not judged."""


class GuardSettings(Settings):
    """Settings of every guard that asks a model."""

    model_name: Text | None = None
    """What prices and the bill know the model by; default: its own name."""
    timeout: Seconds = 20
    """For one judgement, in all."""
    action: Literal["deny", "ask"] = "deny"
    unavailable: Literal["deny", "ask", "allow"] = "deny"
    """What comes of no judgement: a model that is down, slow or answers something else."""
    halt: StrictBool = False
    tools: Texts | None = None
    exempt: Texts | None = None
    characters: Annotated[StrictInt, Field(ge=1000)] = 20_000
    """Of one question."""
    loop: Literal["caller", "own"] = "caller"
    """`own`: async models always run on one loop, whoever calls."""
    name: Name


class GuardOptions(TypedDict, total=False):
    """The keys of `GuardSettings`."""

    model_name: str | None
    timeout: float
    action: Literal["deny", "ask"]
    unavailable: Literal["deny", "ask", "allow"]
    halt: bool
    tools: Sequence[str] | None
    exempt: Sequence[str] | None
    characters: int
    loop: Literal["caller", "own"]
    name: str


S = TypeVar("S", bound=GuardSettings)
J = TypeVar("J", bound=Judgement)


def read_guard(model: type[S], where: str, options: Mapping[str, Any], **own: Any) -> S:
    """The settings of a guard. Raises `ConfigError` with the place."""
    given = {key: listed(value) for key, value in {**own, **options}.items()}
    return read(model, given, where)


class ModelGuard(Plugin):
    """Base of the guards that ask a model.

    A call that a guard makes itself is never judged, nor is an undo.
    """

    external = True

    def __init__(self, model: Model | None, settings: GuardSettings, where: str) -> None:
        self.name = settings.name
        self.loop = settings.loop
        self._where = where
        self._settings = settings
        self._seconds = float(settings.timeout)
        self._looks = selected(settings.tools, settings.exempt, where)
        self._judge: Judge | None = None
        if model is not None:
            self._judge = Judge(model, guard=self.name, name=settings.model_name, where=where)
        self.rein: Rein | None = None

    def start(self, rein: Rein) -> None:
        """Refuse a second one of this name: they would share verdicts and rows of the bill."""
        refuse_twins(rein, self)
        if self._judge is not None and self._seconds + 2 * LEEWAY > rein.hook_timeout:
            raise ConfigError(
                f"{self._where}.timeout: {self._seconds:g} s, and a hook may take "
                f"{rein.hook_timeout:g} s: give a shorter one, or the Rein a longer hook_timeout"
            )
        self.rein = rein

    async def _ask(
        self, call: Call, task: str, documents: Mapping[str, str], judgement: type[J], end: float
    ) -> J:
        """Ask the model. `end`: `time.monotonic()` until when. Raises `Unjudged`."""
        if self._judge is None:
            raise Unjudged("no model is configured")
        if sum(map(len, documents.values())) > self._settings.characters:
            raise Unjudged(f"it is longer than {self._settings.characters} characters")
        left = end - time.monotonic()
        return await self._judge.ask(self.rein, call, task, documents, judgement, left)

    def _until(self) -> float:
        return time.monotonic() + self._seconds

    def _stop(self, rule: str, told: str, said: str = "") -> Deny | Ask:
        """The verdict on what was judged bad. `said`: the model's words, for people only.

        A refusal goes to the agent's model, and the judge has read what an attacker may have
        written: its words must not become another way in.
        """
        rule = f"{self.name}/{rule}"
        if self._settings.action == "ask":
            return Ask(f"{told}{quoted(said)}", rule=rule, risk="high")
        return Deny(told, rule=rule, halt=self._settings.halt)

    def _unjudged(self, rule: str, error: Unjudged) -> Stop:
        """What comes of no judgement."""
        told = f"{self.name} could not judge it: {error}"
        if self._settings.unavailable == "allow":
            return Unchecked(f"{self.name}/{rule}", str(error))
        if self._settings.unavailable == "ask":
            return Ask(told, rule="checker_unavailable", risk="high")
        return Deny(told, rule="checker_unavailable", halt=self._settings.halt)


def quoted(said: str) -> str:
    """A model's words as one short line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in said).split())
    if not line:
        return ""
    return f'; the checker says: "{line[:QUOTED]}{"…" if len(line) > QUOTED else ""}"'


Place = Literal["arguments", "results", "inputs", "answers"]
Places = Annotated[list[Place], Field(min_length=1)]
PLACES_TOLD: dict[Place, str] = {
    "arguments": "the arguments of a tool call",
    "results": "the result of a tool",
    "inputs": "what the agent's model is about to read",
    "answers": "what the agent's model has answered",
}


class TextSettings(GuardSettings):
    """Settings of guards that judge texts."""

    places: Places


class TextGuard(ModelGuard):
    """Base of the guards that look at texts, wherever they pass.

    `arguments` and `results` of tools; `inputs` and `answers` of models. Of a model's input,
    each message is judged once. A text of more than `characters` is judged in up to eight
    pieces; a longer one is not judged.
    """

    rule: ClassVar[str] = ""

    def __init__(self, model: Model | None, settings: TextSettings, where: str) -> None:
        super().__init__(model, settings, where)
        self._places = frozenset(settings.places)
        self._passed: Remembered[bool] = Remembered()

    def concerns(self, call: Call) -> bool:
        """Whether something of it is judged before it runs."""
        return self._selects(call, "arguments", "inputs")

    def _selects(self, call: Call, tool: Place, model: Place) -> bool:
        if call.guard or call.kind == "undo":
            return False
        if call.kind == "model":
            return model in self._places
        return tool in self._places and self._looks(call.name)

    def pre_call(self, call: Call) -> Awaitable[Any] | None:
        """Judge arguments, or what a model is told."""
        if not self.concerns(call):
            return None
        return self._before(call)

    def post_call(self, call: Call, outcome: Outcome) -> Awaitable[Any] | None:
        """Judge a result, or an answer. What it says in place of an error counts as well."""
        if not self._selects(call, "results", "answers"):
            return None
        if outcome.value is None and outcome.error is None:
            return None
        return self._after(call, outcome)

    async def _before(self, call: Call) -> Any:
        try:
            if call.kind == "tool":
                return await self._judged(call, arguments_of(call), "arguments")
            fresh = [text for text in messages_of(call) if self._passed.get(text) is None]
            found = await self._judged(call, "\n".join(fresh), "inputs")
        except Unjudged as error:
            return self._unjudged(self.rule, error)
        if found is None:
            for text in fresh:
                self._passed.put(text, True)
        return found

    async def _after(self, call: Call, outcome: Outcome) -> Any:
        place: Place = "results" if call.kind == "tool" else "answers"
        try:
            return await self._judged(call, result_of(outcome), place)
        except Unjudged as error:
            return self._unjudged(self.rule, error)

    async def _judged(self, call: Call, text: str, place: Place) -> Any:
        """The verdict on a text, piece by piece: the first bad one decides. Raises `Unjudged`."""
        end = self._until()
        for part in self._parts(text):
            found = await self._piece(call, part, place, end)
            if found is not None:
                return found
        return None

    def _parts(self, text: str) -> list[str]:
        """A text in pieces for one question each. Raises `Unjudged` for too long a one."""
        if not text.strip():
            return []
        parts = list(pieces(text, self._settings.characters))
        if len(parts) > MOST_PIECES:
            raise Unjudged(f"it is longer than {MOST_PIECES} questions can hold")
        return parts

    async def _piece(self, call: Call, text: str, place: Place, end: float) -> Deny | Ask | None:
        """The verdict on one piece. Raises `Unjudged`."""
        raise NotImplementedError


def chosen(
    categories: Sequence[str] | Mapping[str, str] | None, known: Mapping[str, str], where: str
) -> dict[str, str]:
    """Categories with what they mean. Raises `ConfigError` for a name that means nothing."""
    if categories is None:
        return dict(known)
    if isinstance(categories, Mapping):
        return dict(categories)
    for index, name in enumerate(categories):
        if name not in known:
            raise ConfigError(
                f"{where}.categories[{index}]: {name!r} is none of {', '.join(known)}; own ones "
                "need a meaning: {name = 'meaning'}"
            )
    return {name: known[name] for name in categories}
