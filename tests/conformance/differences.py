"""Where a framework's own mechanism forces another result: what differs, why, and who shows it.

A row changes some fields of the expected result. The suite holds the run against the changed
result, and fails where a row is no longer true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .scenario import Scenario, Variant, says


@dataclass(frozen=True)
class Difference:
    """One row of the table."""

    scenario: str
    driver: str
    changes: Mapping[str, Any] | None
    """Fields of the expected result; None: the framework cannot run this at all."""
    mechanism: str
    """What in the framework forces it."""
    shown_by: str
    """The test that shows the mechanism, without us: a name in `test_mechanisms.py`."""
    only: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the variants that it is about; empty: all."""

    def about(self, scenario: Scenario, driver: str, variant: Variant) -> bool:
        """Whether the row is about this run."""
        return (
            self.scenario == scenario.name and self.driver == driver
            and all(getattr(variant, key) == value for key, value in self.only.items())
        )  # fmt: skip


ROOT = "invoke_agent clerk"
CHAT = f"{ROOT}/chat scripted-1"
UNDOING = f"{ROOT}/checkrein.rollback"
_FILTERS = "`rein.model_call` takes answers whole: filters of streams run in `rein.model_stream`"
_CUT = (
    "a stream that is cut never delivers its last chunk, the one that holds the usage: what "
    "came is counted"
)

_PLAIN = [
    Difference(
        "malformed_arguments", "plain",
        {"journal": [], "calls": 2, "spans": [ROOT, CHAT, CHAT]},
        "Python binds arguments when the function is called: what does not fit is no call",
        "test_plain_call_binds_first",
    ),
    Difference(
        "later_rejected", "plain",
        {"journal": ["pay approval_requested approval_decided"], "spans": [ROOT, CHAT, CHAT]},
        "`rein.resume` of a rejected request enters no call: it raises what the record says",
        "test_plain_resume_of_a_rejected_request",
    ),
    Difference(
        "later_beside_others", "plain",
        {
            "journal": ["note intent outcome:done",
                        "pay approval_requested approval_decided",
                        "pay approval_requested approval_decided intent outcome:done"],
            "spans": [ROOT, CHAT, CHAT, f"{ROOT}/execute_tool note", f"{ROOT}/execute_tool pay"],
        },
        "`rein.resume` of a rejected request enters no call: it raises what the record says",
        "test_plain_resume_of_a_rejected_request",
    ),
    Difference(
        "redacted_answer", "plain",
        {"models": ["scripted-1 intent outcome:done amended"]},
        _FILTERS, "test_plain_has_no_stream",
    ),
    Difference(
        "answer_blocked", "plain",
        {"models": ["scripted-1 intent outcome:done amended !Denied"]},
        _FILTERS, "test_plain_has_no_stream",
    ),
]  # fmt: skip

_NO_IDS = (
    "calls of a loop of one's own have no ids: nothing tells that a call is the one that was made "
    "before the process died; where the loop stood is its own to keep (plugin `replay`)"
)
_LANGCHAIN = [
    Difference(
        "rollback_with_siblings", "langchain",
        {
            "journal": ["collapse intent outcome:unknown !Broken needs_human",
                        "steady intent outcome:unknown !CancelledError late"],
            "spans": [f"{ROOT} !Broken", CHAT, f"{ROOT}/execute_tool collapse !Broken",
                      f"{ROOT}/execute_tool steady !CancelledError",
                      UNDOING, f"{UNDOING}/execute_tool steady.undo"],
        },
        "LangGraph cancels the running sibling tasks of one that failed; the thread of a sync "
        "tool runs on, and its late result is what is undone",
        "test_langgraph_cancels_siblings",
        {"mode": "async"},
    ),
    Difference(
        "answer_blocked", "langchain", {"tokens": 55}, _CUT,
        "test_langchain_cut_stream_tells_no_usage",
        {"streamed": True},
    ),
]  # fmt: skip

_TOLD = "CrewAI tells the model of every error that a tool raises: there is no setting to raise it"
_REACT = (
    "a ReAct tool call is text of the answer: what redacts answers has redacted its arguments "
    "before the tool's own settings are asked"
)
_THREAD = (
    "CrewAI runs a tool in a thread of its own, which cancelling the kickoff does not reach: the "
    "call comes to its end, and is undone"
)

