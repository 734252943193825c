"""Model calls of an agent: the one message shape, both ways; usage; other models."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from langchain.agents.middleware import ModelRetryMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from checkrein import Answer, Deny, Fallback, Hold, Plugin, Replace, Retry, Rewrite
from checkrein.errors import BudgetExceeded, ConfigError, Denied
from checkrein_integrations.langchain import CheckreinMiddleware
from checkrein_integrations.langchain import messages as shape
from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call

from .conftest import Rules, kinds, states


@tool
def look(what: str) -> str:
    """Look."""
    return f"saw {what} of ann@example.org"


class Masking(Plugin):
    """Replaces one address in every text of a request and an answer."""

    def pre_call(self, call: Any) -> Any:
        if call.kind != "model":
            return None
        changed = walk(dict(call.arguments))
        return None if changed == call.arguments else Rewrite(call.replace(arguments=changed))

    def post_call(self, call: Any, outcome: Any) -> Any:
        if call.kind != "model" or outcome.value is None:
            return None
        return Replace(walk(outcome.value))


def walk(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("ann@example.org", "[EMAIL]")
    if isinstance(value, dict):
        return {k: walk(v) for k, v in value.items()}
    if isinstance(value, list):
        return [walk(v) for v in value]
    return value


def model(*steps: Any, **fields: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=list(steps), **fields)


def test_plugins_see_the_genai_form(agent: Any, rein: Any) -> None:
    seen: list[Any] = []
    r = rein(Rules(lambda c: seen.append((c.name, dict(c.arguments))), kind="model"))
    m = model(ai("let me see", call("look", "c1", what="sky")), ai("done"))
    agent(m, [look], CheckreinMiddleware(r), system_prompt="be kind").run()
    name, arguments = seen[1]
    assert name == "scripted-1"
    assert arguments["system"] == [{"type": "text", "content": "be kind"}]
    assert arguments["tools"] == [{"type": "function", "name": "look", "description": "Look."}]
    user, assistant, result = arguments["messages"]
    assert user == {"role": "user", "parts": [{"type": "text", "content": "go"}]}
    assert assistant["role"] == "assistant"
    assert assistant["parts"] == [
        {"type": "text", "content": "let me see"},
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"what": "sky"}},
    ]
    assert result == {
        "role": "tool",
        "parts": [
            {"type": "tool_call_response", "id": "c1", "response": "saw sky of ann@example.org"}
        ],
    }


def test_whole_request_and_answer_are_rewritten(agent: Any, rein: Any) -> None:
    m = model(
        ai("asking ann@example.org", call("look", "c1", what="ann@example.org")),
        ai("told ann@example.org"),
    )
    a = agent(m, [look], CheckreinMiddleware(rein(Masking())), system_prompt="for ann@example.org")
    result = a.run("write to ann@example.org")
    assert "ann@example.org" not in m.sent
    assert m.sent.count("[EMAIL]") >= 5
    assert result["messages"][-1].content == "told [EMAIL]"
    assert result["messages"][1].tool_calls[0]["args"] == {"what": "[EMAIL]"}


def test_untouched_parts_are_the_original_objects(agent: Any, rein: Any) -> None:
    image = {"type": "image", "base64": base64.b64encode(b"\x89PNG" * 99).decode(),
             "mime_type": "image/png"}  # fmt: skip
    text = {"type": "text", "text": "this is ann@example.org"}
    kept = HumanMessage("nothing here")
    mixed = HumanMessage(content=[text, image])
    m = model(ai("ok"))
    a = agent(m, [look], CheckreinMiddleware(rein(Masking())))
    a.run({"messages": [kept, mixed]})
    sent_kept, sent_mixed = m.seen[0]
    assert sent_kept.content == "nothing here"
    assert sent_mixed.content[0] == {"type": "text", "text": "this is [EMAIL]"}
    assert sent_mixed.content[1] == image
    told = [shape.told(x) for x in (kept, mixed)]
    back = shape.history([kept, mixed], told, walk(told))
    assert back[0] is kept
    assert back[1].content[1] is mixed.content[1]


def test_provider_forms_of_a_changed_call_are_dropped() -> None:
    message = AIMessage(
        content=[
            {"type": "text", "text": "x"},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"what": "ann@example.org"}},
        ],
        tool_calls=[call("look", "c1", what="ann@example.org")],
        additional_kwargs={"tool_calls": [{"function": {"arguments": "ann@example.org"}}], "k": 1},
    )
    told = shape.told(message)
    new = shape.rebuilt(message, told, walk(told))
    assert "ann@example.org" not in new.model_dump_json()
    assert new.additional_kwargs == {"k": 1}
    assert new.tool_calls[0]["args"] == {"what": "[EMAIL]"}
    assert shape.rebuilt(message, told, shape.told(message)) is message


def test_tool_results_of_several_blocks() -> None:
    message = ToolMessage(
        content=[{"type": "text", "text": "to ann@example.org"}, {"type": "image", "url": "u"}],
        tool_call_id="c1",
    )
    told = shape.told(message)
    new = shape.rebuilt(message, told, walk(told))
    assert new.content == [{"type": "text", "text": "to [EMAIL]"}, {"type": "image", "url": "u"}]


def test_messages_can_be_taken_out_and_added() -> None:
    history = [HumanMessage("a"), HumanMessage("b"), HumanMessage("c")]
    told = [shape.told(m) for m in history]
    added = {"role": "user", "parts": [{"type": "text", "content": "new"}]}
    back = shape.history(history, told, [told[0], told[2], added, told[2]])
    assert back[0] is history[0]
    assert back[1] is history[2]
    assert [m.content for m in back] == ["a", "c", "new", "c"]


def test_usage_is_recorded_with_its_details(agent: Any, rein: Any) -> None:
    answer = ai("ok")
    answer.usage_metadata = {
        "input_tokens": 100, "output_tokens": 50, "total_tokens": 150,
        "input_token_details": {"cache_read": 30, "cache_creation": 20, "audio": 5},
        "output_token_details": {"reasoning": 10, "audio": 3},
    }  # fmt: skip
    answer.response_metadata = {"model_name": "scripted-1-2026", "model_provider": "acme"}
    r = rein(Rules(lambda c: Hold("tokens", 1000, "tokens", 5000), kind="model"))
    agent(model(answer), [look], CheckreinMiddleware(r)).run()
    usage = r.store.events(kinds=("outcome",))[0].view["usage"]
    assert usage == {
        "input_tokens": 100, "output_tokens": 50, "cache_read_tokens": 30,
        "cache_write_tokens": 20, "reasoning_tokens": 10, "input_audio_tokens": 5,
        "output_audio_tokens": 3, "model": "scripted-1-2026", "provider": "acme",
    }  # fmt: skip
    balance = r.store.balance("tokens")
    assert (balance.spent, balance.held) == (150, 0)


@pytest.mark.parametrize("halt", [True, False])
def test_refused_model_call_ends_the_run(agent: Any, rein: Any, halt: bool) -> None:
    r = rein(Rules(lambda c: Hold("calls", 1, "calls", 1, settle="keep", halt=halt), kind="model"))
    r.declare("look", effect="read")
    m = model(ai("", call("look", what="x")), ai("done"), ai("more"))
    retry = ModelRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    with pytest.raises(BudgetExceeded):
        agent(m, [look], retry, CheckreinMiddleware(r)).run()
    assert len(m.seen) == 1
    assert states(r) == [("FAILED", "rolled_back")]


def test_denied_answer_is_withheld(agent: Any, rein: Any) -> None:
    r = rein(Rules(post=lambda c, o: Deny("not that"), kind="model"))
    with pytest.raises(Denied, match="not that"):
        agent(model(ai("secret")), [look], CheckreinMiddleware(r)).run()


def test_answer_takes_no_model(agent: Any, rein: Any) -> None:
    r = rein(Rules(lambda c: Answer("from the cache"), kind="model"))
    m = model(ai("never"))
    assert agent(m, [look], CheckreinMiddleware(r)).texts() == ["go", "from the cache"]
    assert m.seen == []


def test_replaced_by_text(agent: Any, rein: Any) -> None:
    r = rein(Rules(post=lambda c, o: Replace("other words"), kind="model"))
    assert agent(model(ai("words")), [look], CheckreinMiddleware(r)).texts()[-1] == "other words"


def test_fallback_and_rewrite_of_the_model(agent: Any, rein: Any) -> None:
    spare = model(ai("from the spare"), model_name="spare")

    def post(c: Any, o: Any) -> Any:
        return Fallback("spare") if o.error is not None else None

    r = rein(Rules(post=post, kind="model"))
    broken = model(TimeoutError("down"))
    a = agent(broken, [look], CheckreinMiddleware(r, models={"spare": spare}))
    assert a.texts()[-1] == "from the spare"
    names = [n for k, n in kinds(r) if k == "intent"]
    assert names == ["scripted-1", "spare"]

    small = model(ai("from the small"), model_name="small")
    r = rein(Rules(lambda c: Rewrite(c.replace(name="small")), kind="model"))
    a = agent(model(), [look], CheckreinMiddleware(r, models={"small": small}))
    assert a.texts()[-1] == "from the small"


def test_unknown_model_name(agent: Any, rein: Any) -> None:
    r = rein(Rules(lambda c: Rewrite(c.replace(name="nowhere")), kind="model"))
    with pytest.raises(ConfigError, match="nowhere"):
        agent(model(ai("x")), [look], CheckreinMiddleware(r)).run()


def test_retry_verdict_runs_the_model_again(agent: Any, rein: Any) -> None:
    def post(c: Any, o: Any) -> Any:
        return Retry() if o.error is not None else None

    r = rein(Rules(post=post, kind="model"))
    m = model(TimeoutError("down"), ai("up"))
    assert agent(m, [look], CheckreinMiddleware(r)).texts()[-1] == "up"
    assert len(m.seen) == 2


def test_tools_can_be_taken_out_of_a_request(agent: Any, rein: Any) -> None:
    def pre(c: Any) -> Any:
        return Rewrite(c.replace(arguments={**c.arguments, "tools": []}))

    m = model(ai("x"))
    agent(m, [look], CheckreinMiddleware(rein(Rules(pre, kind="model")))).run()
    assert m.offered == [[]]


SEARCH = {"type": "web_search_preview", "name": "search"}


def test_tools_of_the_provider_are_refused_by_default(agent: Any, rein: Any) -> None:
    m = model(ai("x"))
    with pytest.raises(ConfigError, match="search: the provider runs"):
        agent(m, [look, SEARCH], CheckreinMiddleware(rein(Rules()))).run()
    assert m.seen == []


def test_tools_of_the_provider_can_be_allowed_and_show(agent: Any, rein: Any) -> None:
    r = rein(Rules())
    agent(model(ai("x")), [look, SEARCH], CheckreinMiddleware(r, ungated="allow")).run()
    assert r.store.events(kinds=("intent",))[0].view["labels"] == {"ungated": "search"}


def test_bad_settings(rein: Any) -> None:
    with pytest.raises(ConfigError, match="ungated"):
        CheckreinMiddleware(rein(), ungated="perhaps")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="session"):
        CheckreinMiddleware(rein(), session="x")  # type: ignore[arg-type]


def test_a_run_that_broke_goes_on_without_asking_the_model_again(agent: Any, rein: Any) -> None:
    """The thread is taken up again after its process failed between a call and its checkpoint."""
    r = rein(Rules(), approvals="store")
    saver = InMemorySaver()
    broken = {"now": True}

    class Outside(Plugin):
        pass

    from langchain.agents.middleware import AgentMiddleware

    class Breaks(AgentMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            result = handler(request)
            if broken["now"]:
                raise KeyboardInterrupt
            return result

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            result = await handler(request)
            if broken["now"]:
                raise KeyboardInterrupt
            return result

    m = model(ai("first answer"))
    a = agent(m, [look], Breaks(), CheckreinMiddleware(r), checkpointer=saver)
    config = {"configurable": {"thread_id": "t"}}
    with pytest.raises(KeyboardInterrupt):
        a.run("go", config)
    broken["now"] = False
    if a.mode == "sync":
        result = a.graph.invoke(None, config)
    else:
        import asyncio

        result = asyncio.run(a.graph.ainvoke(None, config))
    assert result["messages"][-1].content == "first answer"
    assert len(m.seen) == 1


def test_structured_output_calls_are_no_tool_calls(agent: Any, rein: Any) -> None:
    from langchain.agents.structured_output import ToolStrategy
    from pydantic import BaseModel

    class Verdict(BaseModel):
        ok: bool

    r = rein(Rules())
    m = model(ai("", call("Verdict", ok=True)))
    result = agent(m, [look], CheckreinMiddleware(r), response_format=ToolStrategy(Verdict)).run()
    assert result["structured_response"].ok is True
    assert [n for k, n in kinds(r) if k == "intent"] == ["scripted-1"]
