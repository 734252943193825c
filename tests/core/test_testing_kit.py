"""The testing kit itself: it sees what it is for, and lets sound things pass."""

import asyncio
import dataclasses
import http.client
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from checkrein import (
    Answer,
    Ask,
    Deny,
    Hold,
    Measured,
    Plugin,
    Rein,
    Replace,
    Rewrite,
    Skip,
    Undo,
    errors,
    hookimpl,
)
from checkrein.testing import (
    Clock,
    Effects,
    Failure,
    OpenAIServer,
    PluginFault,
    Reply,
    ToolCall,
    check_plugin,
    record_events,
    sample_call,
)

# -- clock


def test_a_clock_stands_still_until_it_is_advanced():
    clock = Clock(datetime(2030, 1, 1, tzinfo=UTC))
    assert clock() == clock() == 1_893_456_000_000_000
    assert clock.advance(1.5) == clock() == 1_893_456_001_500_000
    assert clock.now == datetime(2030, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert Clock(10.25)() == 10_250_000
    with pytest.raises(ValueError, match="time zone"):
        Clock(datetime(2030, 1, 1))  # noqa: DTZ001 - it is refused


class Asks(Plugin):
    def pre_call(self, call):
        return Ask("sure?", rule="all")


def test_a_rein_lives_by_its_clock():
    clock = Clock()
    with Rein([Asks()], clock=clock, approvals="store", approval_expires=60) as rein:
        with rein.session(wait="suspend") as session:
            with pytest.raises(errors.ApprovalPending) as waiting:
                rein.call(lambda: "ran")
            assert len(rein.approvals.pending()) == 1
            clock.advance(61)
            assert rein.approvals.pending() == []
            with pytest.raises(errors.Conflict, match="expired"):
                rein.approvals.approve(waiting.value.token, by="ann")
        first, *_, last = session.events()
        assert last.at - first.at == timedelta(seconds=61) // timedelta(microseconds=1)


# -- recorder


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_effects_are_counted_with_what_was_taken_back(kind, tmp_path):
    effects = Effects(tmp_path / "effects" if kind == "file" else None)
    assert not effects
    effects.do("pay", order=1)
    effects.do("pay", order=2)
    effects.undo("pay", order=1)
    effects.do("mail")
    effects.undo("never", order=9)
    assert effects == ["pay", "pay", "-pay", "mail", "-never"]
    assert len(effects) == 5
    assert effects.in_place == {'pay {"order": 2}': 1, "mail": 1, 'never {"order": 9}': -1}
    assert [e.arguments for e in effects if e.undone] == [{"order": 1}, {"order": 9}]
    assert effects != ["pay"]


def test_effects_in_a_file_are_seen_by_other_processes(tmp_path, child):
    snippet = (
        "import sys; from checkrein.testing import Effects\n"
        "for n in range(50): Effects(sys.argv[1]).do('pay', order=n)"
    )
    path = tmp_path / "effects"
    started = [child(snippet, path) for _ in range(3)]
    for process in started:
        assert process.communicate()[1] == ""
    assert len(Effects(path)) == 150
    assert set(Effects(path).in_place.values()) == {3}


def test_a_recording_begins_where_it_is_asked_for():
    with Rein() as rein, rein.session() as session:
        rein.call(lambda: 1)
        recorded = record_events(rein)
        assert len(recorded) == 0
        rein.call(lambda: 2)
        assert recorded.kinds == ["intent", "outcome"]
        (outcome,) = recorded.events("outcome", session=session.id)
        assert outcome.view["result"] == 2
        assert [e.kind for e in recorded] == recorded.kinds


def test_a_recording_reads_page_by_page():
    with Rein() as rein, rein.session():
        recorded = record_events(rein)
        for number in range(600):
            rein.call(int, number)
        assert len(recorded) == 1200


# -- check_plugin


class Sound(Plugin):
    """Uses every hook, as it should be used."""

    def __init__(self, limit=3):
        self.limit = limit

    def pre_call(self, call):
        if call.kind == "undo":
            return None
        hold = Hold("sound", 1, "calls", self.limit, settle="keep")
        if "to" in call.arguments:
            changed = {**call.arguments, "to": "nobody"}
            return (Rewrite(call.replace(arguments=changed)), hold)
        return (hold, Ask("sure?", who=("ann",)))

    async def post_call(self, call, outcome):
        await asyncio.sleep(0)
        return Replace("shorter")

    def on_rollback(self, call, outcome, cause):
        return Undo("undo_it", {"what": call.name})

    def view(self, call, value, sink):
        return {"shown": type(value).__name__}

    def measure(self, call, outcome):
        return Measured(cost=3, state="reported")

    def open_stream(self, call, channel):
        return Upper()


class Upper:
    holdback = 0

    def feed(self, text):
        return text.upper()

    def flush(self):
        return ""

    def abort(self):
        return None


def test_a_sound_plugin_passes_also_inside_a_running_loop():
    check_plugin(Sound())

    async def inside():
        check_plugin(Sound())

    asyncio.run(inside())


def test_a_marked_object_passes():
    class Marked:
        @hookimpl
        def pre_call(self, call):
            return Deny("no")

    check_plugin(Marked())


def hook(name, fn, **attributes):
    """A plugin whose one hook is `fn`."""
    return type("Sample", (Plugin,), {name: fn, **attributes})()


def counting():
    seen = []

    def pre_call(self, call):
        seen.append(call)
        return Deny(f"call {len(seen)}")

    return pre_call


def mutating(self, call):
    if "copies" in call.arguments:
        call.arguments["copies"] = 99


def mutating_view(self, call, value, sink):
    if isinstance(value, list):
        value.append(1)
    return value


class Negative(Upper):
    holdback = -1


class Split(Upper):
    """Upper-cases whole pieces of one length only: depends on how the text is cut."""

    def feed(self, text):
        return text.upper() if len(text) == 7 else text


@pytest.mark.parametrize(
    ("plugin", "told"),
    [
        (hook("pre_call", lambda self, call, extra: None), "extra"),
        (hook("pre_call", counting()), "must be pure"),
        (hook("pre_call", mutating), "changes the call's arguments"),
        (hook("pre_call", lambda self, call: call.arguments["no"]), "raises KeyError"),
        (hook("pre_call", lambda self, call: "deny"), "answers 'deny'; use Rewrite, Deny"),
        (hook("pre_call", lambda self, call: (None, True)), "answers True"),
        (hook("pre_call", lambda self, call: Deny("")), "give a reason"),
        (hook("pre_call", lambda self, call: Ask("x", who="ann")), "who must be a tuple"),
        (hook("pre_call", lambda self, call: Ask("x", quorum=0)), "quorum"),
        (hook("pre_call", lambda self, call: Ask("x", expires=0)), "expires"),
        (hook("pre_call", lambda self, call: Hold("a", 0.5, "usd", 1)), "amount must be an int"),
        (hook("pre_call", lambda self, call: Hold("", 1, "usd", 1)), "account is empty"),
        (hook("pre_call", lambda self, call: Hold("a", 1, "usd", 1, window=0)), "window"),
        (hook("pre_call", lambda self, call: Replace(1)), "use Rewrite"),
        (
            hook("pre_call", lambda self, call: Rewrite(dataclasses.replace(call, id="x"))),
            "Rewrite changes id",
        ),
        (
            hook("pre_call", lambda self, call: Rewrite(call.replace(arguments={"f": open}))),
            "cannot be recorded",
        ),
        (hook("post_call", lambda self, call, outcome: Answer(1)), "answers Answer"),
        (hook("measure", lambda self, call, outcome: Measured(cost=0.5)), "nano-dollars"),
        (hook("on_rollback", lambda self, call, outcome, cause: True), "use Undo, Skip"),
        (hook("view", mutating_view), "changes the list"),
        (hook("view", lambda self, call, value, sink: value.upper()), "raises AttributeError"),
        (hook("view", lambda self, call, value, sink: os.urandom(8).hex()), "two ways"),
        (hook("open_stream", lambda self, call, channel: Split()), "cut in other pieces"),
        (hook("open_stream", lambda self, call, channel: Negative()), "holdback"),
        (hook("start", lambda self, rein: 1 / 0), "start"),
        (hook("precall", lambda self, call: None, pre_call=lambda self, call: None), "pre_call"),
    ],
)  # fmt: skip
def test_a_plugin_that_breaks_a_rule_is_told_which(plugin, told):
    with pytest.raises(PluginFault) as fault:
        check_plugin(plugin)
    assert told in str(fault.value)
    assert isinstance(fault.value, AssertionError)


def test_all_faults_are_told_at_once():
    plugin = type(
        "Sample",
        (Plugin,),
        {"pre_call": lambda self, call: "x", "measure": lambda self, call, outcome: "y"},
    )()
    with pytest.raises(PluginFault) as fault:
        check_plugin(plugin)
    assert {p.partition(" ")[0] for p in fault.value.problems} == {"pre_call", "measure"}


def test_a_guard_that_asks_outside_may_answer_differently():
    check_plugin(hook("pre_call", counting(), external=True))


def test_a_constructor_that_a_file_cannot_call():
    class Positional(Plugin):
        def __init__(self, size, /):
            self.size = size

        def pre_call(self, call):
            return None

    with pytest.raises(PluginFault, match="by position"):
        check_plugin(Positional(3))


def test_rules_about_particular_calls_are_tried_with_them():
    def pre_call(self, call):
        return 5 if call.name == "special" else None

    check_plugin(hook("pre_call", pre_call))
    with pytest.raises(PluginFault, match="special"):
        check_plugin(hook("pre_call", pre_call), [sample_call("special")])


def test_skip_and_start_are_fine():
    check_plugin(hook("on_rollback", lambda self, call, outcome, cause: Skip("keep it")))
    started = []
    plugin = hook("start", lambda self, rein: started.append(rein))
    check_plugin(plugin)
    check_plugin(plugin, start=False)
    assert len(started) == 1


# -- the OpenAI-compatible server


def post(server, path="/chat/completions", **body):
    request = urllib.request.Request(
        server.url + path,
        json.dumps({"model": "m-1", "messages": [], **body}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer none"},
    )
    with urllib.request.urlopen(request) as response:
        return response.read().decode()


def streamed(server, **body):
    text = post(server, stream=True, **body)
    rows = [row.removeprefix("data: ") for row in text.split("\n\n") if row]
    assert rows.pop() == "[DONE]"
    return [json.loads(row) for row in rows]


def test_answers_come_one_by_one_with_usage():
    call = ToolCall("refund", {"order": 7})
    with OpenAIServer(["Hello", call, [call, ToolCall("mail", "{broken", "id-9")]]) as server:
        first = json.loads(post(server, temperature=0))
        assert first["choices"][0]["message"]["content"] == "Hello"
        assert first["choices"][0]["finish_reason"] == "stop"
        assert (first["model"], first["usage"]["total_tokens"]) == ("m-1", 18)
        second = json.loads(post(server))["choices"][0]
        assert second["finish_reason"] == "tool_calls"
        assert second["message"]["tool_calls"] == [
            {
                "id": "call_2_0",
                "type": "function",
                "function": {"name": "refund", "arguments": '{"order": 7}'},
            }
        ]
        third = json.loads(post(server))["choices"][0]["message"]["tool_calls"]
        assert [c["id"] for c in third] == ["call_3_0", "id-9"]
        assert third[1]["function"]["arguments"] == "{broken"
        assert server.requests[0]["temperature"] == 0
        assert server.headers[0]["authorization"] == "Bearer none"
        assert server.left == 0


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream_gives_the_same_in_pieces(usage):
    reply = Reply("Hello there", [ToolCall("refund", {"order": 7})], cached_tokens=3, chunk=2)
    with OpenAIServer([reply]) as server:
        chunks = streamed(server, stream_options={"include_usage": usage})
    deltas = [c["choices"][0]["delta"] for c in chunks if c["choices"]]
    assert "".join(d.get("content") or "" for d in deltas) == "Hello there"
    pieces = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    assert pieces[0]["function"]["name"] == "refund"
    assert json.loads("".join(p["function"]["arguments"] for p in pieces)) == {"order": 7}
    assert max(len(p["function"]["arguments"]) for p in pieces) == 2
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1] == "tool_calls"
    told = [c["usage"] for c in chunks if "usage" in c]
    assert len(told) == usage
    if usage:
        assert told[0]["prompt_tokens_details"] == {"cached_tokens": 3}


@pytest.mark.parametrize("usage", [True, False])
def test_responses_say_the_same_plain_and_streamed(usage):
    call = ToolCall("refund", {"order": 7})
    reply = Reply("Hello", [call], reasoning="so", usage=usage, cached_tokens=3, chunk=2)
    with OpenAIServer([reply, reply, Reply("cut", finish_reason="length")]) as server:
        plain = json.loads(post(server, "/responses", input="hi"))
        text = post(server, "/responses", input="hi", stream=True)
        cut = json.loads(post(server, "/responses"))
        assert server.requests[0]["input"] == "hi"
    thought, message, wanted = plain["output"]
    assert thought["summary"][0]["text"] == "so"
    assert message["content"][0]["text"] == "Hello"
    assert (wanted["name"], wanted["arguments"]) == ("refund", '{"order": 7}')
    assert (plain["status"], cut["status"]) == ("completed", "incomplete")
    rows = [row.split("\n") for row in text.split("\n\n") if row]
    events = [json.loads(data.removeprefix("data: ")) for _, data in rows]
    assert [name.removeprefix("event: ") for name, _ in rows] == [e["type"] for e in events]
    assert [e["sequence_number"] for e in events] == list(range(len(events)))

    def joined(kind):
        return [e["delta"] for e in events if e["type"] == f"response.{kind}.delta"]

    assert "".join(joined("output_text")) == "Hello"
    assert "".join(joined("reasoning_summary_text")) == "so"
    assert "".join(joined("function_call_arguments")) == '{"order": 7}'
    assert len(joined("output_text")) == 3
    last = events[-1]["response"]
    assert {**last, "id": ""} == {**plain, "id": ""} | {"output": last["output"]}
    assert [item["type"] for item in last["output"]] == ["reasoning", "message", "function_call"]
    assert (last["usage"] is not None) == usage
    if usage:
        assert last["usage"]["input_tokens_details"]["cached_tokens"] == 3


def test_failures_are_injected():
    failures = [
        Failure(429, "slow down", "rate_limit_exceeded", retry_after=2.5),
        Failure(how="hang_up"),
        Failure(how="garbage"),
        Reply("cut", cut_after=2, chunk=1),
    ]
    with OpenAIServer(failures) as server:
        with pytest.raises(urllib.error.HTTPError) as limited:
            post(server)
        with limited.value as answer:
            assert answer.code == 429
            assert answer.headers["Retry-After"] == "2.5"
            assert json.load(answer)["error"]["code"] == "rate_limit_exceeded"
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            post(server)
        assert not post(server).startswith("{")
        assert "[DONE]" not in post(server, stream=True)
        with pytest.raises(urllib.error.HTTPError) as empty:
            post(server)
        with empty.value as answer:
            assert "no reply for request 5" in json.load(answer)["error"]["message"]
        server.say("more")
        assert "more" in post(server)


def test_a_function_may_answer_and_wrong_paths_are_told():
    with OpenAIServer(lambda body: body["model"].upper()) as server:
        assert json.loads(post(server, model="echo"))["choices"][0]["message"]["content"] == "ECHO"
        with urllib.request.urlopen(f"{server.url}/models") as response:
            assert json.load(response)["data"][0]["id"] == "gpt-4o-mini"
        with pytest.raises(urllib.error.HTTPError) as wrong:
            post(server, "/embeddings")
        wrong.value.close()
        assert wrong.value.code == 404
        assert len(server.requests) == 1


# -- the kit as a whole


def test_the_kit_does_not_import_pytest(child):
    snippet = (
        "import sys, checkrein.testing as t; [getattr(t, n) for n in t.__all__]\n"
        "print('pytest' in sys.modules, t.check_plugin.__name__, t.check_store.__name__)"
    )
    out, err = child(snippet).communicate()
    assert out.split() == ["False", "check_plugin", "check_store"], err


def test_names_are_functions_whatever_was_imported_first():
    snippet = (
        "import checkrein.testing.check_plugin, checkrein.testing.check_store\n"
        "from checkrein.testing import check_plugin, check_store\n"
        "assert callable(check_plugin) and callable(check_store)"
    )
    assert subprocess.run([sys.executable, "-c", snippet]).returncode == 0


def test_an_unknown_name_is_an_attribute_error():
    import checkrein.testing

    with pytest.raises(AttributeError, match="nothing_here"):
        _ = checkrein.testing.nothing_here
