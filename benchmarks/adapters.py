"""What the framework adapters cost, without plugins, in a store in memory.

    python3 benchmarks/adapters.py [langchain | crewai | openai_agents | openai ...]

Measures every framework that is installed here. Two questions for each:

* the adapter's own function on a stub handler: supervised, less the stub, less `rein.call`;
* a whole agent turn (two model calls, one tool call, scripted model), against the same agent
  with hooks that do nothing.

CPU time, medians over interleaved rounds; ratios are taken within a round.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / part) for part in ("benchmarks", "core", "plugins", "integrations")]
os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")
os.environ.setdefault("OTEL_SDK_DISABLED", "true")

from _bench import Case, machine, measure, table  # noqa: E402 - found by the lines above

from checkrein import Rein  # noqa: E402

OWN_GOAL, TURN_GOAL = 50.0, 1.10
_ids = itertools.count(1)


def times(step: Callable[[], object]) -> Callable[[int], None]:
    """`step()`, n times."""

    def run(count: int) -> None:
        for _ in range(count):
            step()

    return run


def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@contextmanager
def langchain(rein: Rein) -> Iterator[list[Case]]:
    """[supervised tool call, stub, the same async, its stub, no-op turn, supervised turn]."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.tools import BaseTool
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from checkrein_integrations.langchain import CheckreinMiddleware
    from checkrein_integrations.testing.langchain import ScriptedChatModel, ai, call

    class Pay(BaseTool):
        name: str = "pay"
        description: str = "Pay an amount."

        def _run(self, amount: int) -> str:
            return pay(amount)

        async def _arun(self, amount: int) -> str:
            return pay(amount)

    class NoOp(AgentMiddleware):
        def before_agent(self, state: Any, runtime: Any) -> None:
            return None

        def after_agent(self, state: Any, runtime: Any) -> None:
            return None

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request)

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(request)

    tool, ours = Pay(), CheckreinMiddleware(rein)

    def requests(count: int) -> list[Any]:
        made = []
        for _ in range(count):
            asked = call("pay", f"c{next(_ids)}", amount=1)
            said = AIMessage("", tool_calls=[asked], id=f"m{next(_ids)}")
            state = {"messages": [HumanMessage("go"), said]}
            made.append(ToolCallRequest(tool_call=asked, tool=tool, state=state, runtime=None))
        return made

    def answered(request: Any, value: str) -> Any:
        return ToolMessage(value, tool_call_id=request.tool_call["id"], name="pay")

    def stub(request: Any) -> Any:
        return answered(request, request.tool._run(**request.tool_call["args"]))

    async def astub(request: Any) -> Any:
        return answered(request, await request.tool._arun(**request.tool_call["args"]))

    def on_stub(handle: Callable[[Any], Any]) -> Callable[[int], None]:
        # Requests are made outside the clock: the framework makes them.
        ready = iter(requests(400_000 // 100))

        def run(count: int) -> None:
            for request in itertools.islice(ready, count):
                handle(request)

        return run

    def on_astub(handle: Callable[[Any], Any]) -> Callable[[int], None]:
        ready = iter(requests(400_000 // 100))

        def run(count: int) -> None:
            async def all() -> None:
                for request in itertools.islice(ready, count):
                    await handle(request)

            asyncio.run(all())

        return run

    def turn(*middleware: Any) -> Callable[[], object]:
        model = ScriptedChatModel()
        agent = create_agent(model, [tool], middleware=list(middleware))

        def once() -> object:
            model.script.extend([ai("", call("pay", amount=1)), ai("done")])
            model.seen.clear()
            return agent.invoke({"messages": [("user", "go")]})

        return once

    with rein.session():
        yield [
            Case("LangChain: tool call", on_stub(lambda r: ours.wrap_tool_call(r, stub)), 200),
            Case("LangChain: its stub", on_stub(stub), 200),
            Case("LangChain: async tool call",
                 on_astub(lambda r: ours.awrap_tool_call(r, astub)), 200),
            Case("LangChain: its stub, async", on_astub(astub), 200),
            Case("LangChain: turn, no-op middleware", times(turn(NoOp())), 20),
            Case("LangChain: turn, supervised", times(turn(CheckreinMiddleware(rein))), 20),
        ]  # fmt: skip


@contextmanager
def crewai(rein: Rein) -> Iterator[list[Case]]:
    """[supervised tool call, stub, no-op turn, supervised turn]."""
    from crewai import Agent, Crew, Task
    from crewai.hooks import dispatch  # noqa: F401 - the module must be loaded for the line below
    from crewai.hooks.dispatch import InterceptionPoint, scoped_hooks
    from crewai.hooks.tool_hooks import ToolCallHookContext
    from crewai.tools import tool as make_tool

    from checkrein_integrations.crewai import supervise
    from checkrein_integrations.crewai.framework import outer_hooks
    from checkrein_integrations.testing.crewai import ScriptedLLM, call

    points = ("EXECUTION_START", "PRE_TOOL_CALL", "POST_TOOL_CALL", "PRE_MODEL_CALL")
    bare = {getattr(InterceptionPoint, name): [lambda context: None] for name in points}
    tool = make_tool("pay")(pay)
    task = Task(description="do it", expected_output="a word")

    def stub_call(before: Any, after: Any, structured: Any) -> Callable[[], object]:
        def once() -> object:
            given = {"amount": 1}
            context = ToolCallHookContext("pay", given, structured, None, task)
            before(context)
            value = structured._original_tool.func(**given)
            context.tool_result = context.raw_tool_result = value
            after(context)
            return value

        return once

    def nothing(_: Any) -> None:
        return None

    def turn(supervised: bool) -> Callable[[], object]:
        llm = ScriptedLLM()
        agent = Agent(role="clerk", goal="pay", backstory="-", llm=llm, tools=[tool])
        crew = Crew(agents=[agent], tasks=[Task(description="do it", expected_output="a word",
                                               agent=agent)])  # fmt: skip

        def once() -> object:
            llm.script.extend([[call("pay", amount=1)], "done"])
            llm.seen.clear()
            with supervise(rein) if supervised else scoped_hooks(bare):
                return crew.kickoff()

        return once

    structured = tool.to_structured_tool()
    other = make_tool("pay")(pay).to_structured_tool()
    with supervise(rein):
        hooks = outer_hooks()
        before = hooks[InterceptionPoint.PRE_TOOL_CALL][-1]
        after = hooks[InterceptionPoint.POST_TOOL_CALL][-1]
        cases = [
            Case("CrewAI: tool call", times(stub_call(before, after, structured)), 300),
            Case("CrewAI: its stub", times(stub_call(nothing, nothing, other)), 300),
        ]
        measure(cases, 1)  # the tool is changed at its first call
        for case in cases:
            case.times.clear()
        yield [
            *cases,
            Case("CrewAI: turn, no-op hooks", times(turn(False)), 5),
            Case("CrewAI: turn, supervised", times(turn(True)), 5),
        ]


@contextmanager
def openai_agents(rein: Rein) -> Iterator[list[Case]]:
    """[supervised tool call, stub, plain turn, supervised turn]."""
    import json

    from agents import Agent, RunConfig, RunHooks, Runner, function_tool, set_tracing_disabled
    from agents.tool_context import ToolContext

    from checkrein_integrations.openai_agents import run, supervise_agent
    from checkrein_integrations.testing.openai_agents import ScriptedModel, ask, call

    set_tracing_disabled(True)
    tool = function_tool(pay)

    async def invoke(_: Any, arguments: str) -> str:
        return pay(**json.loads(arguments))

    tool.on_invoke_tool = invoke
    plain = Agent(name="billing", model=ScriptedModel([]), tools=[tool])
    ours = supervise_agent(rein, plain)

    def on_stub(tool: Any) -> Callable[[int], None]:
        def run(count: int) -> None:
            async def all() -> None:
                for _ in range(count):
                    id = f"c{next(_ids)}"
                    asked = call("pay", id, amount=1)
                    context = ToolContext(
                        context=None, tool_name="pay", tool_call_id=id, tool_call=asked,
                        tool_arguments=asked.arguments, agent=plain, run_config=RunConfig(),
                    )  # fmt: skip
                    await tool.on_invoke_tool(context, asked.arguments)

            asyncio.run(all())

        return run

    def turn(
        entry: Callable[[Any], Any], ready: Callable[[Any], Any] = lambda agent: agent
    ) -> Callable[[int], None]:
        model = ScriptedModel([])
        agent = ready(Agent(name="billing", model=model, tools=[tool]))

        def run(count: int) -> None:
            async def all() -> None:
                for _ in range(count):
                    model.script.extend([ask(call("pay", amount=1)), "done"])
                    await entry(agent)

            asyncio.run(all())

        return run

    with rein.session():
        yield [
            Case("Agents SDK: tool call", on_stub(ours.tools[0]), 200),
            Case("Agents SDK: its stub", on_stub(tool), 200),
            Case("Agents SDK: turn, no-op hooks",
                 turn(lambda agent: Runner.run(agent, "go", hooks=RunHooks())), 20),
            Case("Agents SDK: turn, supervised",
                 turn(lambda agent: run(rein, agent, "go"), lambda a: supervise_agent(rein, a)),
                 20),
        ]  # fmt: skip


@contextmanager
def openai(rein: Rein) -> Iterator[list[Case]]:
    """[supervised call, the same by `rein.model_call`, both streamed, plain and supervised turn].

    A turn is two chat completions and one tool call in a loop of one's own, over a transport
    that answers at once.
    """
    import importlib
    import json

    from openai import OpenAI
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    from checkrein.testing import Reply, ToolCall
    from checkrein.testing._chat_answers import chunks, completion
    from checkrein_integrations.openai import supervise_client

    hello: Any = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "go"}]}
    asking = completion(1, hello, Reply(None, [ToolCall("pay", {"amount": 1}, "c1")]))
    done = completion(2, hello, Reply("done"))
    whole = ChatCompletion.construct(**done)
    pieces = [ChatCompletionChunk.construct(**c) for c in chunks(2, hello, Reply("done"))]

    class Pieces:
        response = None

        def __iter__(self) -> Iterator[Any]:
            return iter(pieces)

        def close(self) -> None: ...

    class Stub(OpenAI):
        def request(self, cast_to: Any, options: Any, **how: Any) -> Any:
            return Pieces() if how.get("stream") else whole

    stub = Stub(base_url="http://127.0.0.1:9/v1", api_key="x")
    ours = supervise_client(rein, stub)

    def ask(client: Any) -> Callable[[], object]:
        create = client.chat.completions.create
        return lambda: create(**hello)

    def stream(client: Any) -> Callable[[], object]:
        create = client.chat.completions.create
        return lambda: list(create(**hello, stream=True))

    go = {"role": "user", "parts": [{"type": "text", "content": "go"}]}
    shape: Any = {"model": "gpt-4o-mini", "messages": [go]}
    said = {"role": "assistant", "parts": [{"type": "text", "content": "done"}]}

    def told(**_: Any) -> Any:
        stub.chat.completions.create(**hello)
        return said

    def streamed(**_: Any) -> Any:
        return stub.chat.completions.create(**hello, stream=True)

    plain = OpenAI(base_url="http://127.0.0.1:9/v1", api_key="x")
    roots = [cls.__module__.partition(".")[0] for cls in type(plain._client).__mro__]
    http = importlib.import_module(next(r for r in roots if r.startswith("httpx")))

    def answer(request: Any) -> Any:
        asked = len(json.loads(request.content)["messages"]) == 1
        return http.Response(200, json=asking if asked else done)

    over = OpenAI(
        base_url="http://127.0.0.1:9/v1", api_key="x",
        http_client=http.Client(transport=http.MockTransport(answer)),
    )  # fmt: skip

    def turn(client: Any, run: Callable[..., str]) -> Callable[[], object]:
        create = client.chat.completions.create

        def once() -> object:
            messages = list(hello["messages"])
            said = create(model="gpt-4o-mini", messages=messages).choices[0].message
            for call in said.tool_calls:
                result = run(pay, **json.loads(call.function.arguments))
                messages += [said, {"role": "tool", "tool_call_id": call.id, "content": result}]
            return create(model="gpt-4o-mini", messages=messages)

        return once

    with rein.session():
        yield [
            Case("OpenAI client: model call", times(ask(ours)), 200),
            Case("OpenAI client: the same by rein.model_call",
                 times(lambda: rein.model_call(told, **shape)), 200),
            Case("OpenAI client: streamed call", times(stream(ours)), 100),
            Case("OpenAI client: the same by rein.model_stream",
                 times(lambda: list(rein.model_stream(streamed, **shape))), 100),
            Case("OpenAI client: turn, plain", times(turn(over, lambda fn, **k: fn(**k))), 20),
            Case("OpenAI client: turn, supervised",
                 times(turn(supervise_client(rein, over), rein.call)), 20),
        ]  # fmt: skip


FRAMEWORKS: dict[str, Callable[[Rein], Any]] = {
    "langchain": langchain,
    "crewai": crewai,
    "openai_agents": openai_agents,
    "openai": openai,
}


def within(name: str, values: list[float], goal: float, unit: str) -> str:
    """One line: what was reached, and what was aimed at."""
    value = statistics.median(values)
    return f"| {name} | {value:.2f}{unit} | {goal:g}{unit} | {'yes' if value < goal else 'NO'} |"


def report(name: str, rounds: int) -> list[str]:
    """Measure one framework; the lines about it."""
    rein = Rein(store="memory:")
    with FRAMEWORKS[name](rein) as cases:
        rein.call(pay, amount=1)
        base = Case("rein.call", times(lambda: rein.call(pay, amount=1)), 500)
        measure([base, *cases], rounds)
    rein.close()
    lines = [*table([base, *cases]), "", "| question | measured | goal | reached |",
             "| --- | ---: | ---: | --- |"]  # fmt: skip
    *stubs, bare, supervised = cases
    for ours, stub in zip(stubs[::2], stubs[1::2], strict=True):
        # What `rein.model_call` does is in the stub of a client's model call already.
        less = [0.0] * rounds if name == "openai" else base.times
        own = [a - b - c for a, b, c in zip(ours.times, stub.times, less, strict=True)]
        lines.append(within(f"{ours.name}, own function", own, OWN_GOAL, " us"))
    ratios = [a / b for a, b in zip(supervised.times, bare.times, strict=True)]
    lines.append(within(f"{supervised.name}, times no-op", ratios, TURN_GOAL, ""))
    return lines


def main(names: list[str]) -> None:
    """Measure what is asked for, or what is installed."""
    from importlib.util import find_spec

    modules = {"langchain": "langchain", "crewai": "crewai", "openai_agents": "agents",
               "openai": "openai"}  # fmt: skip
    wanted = names or [n for n in FRAMEWORKS if find_spec(modules[n]) is not None]
    print(f"# Adapters\n\n> {machine()}\n")
    for name in wanted:
        print("\n".join(report(name, 15)), end="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
