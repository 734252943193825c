"""IntentDrift and GoalVerification: what the session is for, against what it does and gives."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Annotated, Any, ClassVar, Unpack

from pydantic import Field, StrictBool, StrictInt

from checkrein.call import Call, Outcome
from checkrein.errors import ConfigError
from checkrein.verdicts import Ask, Deny
from checkrein_plugins._config import Name, Texts
from checkrein_plugins._selection import first_match
from checkrein_plugins.guardrails import _history
from checkrein_plugins.guardrails._judge import Judgement, Model, Score, Told, Unjudged
from checkrein_plugins.guardrails._judged import arguments_of, result_of
from checkrein_plugins.guardrails._model_guard import (
    GuardOptions,
    GuardSettings,
    ModelGuard,
    Threshold,
    quoted,
    read_guard,
)
from checkrein_plugins.resilience.iterations import asks_for_tools

History = Annotated[StrictInt, Field(ge=0, le=200)]


class _DriftJudgement(Judgement):
    form: ClassVar[str] = (
        '"score": a number from 0 (serves the intent) to 1 (has nothing to do with it), '
        '"reason": one sentence'
    )
    score: Score


class _DriftSettings(GuardSettings):
    threshold: Threshold = 0.5
    history: History = 10
    name: Name = "intent_drift"


class IntentDrift(ModelGuard):
    """Stops tool calls that do not serve what the session is for (`rein.session(intent=...)`).

    The model is shown the intent, the last calls (`history`) and this one. `threshold`: the score
    of drift from which on it is stopped. A session without an intent cannot be judged.

    Other keys: `GuardSettings`. Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        model: Model,
        threshold: float = 0.5,
        history: int = 10,
        **options: Unpack[GuardOptions],
    ) -> None:
        where = "intent_drift"
        settings = read_guard(_DriftSettings, where, options, threshold=threshold, history=history)
        super().__init__(model, settings, where)
        self._threshold = settings.threshold
        self._history = settings.history

    def concerns(self, call: Call) -> bool:
        """Whether it is a tool call of the agent that is to be judged."""
        return call.kind == "tool" and not call.guard and self._looks(call.name)

    def pre_call(self, call: Call) -> Awaitable[Any] | None:
        """Judge the call against the intent."""
        return self._before(call) if self.concerns(call) else None

    async def _before(self, call: Call) -> Any:
        task = (
            "Tell whether the agent's next tool call drifts from its intent. A step on the way to "
            "what is intended serves it, also a roundabout one. INTENT is what the agent's owner "
            "wants, EARLIER what it has done so far, CALL what it is about to do."
        )
        try:
            documents = _documents(self, call, self._history)
            documents["CALL"] = f"{call.name}({arguments_of(call)})"
            judged = await self._ask(call, task, documents, _DriftJudgement, self._until())
        except Unjudged as error:
            return self._unjudged("drift", error)
        if judged.score < self._threshold:
            return None
        told = f"the call does not serve what the session is for (drift {judged.score:.2f})"
        return self._stop("drift", told, judged.reason)


class _GoalJudgement(Judgement):
    form: ClassVar[str] = (
        '"reached": true or false, "missing": what is missing, in one sentence, or "", '
        '"reason": one sentence'
    )
    reached: bool
    missing: Told


class _StepJudgement(Judgement):
    form: ClassVar[str] = (
        '"needed": true or false, "missing": what should come first or instead, in one sentence, '
        'or "", "reason": one sentence'
    )
    needed: bool
    missing: Told


class _GoalSettings(GuardSettings):
    final: Texts | None = None
    answers: StrictBool | None = None
    history: History = 30
    name: Name = "goal"


