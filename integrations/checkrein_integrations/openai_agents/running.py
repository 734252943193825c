"""Running agents: a session around the run, and its state kept where it is interrupted."""

from __future__ import annotations

import asyncio
import dataclasses
import warnings
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Self, Unpack

from typing_extensions import TypedDict

from checkrein._io import finish, refuse_on_loop
from checkrein.errors import ConfigError
from checkrein.session import ACTIVE, active
from checkrein.streams.fields import get
from checkrein_integrations._shared.responses import arguments_of
from checkrein_integrations.openai_agents import states
from checkrein_integrations.openai_agents.framework import (
    RunConfig,
    Runner,
    RunResult,
    RunResultStreaming,
    RunState,
)
from checkrein_integrations.openai_agents.runs import RUN, Run, begin, run_of
from checkrein_integrations.openai_agents.supervision import (
    config_of,
    owner_of,
    supervise_agent,
)

if TYPE_CHECKING:
    from checkrein import Rein


class RunnerOptions(TypedDict, total=False):
    """What `Runner.run` takes beside the agent and its input."""

    context: Any
    max_turns: int | None
    hooks: Any
    run_config: RunConfig | None
    error_handlers: Any
    previous_response_id: str | None
    auto_previous_response_id: bool
    conversation_id: str | None
    session: Any
    """The SDK's own session, which keeps the conversation."""


async def run(rein: Rein, agent: Any, input: Any, **options: Unpack[RunnerOptions]) -> RunResult:
    """As `Runner.run`, under supervision, in the open session or one of its own.

    A call that needs approval interrupts the run: the result has `interruptions`, the approvals
    are in `rein.approvals`, and `resume` goes on. Run again on the same input in the same
    session (`rein.session(id=...)`), it takes every answer that is recorded from the journal.
    """
    ready = Ready(rein, agent, options)
    async with Around(rein, ready.agent.name) as around:
        return await around.carry(ready, input)


def run_sync(rein: Rein, agent: Any, input: Any, **options: Unpack[RunnerOptions]) -> RunResult:
    """The sync twin of `run`. Raises `WouldBlock` on a thread whose event loop is running."""
    result: RunResult = on_loop(run(rein, agent, input, **options), "run_sync")
    return result


def run_streamed(
    rein: Rein, agent: Any, input: Any, **options: Unpack[RunnerOptions]
) -> RunResultStreaming:
    """As `Runner.run_streamed`, under supervision; read its `stream_events()` to the end."""
    ready = Ready(rein, agent, options)
    around = Around(rein, ready.agent.name)
    return around.streamed(ready, input)


class Ready:
    """An agent and the settings of its run, supervised."""

    def __init__(self, rein: Rein, agent: Any, options: RunnerOptions) -> None:
        self.agent = supervise_agent(rein, agent)
        owner = owner_of(self.agent)
        assert owner is not None
        given: Any = options.get("run_config")
        if given is not None and not isinstance(given, RunConfig):
            raise ConfigError(f"run_config: {type(given).__name__} is no RunConfig")
        self.options: dict[str, Any] = {**options, "run_config": config_of(owner, given)}


