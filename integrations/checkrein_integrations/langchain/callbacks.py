"""`CheckreinCallbackHandler`: supervision through `config={"callbacks": [...]}`.

A callback can let a call pass or stop it. It enforces Deny, halt, limits and approvals that
wait; what would change a call or its result it cannot carry, and refuses at construction.
It reaches what middleware does not: sub-agents, chains, models used by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import LLMResult

from checkrein.call import ToolInfo, Usage
from checkrein.engine import Entry
from checkrein.errors import CheckreinError, ConfigError, Denied
from checkrein.tools import Tool
from checkrein_integrations.langchain import messages as shape
from checkrein_integrations.langchain.answers import usage_of
from checkrein_integrations.langchain.binding import binder_of
from checkrein_integrations.langchain.execution import NothingRan, covered
from checkrein_integrations.langchain.framework import check
from checkrein_integrations.langchain.signals import SIGNALS, ending
from checkrein_integrations.langchain.steps import Step

if TYPE_CHECKING:
    from checkrein import Rein


class CheckreinCallbackHandler(BaseCallbackHandler):
    """Enforces and records every tool call and model call that its config reaches.

    It is sync on purpose: LangChain swallows what an async handler raises on a sync tool. A
    timeout that is declared for a tool is not enforced, because the tool runs elsewhere.

    Raises `ConfigError`: plugins that change calls or results or filter streams, and
    `wait="suspend"`; use `CheckreinMiddleware` for those.
    """

    raise_error = True

    def __init__(self, rein: Rein) -> None:
        super().__init__()
        check()
        _refuse(rein)
        self.rein = rein
        self._binder = binder_of(rein)
        self._steps: dict[UUID, Step] = {}
        self._calls: dict[UUID, str] = {}
        self._models: dict[str, Tool] = {}
        self._used: dict[UUID, Usage | None] = {}

    # -- tools

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Decide, and commit the intent. Raises what stops the tool."""
        name = str(serialized.get("name") or kwargs.get("name") or "tool")
        if covered(self.rein, name):
            return
        tool = self._binder.named(name, str(serialized.get("description") or ""))
        arguments = inputs
        if arguments is None:
            arguments = {(tool.parameters or ("input",))[0]: input_str}
        self._begin(
            run_id,
            Entry(
                tool=tool,
                arguments=tool.complete(arguments),
                session=self.rein.current_session(),
                parent=self._parent(parent_run_id),
                signals=SIGNALS,
            ),
        )

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Commit the outcome."""
        step = self._steps.pop(run_id, None)
        self._calls.pop(run_id, None)
        if step is not None:
            self._told(lambda: step.end(getattr(output, "content", output)))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Commit that the tool raised."""
        self._error(run_id, error)

    # -- retrievers

    def on_retriever_start(
        self,
        serialized: dict[str, Any],
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """As `on_tool_start`: a retriever is a tool that reads, with the argument `query`."""
        name = str(kwargs.get("name") or (serialized or {}).get("name") or "retriever")
        tool = self._binder.named(name, "", effect="read")
        self._begin(
            run_id,
            Entry(
                tool=tool,
                arguments={"query": query},
                session=self.rein.current_session(),
                parent=self._parent(parent_run_id),
                signals=SIGNALS,
            ),
        )

    def on_retriever_end(self, documents: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Commit the outcome: the texts that were found."""
        step = self._steps.pop(run_id, None)
        self._calls.pop(run_id, None)
        if step is not None:
            self._told(lambda: step.end([str(d.page_content) for d in documents]))

    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Commit that the retriever raised."""
        self._error(run_id, error)

    # -- models

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Decide, and commit the intent. Raises what stops the model call."""
        told = [shape.told(message) for message in messages[0]]
        system = [part for m in told if m["role"] == "system" for part in m["parts"]]
        rest = [m for m in told if m["role"] != "system"]
        self._model(run_id, parent_run_id, serialized, metadata, kwargs, system or None, rest)

    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """As `on_chat_model_start`, for models that complete text."""
        told = [{"role": "user", "parts": shape.block_parts(prompt)} for prompt in prompts]
        self._model(run_id, parent_run_id, serialized, metadata, kwargs, None, told)

    def _model(
        self,
        run_id: UUID,
        parent: UUID | None,
        serialized: dict[str, Any] | None,
        metadata: dict[str, Any] | None,
        kwargs: dict[str, Any],
        system: Any,
        messages: list[Any],
    ) -> None:
        if covered(self.rein, "", "model"):
            return
        asked = kwargs.get("invocation_params") or {}
        name = str(
            asked.get("model") or asked.get("model_name")
            or (metadata or {}).get("ls_model_name")
            or (serialized or {}).get("name") or "model"
        )  # fmt: skip
        tool = self._models.get(name)
        if tool is None:
            info = ToolInfo(name, effect="read")
            tool = self._models[name] = Tool(info, None, no_effect_on=(NothingRan,))
        tools = [t if isinstance(t, dict) else {"name": str(t)} for t in asked.get("tools") or ()]
        self._begin(
            run_id,
            Entry(
                tool=tool,
                arguments={"system": system, "messages": messages, "tools": tools},
                session=self.rein.current_session(),
                kind="model",
                name=name,
                parent=self._parent(parent),
                signals=SIGNALS,
                usage=lambda value: self._used.get(run_id),
            ),
        )

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Commit the outcome, with what it used."""
        step = self._steps.pop(run_id, None)
        self._calls.pop(run_id, None)
        if step is not None:
            value = _answer(response)
            message = value if isinstance(value, AIMessage) else None
            self._used[run_id] = None if message is None else usage_of(message)
            try:
                self._told(lambda: step.end(shape.told(message) if message is not None else value))
            finally:
                self._used.pop(run_id, None)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Commit that the model raised."""
        self._error(run_id, error)

    # -- both

    def _parent(self, run_id: UUID | None) -> str:
        return self._calls.get(run_id, "") if run_id is not None else ""

    def _begin(self, run_id: UUID, entry: Entry) -> None:
        new: Callable[[], str] = self.rein.ids.new
        entry.call_id = new()
        step = Step(self.rein, entry)
        self._told(step.begin)
        self._steps[run_id] = step
        self._calls[run_id] = entry.call_id

    def _error(self, run_id: UUID, error: BaseException) -> None:
        step = self._steps.pop(run_id, None)
        self._calls.pop(run_id, None)
        if step is not None:
            self._told(lambda: step.fail(error))

    def _told(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Denied as error:
            raise ending(error) if error.halt else error  # noqa: B904 - the same error
        except CheckreinError as error:
            raise ending(error)  # noqa: B904 - the same error


def _refuse(rein: Rein) -> None:
    """Raise `ConfigError` for what a callback cannot carry."""
    unfit = [impl.plugin for impl in rein.plugins.chains["open_stream"]]
    unfit += [
        name
        for name, plugin in rein.plugins
        if getattr(plugin, "rewrites", False) and name not in unfit
    ]
    if unfit:
        raise ConfigError(
            f"{', '.join(unfit)}: these plugins change calls or results, and a callback handler "
            "can only let a call pass or stop it; use CheckreinMiddleware"
        )
    if rein.wait == "suspend":
        raise ConfigError(
            "wait='suspend': a callback handler cannot pause a run; use CheckreinMiddleware with "
            "a checkpointer, or wait='auto'"
        )


def _answer(response: LLMResult) -> Any:
    """The message, or the text, of a model's answer."""
    first = response.generations[0][0] if response.generations and response.generations[0] else None
    return getattr(first, "message", None) or getattr(first, "text", None)