class GoalVerification(ModelGuard):
    """Holds risky steps and the end of the work against what the session is for.

    `tools`: globs of risky tools, each call of which must be needed for the goal, with these very
    arguments. `final`: globs of tools that end the work (`submit`): judged is whether the goal is
    reached. `answers`: the same of a model's answer that asks for no more tools; by default where
    neither `tools` nor `final` is stated. The model is shown the intent, the last calls (`history`)
    and the step. What is missing is told to the agent, so that it can go on.

    Other keys: `GuardSettings`. Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        model: Model,
        final: Sequence[str] | None = None,
        answers: bool | None = None,
        history: int = 30,
        **options: Unpack[GuardOptions],
    ) -> None:
        where = "goal"
        settings = read_guard(
            _GoalSettings, where, options, final=final, answers=answers, history=history
        )
        super().__init__(model, settings, where)
        self._history = settings.history
        self._risky = settings.tools is not None
        self._final = first_match(dict.fromkeys(settings.final or (), True), f"{where}.final")
        stated = self._risky or settings.final is not None
        self._answers = not stated if settings.answers is None else settings.answers
        if not (stated or self._answers):
            raise ConfigError(f"{where}: nothing is judged; state tools, final or answers = true")

    def concerns(self, call: Call) -> bool:
        """Whether it is a risky tool, or one that ends the work."""
        if call.kind != "tool" or call.guard:
            return False
        return self._final(call.name) is not None or (self._risky and self._looks(call.name))

    def pre_call(self, call: Call) -> Awaitable[Any] | None:
        """Judge before a risky tool, or one that ends the work."""
        return self._before(call) if self.concerns(call) else None

    def post_call(self, call: Call, outcome: Outcome) -> Awaitable[Any] | None:
        """Judge an answer that asks for nothing more."""
        if not self._answers or call.kind != "model" or call.guard or outcome.error is not None:
            return None
        return None if asks_for_tools(outcome.value) is True else self._after(call, outcome)

    async def _before(self, call: Call) -> Any:
        try:
            step = f"{call.name}({arguments_of(call)})"
            if self._final(call.name):
                return await self._end(call, step)
            return await self._step(call, step)
        except Unjudged as error:
            return self._unjudged("goal", error)

    async def _after(self, call: Call, outcome: Outcome) -> Any:
        try:
            return await self._end(call, result_of(outcome))
        except Unjudged as error:
            return self._unjudged("goal", error)

    async def _step(self, call: Call, step: str) -> Deny | Ask | None:
        task = (
            "Tell whether the agent's next step, which is risky, is needed to reach its goal, and "
            "right as it is: this tool, and these arguments. INTENT is what the agent's owner "
            "wants, EARLIER what it has done, STEP what it is about to do."
        )
        documents = {**_documents(self, call, self._history), "STEP": step}
        judged = await self._ask(call, task, documents, _StepJudgement, self._until())
        if judged.needed:
            return None
        told = f"the step is not needed for the goal{quoted(judged.missing)}"
        return self._stop("step", told, judged.reason)

    async def _end(self, call: Call, end: str) -> Deny | Ask | None:
        task = (
            "Tell whether the agent's work has reached its goal. INTENT is what its owner wants, "
            "EARLIER what it has done, END what it wants to end with. To say that something is "
            "done is not to have done it: what needs a tool must stand in EARLIER."
        )
        documents = {**_documents(self, call, self._history), "END": end}
        judged = await self._ask(call, task, documents, _GoalJudgement, self._until())
        if judged.reached:
            return None
        return self._stop("goal", f"the goal is not reached{quoted(judged.missing)}", judged.reason)


def _documents(guard: ModelGuard, call: Call, most: int) -> dict[str, str]:
    """Intent and history. Raises `Unjudged` where nobody has said what the session is for."""
    rein = guard.rein
    intent = _history.intent_of(rein, call)
    if rein is None or not intent:
        raise Unjudged("the session states no intent (rein.session(intent=...))")
    earlier = _history.told(_history.earlier_calls(rein, call, most)) if most else ""
    return {"INTENT": intent, "EARLIER": earlier}
