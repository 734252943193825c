"""Streamed answers: what is shown, when, and what is taken back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import function_tool
from hypothesis import given
from hypothesis import strategies as st

from checkrein import Deny, Plugin, Rein, Replace
from checkrein.errors import Denied
from checkrein_integrations.openai_agents import (
    AnswerRetracted,
    run,
    run_streamed,
    supervise_agent,
)
from checkrein_integrations.testing.openai_agents import ScriptedModel, ask, call
from checkrein_plugins.redaction import Redaction

from .conftest import Rules, agent_of, effects, outputs, states, streamed

TEXT = "Write to ann@example.org or call 4111 1111 1111 1111, thanks."


@function_tool
def note(text: str) -> str:
    """Keep a note."""
    effects.append(text)
    return "kept"


def shown(went: Any) -> str:
    return str(went.streamed)


TEXTS = [TEXT, "plain", "a@b.co", "x ann@example.org"]


@given(chunk=st.integers(1, 70), text=st.sampled_from(TEXTS))
def test_every_chunking_shows_what_the_whole_answer_says(chunk, text):
    async def both() -> tuple[Any, Any]:
        with Rein(plugins=[Redaction()]) as r:
            whole = await run(r, agent_of(ScriptedModel([text])), "go")
            went = await streamed(r, agent_of(ScriptedModel([text], chunk_size=chunk)))
            return whole, went

    whole, went = asyncio.run(both())
    assert shown(went) == whole.final_output == went.result.final_output
    done = [e for e in went.events if e.type == "response.output_text.done"]
    assert [e.text for e in done] == [whole.final_output]
    items = [e for e in went.events if e.type == "response.output_item.done"]
    assert items[-1].item.content[0].text == whole.final_output


def test_the_first_character_is_held_no_longer_than_needed(rein):
    model = ScriptedModel(["one two three " * 100], chunk_size=1)
    went = asyncio.run(streamed(rein(Redaction()), agent_of(model)))
    pieces = [e for e in went.events if e.type == "response.output_text.delta"]
    assert len(pieces) > 100


class Hide(Plugin):
    """Hides a word in the arguments of tool calls."""

    def open_stream(self, call: Any, channel: str) -> Any:
        return Stars() if channel == "tool:0" else None


class Stars:
    holdback = 0

    def feed(self, text: str) -> str:
        return text.replace("secret", "******")

    def flush(self) -> str:
        return ""

    def abort(self) -> None: ...


@given(chunk=st.integers(1, 40))
def test_tool_arguments_come_once_they_are_complete(chunk):
    async def go() -> Any:
        with Rein(plugins=[Hide()]) as r:
            script = [ask(call("note", text="a secret")), "done"]
            model = ScriptedModel(script, chunk_size=chunk)
            return model, await streamed(r, agent_of(model, note))

    model, went = asyncio.run(go())
    assert "secret" not in model.sent
    pieces = [e for e in went.events if e.type == "response.function_call_arguments.delta"]
    (done,) = [e for e in went.events if e.type == "response.function_call_arguments.done"]
    assert [e.delta for e in pieces] == [done.arguments]
    assert done.arguments == '{"text": "a ******"}'


def bad(call: Any, outcome: Any) -> Any:
    text = "".join(p.get("content", "") for p in outcome.value["parts"])
    return Deny("forbidden phrase", rule="words") if "red button" in text else None


PHRASE = "one two three press the red button four five six"


def retracted(went: Any) -> list[AnswerRetracted]:
    return [event for event in went.events if isinstance(event, AnswerRetracted)]


async def collected(r: Rein, agent: Any) -> tuple[list[Any], BaseException | None]:
    result = run_streamed(r, agent, "go")
    events: list[Any] = []
    try:
        async for event in result.stream_events():
            events += [event.data] if event.type == "raw_response_event" else []
    except Denied as error:
        return events, error
    return events, None


def text_of(events: list[Any]) -> str:
    return "".join(e.delta for e in events if e.type == "response.output_text.delta")


@pytest.mark.parametrize("mode", ["auto", "hold"])
def test_hold_delivers_nothing_of_a_blocked_answer(rein, mode):
    r = rein(Rules(post=bad, kind="model"))
    agent = supervise_agent(r, agent_of(ScriptedModel([PHRASE], chunk_size=4)), streams=mode)
    events, error = asyncio.run(collected(r, agent))
    assert isinstance(error, Denied)
    assert text_of(events) == ""
    (event,) = [e for e in events if isinstance(e, AnswerRetracted)]
    assert (event.reason, event.rule, event.shown) == ("forbidden phrase", "words", False)
    assert states(r)[0][0] == "FAILED"


def test_pass_shows_it_and_takes_it_back(rein):
    r = rein(Rules(post=bad, kind="model"))
    agent = supervise_agent(r, agent_of(ScriptedModel([PHRASE], chunk_size=4)), streams="pass")
    events, error = asyncio.run(collected(r, agent))
    assert isinstance(error, Denied)
    assert text_of(events) == PHRASE
    assert isinstance(events[-1], AnswerRetracted)
    assert events[-1].shown


def test_a_replaced_answer_is_retracted_and_streamed_anew(rein):
    r = rein(Rules(post=lambda call, outcome: Replace("calm words"), kind="model"))
    agent = supervise_agent(r, agent_of(ScriptedModel([PHRASE], chunk_size=4)), streams="pass")
    went = asyncio.run(streamed(r, agent))
    assert went.result.final_output == "calm words"
    (event,) = retracted(went)
    assert event.replaced
    assert shown(went) == PHRASE + "calm words"
    held = supervise_agent(r, agent_of(ScriptedModel([PHRASE], chunk_size=4)))
    went = asyncio.run(streamed(r, held))
    assert (shown(went), retracted(went)) == ("calm words", [])


class Words(Plugin):
    """Stops a stream at a word."""

    def open_stream(self, call: Any, channel: str) -> Any:
        return Stop() if channel == "text" else None


class Stop:
    holdback = 10

    def __init__(self) -> None:
        self._kept = ""

    def feed(self, text: str) -> Any:
        self._kept += text
        if "red button" in self._kept:
            return Deny("forbidden phrase", rule="words")
        out, self._kept = self._kept[:-10], self._kept[-10:]
        return out

    def flush(self) -> str:
        out, self._kept = self._kept, ""
        return out

    def abort(self) -> None:
        self._kept = ""


def test_a_filter_stops_a_stream_before_the_phrase(rein):
    r = rein(Words())
    events, error = asyncio.run(collected(r, agent_of(ScriptedModel([PHRASE], chunk_size=3))))
    assert isinstance(error, Denied)
    assert "red" not in text_of(events)
    assert text_of(events)
    assert PHRASE.startswith(text_of(events))
    assert isinstance(events[-1], AnswerRetracted)
    agent = supervise_agent(r, agent_of(ScriptedModel([PHRASE], chunk_size=3)), streams="hold")
    events, error = asyncio.run(collected(r, agent))
    assert isinstance(error, Denied)
    assert text_of(events) == ""
    with pytest.raises(Denied, match="forbidden"):
        asyncio.run(run(r, agent_of(ScriptedModel([PHRASE])), "go"))


def test_a_stream_that_is_left_early_is_given_up(rein):
    r = rein()

    async def go() -> Any:
        model = ScriptedModel(["many words in this answer"], chunk_size=1)
        result = run_streamed(r, agent_of(model, note), "go")
        async for event in result.stream_events():
            if event.type == "raw_response_event":
                result.cancel()
        return result

    asyncio.run(go())
    assert states(r)[0][0] in ("COMPLETED", "FAILED")


def test_the_session_ends_with_the_stream_and_the_callers_context_is_free(rein):
    r = rein()

    async def go() -> None:
        first = run_streamed(r, agent_of(ScriptedModel(["one"])), "go")
        second = run_streamed(r, agent_of(ScriptedModel(["two"])), "go")
        async for _ in first.stream_events():
            pass
        async for _ in second.stream_events():
            pass

    asyncio.run(go())
    assert states(r) == [("COMPLETED", "none")] * 2


def test_tools_run_in_a_streamed_run(rein):
    r, model = rein(Redaction()), ScriptedModel([ask(call("note", text="hi")), "done"])
    went = asyncio.run(streamed(r, agent_of(model, note)))
    assert (effects, outputs(model), went.result.final_output) == (["hi"], ["kept"], "done")
