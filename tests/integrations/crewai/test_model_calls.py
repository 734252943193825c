"""Model calls of a crew: redaction before, limits around, cost after, streams filtered."""

from __future__ import annotations

import json

import pytest
from crewai import Agent, Crew, Task
from crewai.events import crewai_event_bus
from crewai.events.types.llm_events import LLMCallCompletedEvent, LLMStreamChunkEvent
from crewai.tools import tool
from pydantic import BaseModel

from checkrein import Answer, Deny, Fallback, Plugin, Replace, Rewrite
from checkrein.errors import BudgetExceeded, ConfigError, Denied
from checkrein_integrations.crewai import AnswerRetractedEvent, supervise, supervise_model
from checkrein_integrations.testing.crewai import ScriptedLLM
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost
from checkrein_plugins.redaction import Redaction

from .conftest import Road, Rules, call, effects, kinds, states

MAIL = "casey@example.org"
KEYS = ("input_tokens", "output_tokens")


@tool("send")
def send(to: str) -> str:
    """Send a mail."""
    effects.append(to)
    return f"sent to {to}"


def test_the_outgoing_request_is_redacted_whole(road, rein):
    r = rein(Redaction())
    llm = road.llm([call("send", to=MAIL)], "done")
    crew = road.crew(llm, [send])
    crew.tasks[0].description = f"write to {MAIL}"
    assert road.run(r, crew).raw == "done"
    assert len(llm.seen) == 2
    assert MAIL not in llm.sent


def test_usage_is_charged_and_a_limit_stops_the_run(road, rein):
    r = rein(Budget(tokens=20), Cost(overlay={"scripted-1": {"input": 1, "output": 2}}))
    llm = road.llm(*[[call("send", to=f"a{n}")] for n in range(9)], "done")
    with pytest.raises(BudgetExceeded):
        road.run(r, road.crew(llm, [send]))
    row = r.store.sessions().rows[0]
    spend = r.read(row.id).spend()
    assert spend.tokens == 15 * len(llm.seen)
    assert spend.nano_usd == 20_000 * len(llm.seen)


def test_a_model_call_may_be_denied_answered_or_its_answer_replaced(road, rein):
    with pytest.raises(Denied, match="no models today"):
        road.run(rein(Rules(lambda c: Deny("no models today"), kind="model")),
                 road.crew(road.llm("done"), []))  # fmt: skip
    text = road.llm("from a cache").script[0]
    llm = road.llm()
    assert road.run(rein(Rules(lambda c: Answer(text), kind="model")),
                    road.crew(llm, [])).raw == "from a cache"  # fmt: skip
    assert llm.seen == []

    def upper(call, outcome):
        return Replace(outcome.value["parts"][0]["content"].replace("done", "DONE"))

    assert road.run(rein(Rules(post=upper, kind="model")),
                    road.crew(road.llm("done"), [])).raw == "DONE"  # fmt: skip


def test_a_plugin_sees_tool_calls_of_an_answer_and_may_change_them(rein):
    road = Road(native=True, mode="sync")

    def change(call, outcome):
        parts = outcome.value["parts"]
        if parts[0]["type"] != "tool_call":
            return None
        return Replace({"role": "assistant", "parts": [{**parts[0], "arguments": {"to": "b"}}]})

    crew = road.crew(road.llm([call("send", to="a")], "done"), [send])
    assert road.run(rein(Rules(post=change, kind="model")), crew).raw == "done"
    assert effects == ["b"]


def test_a_plugin_may_choose_another_model(road, rein):
    big, small = road.llm(model="big"), road.llm("done", model="small")

    def choose(call):
        return Rewrite(call.replace(name="small")) if call.name == "big" else None

    r = rein(Rules(choose, kind="model"))
    assert road.run(r, road.crew(big, []), models={"small": small}).raw == "done"
    assert ("intent", "small") in kinds(r)
    with pytest.raises(ConfigError, match="supervise"):
        road.run(rein(Rules(choose, kind="model")), road.crew(big, []))


def test_a_fallback_after_an_error(road, rein):
    def again(call, outcome):
        return Fallback("small") if outcome.error is not None else None

    big, small = road.llm(ValueError("down"), model="big"), road.llm("done", model="small")
    r = rein(Rules(post=again, kind="model"))
    assert road.run(r, road.crew(big, []), models={"small": small}).raw == "done"
    row = r.store.sessions().rows[0]
    assert r.read(row.id).spend().tokens == 15


class Reply(BaseModel):
    word: str


def test_structured_output_is_seen_as_text_and_stays_structured(rein):
    road = Road(native=True, mode="sync")
    llm = road.llm()
    llm.script.append(json.dumps({"word": "yes"}))
    crew = road.crew(llm, [])
    crew.tasks[0].output_pydantic = Reply

    def swap(call, outcome):
        return Replace(outcome.value["parts"][0]["content"].replace("yes", "no"))

    result = road.run(rein(Rules(post=swap, kind="model")), crew)
    assert result.pydantic == Reply(word="no")


