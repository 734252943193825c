"""`CheckreinMiddleware`: everything that an agent does goes through the hooks of a Rein."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain.agents.middleware.types import PrivateStateAttr
from langgraph.config import get_config

from checkrein._io import finish
from checkrein.errors import ConfigError
from checkrein_integrations._shared.retracting import Streams, check_streams
from checkrein_integrations.langchain.keys import place_of
from checkrein_integrations.langchain.models import ModelCalls
from checkrein_integrations.langchain.sessions import STATE, Runs, SessionFactory
from checkrein_integrations.langchain.standing import Standing
from checkrein_integrations.langchain.tools import ToolCalls

if TYPE_CHECKING:
    from checkrein import Rein


class CheckreinState(AgentState[Any]):
    """The agent's state, with the session that a run belongs to."""

    checkrein_session: NotRequired[Annotated[str, PrivateStateAttr]]


class CheckreinMiddleware(AgentMiddleware[Any, Any, Any]):
    """Puts every tool call and model call of an agent under supervision.

    Put it FIRST in `middleware=[...]`: what stands outside it is not seen by it.

    Args:
        rein: The Rein whose plugins decide.
        session: Makes the session of a run from the graph's state and runtime; by default
            `rein.session(agent=NAME)`. A session that is open around the run is used as it is.
        models: Model objects by name, for plugins that fall back to or rewrite to another model.
        ungated: What to do about tools that the provider itself runs, which nothing here can
            stop: `refuse` ends the run before the model is called, `allow` marks the calls.
        streams: `auto` shows what the plugins' stream filters let through, and nothing of an
            answer that a plugin wants to see whole; `hold` never shows anything before the
            whole answer is judged; `pass` shows it. What was shown and is blocked or replaced
            is taken back with an `AnswerRetracted`, in `stream_mode="custom"` and as
            `on_custom_event` of `astream_events`.

    Raises `ConfigError` for settings that cannot be used.
    """

    state_schema = CheckreinState
    tools = ()

    def __init__(
        self,
        rein: Rein,
        *,
        session: SessionFactory | None = None,
        models: Mapping[str, Any] | None = None,
        ungated: Literal["refuse", "allow"] = "refuse",
        streams: Streams = "auto",
    ) -> None:
        super().__init__()
        check_streams(streams)
        if ungated not in ("refuse", "allow"):
            raise ConfigError(f"ungated: {ungated!r} is neither 'refuse' nor 'allow'")
        if session is not None and not callable(session):
            raise ConfigError("session: a function of (state, runtime) that returns rein.session()")
        self.rein = rein
        self._standing = Standing()
        self._runs = Runs(rein, session, self._standing)
        self._tool_calls = ToolCalls(rein, self._runs)
        self._model_calls = ModelCalls(rein, self._runs, dict(models or {}), ungated, streams)

    @property
    def name(self) -> str:
        """The name of this middleware in the graph; the framework asks while it makes the agent."""
        self._standing.look(self)
        return type(self).__name__

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """A run begins: find or open its session."""
        place = place_of(get_config())
        id = finish(
            self._runs.begin(self.rein.sync_io, state, runtime, place.agent, bool(place.thread))
        )
        return {STATE: id}

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """The async twin of `before_agent`."""
        place = place_of(get_config())
        id = await self._runs.begin(
            self.rein.async_io, state, runtime, place.agent, bool(place.thread)
        )
        return {STATE: id}

    def after_agent(self, state: Any, runtime: Any) -> None:
        """A run came to its end. It is not called for a run that an error ended."""
        finish(self._runs.end(self.rein.sync_io, state))

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        """The async twin of `after_agent`."""
        await self._runs.end(self.rein.async_io, state)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """One tool call."""
        return self._tool_calls.wrap(request, handler)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """The async twin of `wrap_tool_call`."""
        return await self._tool_calls.awrap(request, handler)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """One model call."""
        return self._model_calls.wrap(request, handler)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """The async twin of `wrap_model_call`."""
        return await self._model_calls.awrap(request, handler)
