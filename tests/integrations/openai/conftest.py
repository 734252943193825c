"""Servers, clients and roads that the tests of supervised OpenAI clients share."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

pytest.importorskip("openai")

from openai import AsyncOpenAI, OpenAI

from checkrein import Plugin, Rein
from checkrein.testing import OpenAIServer
from checkrein_integrations.openai import supervise_client

MODEL = "gpt-4o-mini"


class Rules(Plugin):
    """`pre_call` and `post_call` of model calls, from functions."""

    def __init__(self, pre: Any = None, post: Any = None) -> None:
        self._pre = pre
        self._post = post

    def pre_call(self, call: Any) -> Any:
        return self._pre(call) if self._pre is not None and call.kind == "model" else None

    def post_call(self, call: Any, outcome: Any) -> Any:
        return self._post(call, outcome) if self._post and call.kind == "model" else None


class Watch(Plugin):
    """Keeps what it sees, and decides nothing."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.values: list[Any] = []

    def pre_call(self, call: Any) -> None:
        self.calls.append(call)

    def post_call(self, call: Any, outcome: Any) -> None:
        self.values.append(outcome.value)


@pytest.fixture
def rein() -> Any:
    """A function that makes a Rein and closes it at the end."""
    made: list[Rein] = []

    def make(*plugins: Any, **settings: Any) -> Rein:
        made.append(Rein(plugins=list(plugins), **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def server() -> Any:
    with OpenAIServer() as started:
        yield started


class Said:
    """What the user of a client got."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: list[tuple[str, Any]] = []
        self.events: list[Any] = []
        self.answer: Any = None
        self.error: BaseException | None = None

    @property
    def kinds(self) -> list[str]:
        return [str(getattr(event, "type", None)) for event in self.events]


class Road:
    """One way of asking: (chat | responses), (sync | async), (plain | streamed)."""

    def __init__(self, form: str, mode: str, *, streamed: bool) -> None:
        self.form = form
        self.mode = mode
        self.streamed = streamed

    def client(self, rein: Rein, server: Any, **settings: Any) -> Any:
        kind: Any = OpenAI if self.mode == "sync" else AsyncOpenAI
        plain = kind(base_url=server.url, api_key="none", max_retries=0)
        return supervise_client(rein, plain, **settings)

    def request(self, given: Any = "go", system: str | None = None, **more: Any) -> dict[str, Any]:
        """A request in the road's form."""
        body: dict[str, Any] = {"model": MODEL, **more}
        if self.form == "responses":
            body["input"] = given
            if system is not None:
                body["instructions"] = system
        else:
            messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
            lead = [{"role": "system", "content": system}] if system is not None else []
            body["messages"] = [*lead, *messages]
        if self.streamed:
            body["stream"] = True
        return body

    def create(self, client: Any) -> Any:
        return (
            client.responses.create
            if self.form == "responses"
            else (client.chat.completions.create)
        )

    def ask(self, rein: Rein, server: Any, given: Any = "go", **more: Any) -> Said:
        """Ask in a new session; errors are raised."""
        settings = {k: more.pop(k) for k in ("ungated", "streams", "models") if k in more}
        (said,) = self.went(rein, server, [self.request(given, **more)], **settings)
        if said.error is not None:
            raise said.error
        return said

    def went(
        self, rein: Rein, server: Any, bodies: list[dict[str, Any]], **settings: Any
    ) -> list[Said]:
        """Ask several times in a new session; what came of each, errors included."""
        said = [Said() for _ in bodies]
        if self.mode == "sync":
            with self.client(rein, server, **settings) as client, rein.session(agent="clerk"):
                for each, body in zip(said, bodies, strict=True):
                    try:
                        self._one(client, each, body)
                    except Exception as error:
                        each.error = error
                for other in settings.get("models", {}).values():
                    other.close()
            return said

        async def go() -> None:
            async with self.client(rein, server, **settings) as client, rein.session(agent="clerk"):
                for each, body in zip(said, bodies, strict=True):
                    try:
                        await self._aone(client, each, body)
                    except Exception as error:
                        each.error = error
                for other in settings.get("models", {}).values():
                    await other.close()

        asyncio.run(go())
        return said

    def _one(self, client: Any, said: Said, body: dict[str, Any]) -> None:
        answer = self.create(client)(**body)
        if not self.streamed:
            self._whole(said, answer)
            return
        for event in answer:
            self._piece(said, event)

    async def _aone(self, client: Any, said: Said, body: dict[str, Any]) -> None:
        answer = await self.create(client)(**body)
        if not self.streamed:
            self._whole(said, answer)
            return
        async for event in answer:
            self._piece(said, event)

    def _whole(self, said: Said, answer: Any) -> None:
        said.answer = answer
        if self.form == "responses":
            said.text = answer.output_text
            said.calls = [
                (item.name, _loaded(item.arguments))
                for item in answer.output
                if item.type == "function_call"
            ]
            return
        message = answer.choices[0].message
        said.text = message.content or ""
        said.calls = [
            (c.function.name, _loaded(c.function.arguments)) for c in message.tool_calls or ()
        ]

    def _piece(self, said: Said, event: Any) -> None:
        said.events.append(event)
        if self.form == "responses":
            if event.type == "response.output_text.delta":
                said.text += event.delta
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                said.calls.append((event.item.name, _loaded(event.item.arguments)))
            elif event.type == "response.completed":
                said.answer = event.response
            return
        for choice in event.choices:
            said.text += choice.delta.content or ""
            for piece in choice.delta.tool_calls or ():
                said.calls.append((piece.function.name, _loaded(piece.function.arguments)))


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


ROADS = [
    Road(form, mode, streamed=streamed)
    for form, mode, streamed in itertools.product(
        ("chat", "responses"), ("sync", "async"), (False, True)
    )
]


def named(road: Road) -> str:
    return f"{road.form}-{road.mode}-{'streamed' if road.streamed else 'plain'}"


@pytest.fixture(params=ROADS, ids=named)
def road(request: pytest.FixtureRequest) -> Road:
    return request.param


@pytest.fixture(params=[r for r in ROADS if r.streamed], ids=named)
def streamed(request: pytest.FixtureRequest) -> Road:
    return request.param


@pytest.fixture(params=[r for r in ROADS if not r.streamed], ids=named)
def plain(request: pytest.FixtureRequest) -> Road:
    return request.param


def closed(client: Any, ask: Any) -> Any:
    """What a client of either kind answers; it is closed afterwards."""
    if isinstance(client, OpenAI):
        with client:
            return ask()

    async def go() -> Any:
        async with client:
            return await ask()

    return asyncio.run(go())


def kinds(rein: Rein) -> list[str]:
    """Kinds of all events of calls, oldest first."""
    events = rein.store.events(limit=1000)
    return [e.kind for e in events if not e.kind.startswith("session")]


def views(rein: Rein, kind: str) -> list[Any]:
    return [event.view for event in rein.store.events(kinds=(kind,), limit=1000)]


def spent(rein: Rein) -> Any:
    """Spend of the one session."""
    (row,) = rein.store.sessions().rows
    return rein.read(row.id).spend()