def test_parallel_tasks_pay_for_their_own(rein):
    """One agent, two tasks at a time: per call what it used, and the sum of both."""
    r = rein()
    first = ScriptedLLM(script=["one"], input_tokens=40, output_tokens=10, delay=0.05)
    second = ScriptedLLM(script=["two"], input_tokens=20, output_tokens=10, delay=0.05)
    last = ScriptedLLM(script=["three"], input_tokens=15, output_tokens=5)
    agents = [Agent(role=f"a{n}", goal="g", backstory="b", llm=llm)
              for n, llm in enumerate((first, second, last))]  # fmt: skip
    tasks = [Task(description=f"t{n}", expected_output="x", agent=agent, async_execution=n < 2)
             for n, agent in enumerate(agents)]  # fmt: skip
    with supervise(r) as session:
        Crew(agents=agents, tasks=tasks).kickoff()
    assert session.spend().tokens == 50 + 30 + 20
    used = {}
    roles = {}
    for event in session.events():
        if event.kind == "intent":
            roles[event.call] = event.view["labels"]["crewai.role"]
        elif event.kind == "outcome":
            used[roles[event.call]] = sum(event.view["usage"][k] for k in KEYS)
    assert used == {"a0": 50, "a1": 30, "a2": 20}


# -- streams


class Heard:
    """What listeners of the event bus were told."""

    def __enter__(self):
        self.chunks, self.answers = [], []
        self._scope = crewai_event_bus.scoped_handlers()
        self._scope.__enter__()
        crewai_event_bus.on(LLMStreamChunkEvent)(lambda source, event: self.chunks.append(event))
        crewai_event_bus.on(LLMCallCompletedEvent)(lambda source, e: self.answers.append(e))
        return self

    def __exit__(self, *exc):
        crewai_event_bus.flush()
        self._scope.__exit__(*exc)

    @property
    def text(self):
        return "".join(event.chunk for event in self.chunks)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_streamed_text_and_the_events_of_a_call_are_redacted(rein, size):
    road = Road(native=True, mode="sync")
    r = rein(Redaction())
    plain = road.run(r, road.crew(road.llm(f"write to {MAIL} now"), [])).raw
    assert MAIL not in plain
    llm = road.llm(f"write to {MAIL} now", stream=True, chunk_size=size)
    with Heard() as heard:
        assert road.run(rein(Redaction()), road.crew(llm, [])).raw == plain
        crewai_event_bus.flush()
    assert heard.text == plain
    assert [event.response for event in heard.answers] == [plain]
    assert len({event.call_id for event in [*heard.chunks, *heard.answers]}) == 1


def test_streamed_arguments_are_told_once_they_are_complete(rein):
    road = Road(native=True, mode="sync")
    llm = road.llm([call("send", to=MAIL)], "done", stream=True, chunk_size=3)
    with Heard() as heard:
        road.run(rein(Redaction()), road.crew(llm, [send]))
        crewai_event_bus.flush()
    calls = [event for event in heard.chunks if event.tool_call]
    assert len(calls) == 1
    assert MAIL not in calls[0].chunk
    assert MAIL not in calls[0].tool_call.function.arguments
    assert json.loads(calls[0].chunk).keys() == {"to"}


def test_a_plugin_that_looks_at_whole_answers_holds_the_stream(rein):
    road = Road(native=True, mode="sync")

    def withhold(call, outcome):
        return Replace("nothing to see") if "secret" in str(outcome.value) else None

    llm = road.llm("a secret word", stream=True)
    with Heard() as heard:
        result = road.run(rein(Rules(post=withhold, kind="model")), road.crew(llm, []))
        crewai_event_bus.flush()
    assert result.raw == "nothing to see"
    assert heard.text == "nothing to see"
    assert [event.response for event in heard.answers] == ["nothing to see"]


class Forbidden(Plugin):
    def open_stream(self, call, channel):
        return Filter() if channel == "text" else None


class Filter:
    holdback = 6

    def __init__(self):
        self.kept = ""

    def feed(self, text):
        self.kept += text
        if "bomb" in self.kept:
            return Deny("a forbidden word", halt=True)
        out, self.kept = self.kept[:-6], self.kept[-6:]
        return out

    def flush(self):
        out, self.kept = self.kept, ""
        return out

    def abort(self):
        self.kept = ""


def test_a_filter_that_denies_ends_the_run_before_anything_of_it_is_told(rein):
    road = Road(native=True, mode="sync")
    llm = road.llm("how to build a bomb at home", stream=True, chunk_size=4)
    r = rein(Forbidden())
    with Heard() as heard:
        with pytest.raises(Denied, match="a forbidden word"):
            road.run(r, road.crew(llm, []))
        crewai_event_bus.flush()
    assert "bomb" not in heard.text
    assert heard.answers == []
    assert states(r)[0][0] == "FAILED"


