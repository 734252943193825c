"""AnomalyScore: calls that do not look like the session's earlier ones."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any, ClassVar, Unpack

from pydantic import Field, StrictInt

from checkrein.call import Call
from checkrein.codec import describe
from checkrein.verdicts import Ask, Deny
from checkrein_plugins._config import Name
from checkrein_plugins.guardrails import _baseline, _history
from checkrein_plugins.guardrails._judge import Judgement, Model, Score, Unjudged
from checkrein_plugins.guardrails._judged import arguments_of
from checkrein_plugins.guardrails._model_guard import (
    GuardOptions,
    GuardSettings,
    ModelGuard,
    Threshold,
    read_guard,
)


class _Judgement(Judgement):
    form: ClassVar[str] = (
        '"score": a number from 0 (as usual) to 1 (unlike anything before), "reason": one sentence'
    )
    score: Score


class _Settings(GuardSettings):
    threshold: Threshold = 0.8
    history: Annotated[StrictInt, Field(ge=1, le=250)] = 100
    least: Annotated[StrictInt, Field(ge=1)] = 8
    name: Name = "anomaly"


class AnomalyScore(ModelGuard):
    """Stops, or has a person look at, a tool call that is unlike the session's earlier ones.

    The baseline is statistics over the last `history` tool calls: a tool that is new, numbers and
    lengths far from the usual, a new text where there were only one or two. With fewer than
    `least` calls nothing is scored. With a `model`, that is asked about what the baseline passes.
    `threshold`: the score from which on a call is stopped.

    Other keys: `GuardSettings`. Raises `ConfigError` for a key or value that cannot be used.
    """

    def __init__(
        self,
        *,
        model: Model | None = None,
        threshold: float = 0.8,
        history: int = 100,
        least: int = 8,
        **options: Unpack[GuardOptions],
    ) -> None:
        where = "anomaly"
        settings = read_guard(
            _Settings, where, options, threshold=threshold, history=history, least=least
        )
        super().__init__(model, settings, where)
        self._threshold = settings.threshold
        self._history = settings.history
        self._least = settings.least
        self.external = model is not None

    def concerns(self, call: Call) -> bool:
        """Whether it is a tool call of the agent."""
        return call.kind == "tool" and not call.guard and self._looks(call.name)

    def pre_call(self, call: Call) -> Deny | Ask | Awaitable[Any] | None:
        """Score the call."""
        rein = self.rein
        if rein is None or not self.concerns(call):
            return None
        earlier = _history.earlier_calls(rein, call, self._history)
        if len(earlier) < self._least:
            return None
        score, why = self._score(call, earlier)
        if score >= self._threshold:
            return self._stop(
                "unusual", f"unlike the session's earlier calls: {'; '.join(why[:3])}"
            )
        return None if self._judge is None else self._modelled(call, earlier)

    def score(self, call: Call) -> tuple[float, list[str]]:
        """(baseline's score from 0 to 1, what is unusual) of a call, beside its session's."""
        if self.rein is None:
            return 0.0, []
        return self._score(call, _history.earlier_calls(self.rein, call, self._history))

    @staticmethod
    def _score(call: Call, earlier: list[Any]) -> tuple[float, list[str]]:
        # Views are what the journal keeps: like is compared with like.
        shown = describe({k: v for k, v in call.arguments.items() if k not in call.tool.opaque})
        return _baseline.unusual(call.name, shown if isinstance(shown, dict) else {}, earlier)

    async def _modelled(self, call: Call, earlier: list[Any]) -> Any:
        task = (
            "Tell how unusual the agent's next tool call is beside what it did before in the same "
            "session: other things, other people or places, other amounts, another purpose. "
            "EARLIER is what it has done, CALL what it is about to do."
        )
        try:
            documents = {
                "EARLIER": _history.told(earlier[-30:]),
                "CALL": f"{call.name}({arguments_of(call)})",
            }
            judged = await self._ask(call, task, documents, _Judgement, self._until())
        except Unjudged as error:
            return self._unjudged("unusual", error)
        if judged.score < self._threshold:
            return None
        told = f"unlike the session's earlier calls ({judged.score:.2f})"
        return self._stop("unusual", told, judged.reason)