_CREWAI = [
    Difference(
        "tool_error_raised", "crewai", None, _TOLD, "test_crewai_tells_tool_errors",
    ),
    Difference(
        "rollback_with_siblings", "crewai", None, _TOLD, "test_crewai_tells_tool_errors",
    ),
    Difference(
        "twice_on_purpose", "crewai",
        {
            "effects": ["pay ann 10"],
            "saw": ["paid 10 to ann", says("I tried reusing the same input")],
            "journal": ["pay intent outcome:done", "pay intent outcome:not_done"],
        },
        "with ReAct CrewAI answers a repeated tool call itself and runs nothing",
        "test_crewai_suppresses_a_repeated_call",
        {"style": "react"},
    ),
    Difference(
        "unknown_tool", "crewai", {"saw": ["Tool not found"]},
        "CrewAI words the answer itself, without the name",
        "test_crewai_answers_an_unknown_tool_itself",
        {"style": "native"},
    ),
    Difference(
        "unknown_tool", "crewai", {"journal": [], "calls": 2, "spans": [ROOT, CHAT, CHAT]},
        "with ReAct CrewAI looks a tool up before its hooks are called: nothing is told of a name "
        "that is none",
        "test_crewai_answers_an_unknown_tool_itself",
        {"style": "react"},
    ),
    Difference(
        "cancelled", "crewai",
        {
            "journal": ["hang intent outcome:done"],
            "spans": [f"{ROOT} !CancelledError", CHAT, f"{ROOT}/execute_tool hang",
                      UNDOING, f"{UNDOING}/execute_tool hang.undo"],
        },
        _THREAD, "test_crewai_cancelling_does_not_reach_the_tool",
    ),
    Difference(
        "redacted_result", "crewai", {"journal": ["read intent outcome:done"]}, _REACT,
        "test_crewai_react_call_is_text",
        {"style": "react"},
    ),
    Difference(
        "redacted_argument", "crewai",
        {
            "effects": ["note for [EMAIL]", "mail [EMAIL] from [EMAIL]"],
            "journal": ["note intent outcome:done", "mail intent outcome:done"],
            "models": ["scripted-1 intent outcome:done"] * 3,
        },
        _REACT, "test_crewai_react_call_is_text", {"style": "react"},
    ),
]  # fmt: skip

_RAISED = (
    "what a tool raises leaves the Agents SDK as its `UserError`, unless it is an `AgentsException`"
)
_CANCELS = (
    "the Agents SDK cancels the running siblings of a tool call that ends the run; the thread of a "
    "sync tool runs on, and its late result is what is undone"
)

_AGENTS = [
    Difference(
        "tool_error_raised", "openai_agents",
        {
            "end": "UserError",
            "spans": [f"{ROOT} !UserError", CHAT, CHAT, f"{ROOT}/execute_tool fail !Broken",
                      f"{ROOT}/execute_tool pay", UNDOING,
                      f"{UNDOING}/execute_tool pay.undo"],
        },
        _RAISED, "test_agents_wrap_tool_errors",
    ),
    Difference(
        "rollback_with_siblings", "openai_agents",
        {
            "end": "UserError",
            "journal": ["collapse intent outcome:unknown !Broken needs_human",
                        "steady intent outcome:unknown !CancelledError late"],
            "spans": [f"{ROOT} !UserError", CHAT, f"{ROOT}/execute_tool collapse !Broken",
                      f"{ROOT}/execute_tool steady !CancelledError",
                      UNDOING, f"{UNDOING}/execute_tool steady.undo"],
        },
        f"{_RAISED}; {_CANCELS}", "test_agents_cancel_siblings",
    ),
    Difference(
        "halt_with_siblings", "openai_agents",
        {
            "journal": ["signal intent outcome:done amended !Denied",
                        "steady intent outcome:unknown !CancelledError late"],
            "spans": [f"{ROOT} !Denied", CHAT, f"{ROOT}/execute_tool signal !Denied",
                      f"{ROOT}/execute_tool steady !CancelledError",
                      UNDOING, f"{UNDOING}/execute_tool steady.undo"],
        },
        _CANCELS, "test_agents_cancel_siblings",
    ),
    Difference(
        "malformed_arguments", "openai_agents", {"saw": ["Invalid JSON input for tool pay"]},
        "the Agents SDK words the answer itself, and leaves out what was wrong",
        "test_agents_do_not_say_what_is_wrong_with_arguments",
    ),
    Difference(
        "answer_blocked", "openai_agents", {"tokens": 55}, _CUT,
        "test_agents_cut_stream_tells_no_usage",
        {"streamed": True},
    ),
]  # fmt: skip

_WRAPS = "what the provider fails with is an error of OpenAI's client, by the HTTP status"
_FAILED = "intent outcome:unknown !InternalServerError"

_OPENAI = [
    # The loop is the one of the reference.
    *(
        replace(row, driver="openai")
        for row in _PLAIN
        if row.scenario in ("malformed_arguments", "later_rejected", "later_beside_others")
    ),
    Difference(
        "model_fails", "openai",
        {
            "models": ["scripted-1 intent outcome:done"] * 2 + [f"scripted-1 {_FAILED}"],
            "end": "InternalServerError",
            "spans": [f"{ROOT} !InternalServerError", CHAT, CHAT, f"{CHAT} !InternalServerError",
                      *[f"{ROOT}/execute_tool note"] * 2, UNDOING],
        },
        _WRAPS, "test_openai_names_failures_by_their_status",
    ),
    Difference(
        "model_retried", "openai",
        {"models": ["scripted-1 intent outcome:done", f"scripted-1 {_FAILED} intent outcome:done"]},
        _WRAPS, "test_openai_names_failures_by_their_status",
    ),
    Difference(
        "answer_blocked", "openai", {"tokens": 41}, _CUT, "test_openai_cut_stream_tells_no_usage",
        {"streamed": True},
    ),
]  # fmt: skip

_KILLED = [
    Difference(scenario, driver, None, _NO_IDS, "test_plain_calls_have_no_ids")
    for driver in ("plain", "openai")
    for scenario in ("killed_between_calls", "killed_in_a_call")
]

DIFFERENCES: Sequence[Difference] = [*_PLAIN, *_LANGCHAIN, *_CREWAI, *_AGENTS, *_OPENAI, *_KILLED]


def of(scenario: Scenario, driver: str, variant: Variant) -> Difference | None:
    """The row about a run, if there is one."""
    for row in DIFFERENCES:
        if row.about(scenario, driver, variant):
            return row
    return None