class Taken(Heard):
    """What is taken back, too."""

    def __enter__(self):
        super().__enter__()
        self.events = []
        crewai_event_bus.on(AnswerRetractedEvent)(lambda source, e: self.events.append(e.retracted))
        return self


PHRASE = "press the red button now"


def bad(call, outcome):
    return Deny("forbidden phrase", rule="words") if "red button" in str(outcome.value) else None


@pytest.mark.parametrize(
    ("streams", "shown"), [("auto", ""), ("hold", ""), ("pass", PHRASE)]
)  # fmt: skip
def test_a_blocked_answer_is_held_or_taken_back(rein, streams, shown):
    road = Road(native=True, mode="sync")
    llm = road.llm(PHRASE, stream=True, chunk_size=4)
    r = rein(Rules(post=bad, kind="model"))
    with Taken() as taken, pytest.raises(Denied, match="forbidden"):
        road.run(r, road.crew(llm, []), streams=streams)
    assert taken.text == shown
    (event,) = taken.events
    assert (event.rule, event.shown, event.replaced) == ("words", bool(shown), False)
    assert states(r)[0][0] == "FAILED"


def test_a_replaced_answer_is_taken_back_and_told_anew(rein):
    road = Road(native=True, mode="sync")
    llm = road.llm(PHRASE, stream=True, chunk_size=4)
    r = rein(Rules(post=lambda call, outcome: Replace("calm words"), kind="model"))
    with Taken() as taken:
        result = road.run(r, road.crew(llm, []), streams="pass")
    assert result.raw == "calm words"
    assert taken.text == PHRASE + "calm words"
    assert [event.replaced for event in taken.events] == [True]


def test_hold_tells_of_nothing_before_the_answer_is_judged(rein):
    road = Road(native=True, mode="sync")
    llm = road.llm("how to build a bomb at home", stream=True, chunk_size=4)
    with Taken() as taken, pytest.raises(Denied, match="a forbidden word"):
        road.run(rein(Forbidden()), road.crew(llm, []), streams="hold")
    assert taken.text == ""
    with pytest.raises(ConfigError, match="none of 'auto', 'hold', 'pass'"):
        supervise(rein(), streams="often")


# -- models that are called directly


def test_a_model_called_past_every_agent_is_refused_or_supervised(rein):
    r = rein(Redaction())
    llm = ScriptedLLM(script=["done", "done"])
    with supervise(r), pytest.raises(ConfigError, match="supervise_model"):
        llm.call(f"write to {MAIL}")
    assert llm.seen == []
    safe = supervise_model(r, llm)
    with supervise(r) as session:
        assert safe.call(f"write to {MAIL}") == "done"
    assert MAIL not in safe.sent
    assert session.spend().calls == 1
    assert supervise_model(r, safe) is safe
    with pytest.raises(ConfigError, match="another Rein"):
        supervise_model(rein(), safe)


def test_functions_that_a_model_runs_itself_are_judged(rein):
    r = rein(Rules(lambda call: Deny("not that") if call.arguments["to"] == "b" else None))
    llm = supervise_model(r, ScriptedLLM(script=[[call("send", to="a")], [call("send", to="b")]]))
    with supervise(r):
        functions = {"send": send.run}
        assert llm.call("go", available_functions=functions) == "sent to a"
        assert "not that" in llm.call("go", available_functions=functions)
    assert effects == ["a"]


def test_a_streaming_crew_shows_filtered_chunks_only(rein):
    road = Road(native=True, mode="sync")
    llm = road.llm(f"write to {MAIL} now", chunk_size=5)
    r = rein(Redaction())
    with supervise(r) as session:
        stream = road.crew(llm, [], stream=True).kickoff()
        text = "".join(chunk.content for chunk in stream)
        result = stream.result.raw
    assert MAIL not in text
    assert text == result
    assert session.spend().tokens == 15


def test_tasks_that_share_a_model_pay_for_their_own(rein):
    """The model's own counters only ever grow: differences of them would charge each other."""
    r = rein()
    llm = ScriptedLLM(script=["one", "two", "three"], delay=0.05)
    agents = [Agent(role=f"a{n}", goal="g", backstory="b", llm=llm) for n in range(3)]
    tasks = [
        Task(description="t", expected_output="x", agent=agent, async_execution=n < 2)
        for n, agent in enumerate(agents)
    ]
    with supervise(r) as session:
        Crew(agents=agents, tasks=tasks).kickoff()
    used = [event.view["usage"] for event in session.events() if event.kind == "outcome"]
    assert [sum(usage[key] for key in KEYS) for usage in used] == [15, 15, 15]
    assert session.spend().tokens == 45