class Around:
    """What is around one run: a session, and the `Run` by which its calls are told apart."""

    def __init__(self, rein: Rein, agent: str, run: Run | None = None) -> None:
        self.rein = rein
        self._agent = agent
        self._given = run
        self.run: Run | None = None
        self._own: Any = None
        self._before: Run | None = None
        self._outer = False
        """It is part of another run, which is gone on with as a whole."""

    async def __aenter__(self) -> Self:
        if self._given is None and active(self.rein) is None:
            self._own = self.rein.session(agent=self._agent)
            await self._own.__aenter__()
        self._before = RUN.get()
        return self

    def start(self, input: Any = None) -> Run:
        """Make the run the current one; an outer one, and one that waits for this state, goes on.

        What was told to a state of the SDK's decides nothing: the records do.
        """
        found = self._given or run_of(self.rein)
        self._outer = found is not None and self._given is None
        if found is None:
            session = active(self.rein)
            assert session is not None
            standing = states.last(self.rein, session.id) if isinstance(input, RunState) else None
            if standing is not None and standing.kind == states.SUSPENDED:
                found = states.restored(
                    session, standing, states.kept(self.rein, session.id, standing)
                )
            else:
                found = begin(session)
        self.run = found
        RUN.set(found)
        return found

    async def __aexit__(self, *exc: object) -> None:
        RUN.set(self._before)
        if self._own is not None:
            await self._own.__aexit__(*exc)

    async def carry(self, ready: Ready, input: Any) -> RunResult:
        """Run to the end, or to an interruption that a person has to decide."""
        run = self.start(input) if self.run is None else self.run
        if self._given is None and not self._outer:
            await states.started(self.rein.async_io, run, self._agent, input)
        while True:
            result = await Runner.run(ready.agent, input, **ready.options)
            if not result.interruptions:
                await self.over(run)
                return result
            state = self.past(result)
            if state is None:
                await self.suspend(run, result)
                return result
            input = state

    def past(self, result: Any) -> Any:
        """The state to go on with where nobody is asked; None if a person has to decide.

        The SDK interrupts a run for calls whose arguments it cannot read; ours refuse them.
        """
        run = self.run
        assert run is not None
        if not all(unreadable(item) for item in result.interruptions):
            return None
        state = result.to_state()
        for item in state.get_interruptions():
            state.approve(item)
        return state

    async def over(self, run: Run) -> None:
        """The run came to its end."""
        session = run.session
        # Of a run that is read out of the journal again, nothing new is written.
        if not self._outer and self.rein.opened(session.id) is session:
            await states.ended(self.rein.async_io, run)

    async def suspend(self, run: Run, result: Any) -> None:
        """Seal the run; its session stays open for whoever goes on."""
        open_calls = {call_of(item) for item in result.interruptions}
        run.waits = {t: call for t, call in run.waits.items() if tuple(call) in open_calls}
        await states.suspended(self.rein.async_io, run, self._agent, result.to_state())
        run.session.waiting.add(f"openai-agents-{run.number}")

    def streamed(self, ready: Ready, input: Any) -> RunResultStreaming:
        """A streamed run. Its session is opened here, and ended when the stream is read."""
        before, session = RUN.get(), ACTIVE.get()
        try:
            if self._given is None and active(self.rein) is None:
                self._own = self.rein.session(agent=self._agent)
                self._own.__enter__()
            run = self.start(input)
            if not self._outer:
                finish(states.started(self.rein.sync_io, run, self._agent, input))
            result = Runner.run_streamed(ready.agent, input, **ready.options)
        finally:
            # The run has a context of its own: the caller's is as it was.
            RUN.set(before)
            ACTIVE.set(session)
        return _streaming(result, _About(self, ready, run))

    def go_on(self, ready: Ready, state: Any) -> RunResultStreaming:
        """Stream on from a state."""
        run = self.run
        assert run is not None
        before, session = RUN.get(), ACTIVE.get()
        try:
            RUN.set(run)
            ACTIVE.set(run.session)
            return Runner.run_streamed(ready.agent, state, **ready.options)
        finally:
            RUN.set(before)
            ACTIVE.set(session)

    async def ended(self, error: BaseException | None) -> None:
        """The stream is over."""
        if self._own is not None:
            own, self._own = self._own, None
            kind = None if error is None else type(error)
            await own.__aexit__(kind, error, None)


def call_of(item: Any) -> tuple[str, str]:
    """(id of the tool call, name of its tool) of an interruption."""
    return str(get(item.raw_item, "call_id") or ""), str(item.tool_name or "")


def unreadable(item: Any) -> bool:
    """Whether a call's arguments are no JSON object."""
    text = get(item.raw_item, "arguments")
    return isinstance(text, str) and not isinstance(arguments_of(text), dict)


class _Streaming(RunResultStreaming):
    """A streamed run whose session ends with it."""

    async def stream_events(self) -> AsyncIterator[Any]:
        about: _About = vars(self)["checkrein"]
        error: BaseException | None = None
        events = super().stream_events()
        try:
            while True:
                try:
                    async for event in events:
                        yield event
                finally:
                    if about.now is not None:
                        # The result that the caller holds is the one that it ends with.
                        vars(self).update(vars(about.now))
                if not self.interruptions:
                    await about.around.over(about.run)
                    return
                state = about.around.past(self)
                if state is None:
                    await about.around.suspend(about.run, self)
                    return
                about.now = about.around.go_on(about.ready, state)
                events = about.now.stream_events()
        except BaseException as raised:
            error = raised
            raise
        finally:
            await about.around.ended(error)

    def cancel(self, mode: Any = "immediate") -> None:
        about: _About = vars(self)["checkrein"]
        if about.now is not None:
            about.now.cancel(mode)
        else:
            super().cancel(mode)


@dataclasses.dataclass(slots=True)
class _About:
    around: Around
    ready: Ready
    run: Run
    now: Any = None
    """The streamed run that goes on where the first one was interrupted for nobody."""


def _streaming(result: RunResultStreaming, about: _About) -> RunResultStreaming:
    object.__setattr__(result, "__class__", _Streaming)
    vars(result)["checkrein"] = about
    return result


def on_loop(coroutine: Any, what: str) -> Any:
    """Run a coroutine on this thread's own loop, which clients of models stay bound to."""
    refuse_on_loop(what, coroutine)
    policy = asyncio.get_event_loop_policy()
    with warnings.catch_warnings():
        # Python 3.12 warns where this makes the main thread's first loop, as is wanted here.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            loop = policy.get_event_loop()
        except RuntimeError:
            loop = policy.new_event_loop()
            policy.set_event_loop(loop)
    if loop.is_closed():
        loop = policy.new_event_loop()
        policy.set_event_loop(loop)
    return loop.run_until_complete(coroutine)
