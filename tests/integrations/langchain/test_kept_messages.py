"""What is kept of a model's answer gives the same answer again, in whatever form it was kept."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("langchain")

from langchain_core.messages import AIMessage, AIMessageChunk, message_to_dict

from checkrein_integrations.langchain.results import kept_of, loaded_message

CALLS = [{"name": "pay", "args": {"amount": 3, "to": ["a"]}, "id": "c1", "type": "tool_call"}]
ANSWERS = [
    AIMessage(""),
    AIMessage("done", id="m1", name="bob"),
    AIMessage("", tool_calls=CALLS, response_metadata={"model_name": "m", "extra": {"a": [1]}},
              usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    AIMessage([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]),
    AIMessage("", invalid_tool_calls=[{"name": "pay", "args": "{", "id": "c2", "error": "no",
                                       "type": "invalid_tool_call"}]),
    AIMessage("x", additional_kwargs={"reasoning": "r"}, refused=True),
    AIMessageChunk("streamed", tool_calls=CALLS),
]  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_a_kept_answer_comes_back_as_it_was(answer) -> None:
    assert loaded_message(json.loads(json.dumps(kept_of(answer)))) == answer


def test_answers_that_were_kept_in_the_earlier_form_are_read() -> None:
    assert loaded_message(message_to_dict(ANSWERS[2])) == ANSWERS[2]
