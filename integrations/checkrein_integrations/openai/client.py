"""`supervise_client`: a client whose every request goes through the hooks of a Rein.

All resources of a client send their requests through one method of it, `request`. That method
is the gate: chat completions and responses are model calls, in whatever way they are asked for
(`create`, `parse`, `stream`, `post`); the list of models is free; everything else is refused
unless it is allowed, and then recorded.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from checkrein.call import ToolInfo
from checkrein.engine import Entry
from checkrein.entry import CURRENT, in_model_call
from checkrein.errors import ConfigError
from checkrein.tools import Tool
from checkrein_integrations._shared.retracting import Streams, check_streams
from checkrein_integrations.openai.calls import FORMS, ModelJob, Request
from checkrein_integrations.openai.framework import UNBILLED, AsyncOpenAI, OpenAI, check
from checkrein_integrations.openai.streams import astreamed, streamed

if TYPE_CHECKING:
    from checkrein import Rein
    from checkrein.call import Call
    from checkrein.session import Session

C = TypeVar("C", bound=OpenAI | AsyncOpenAI)
Ungated = Literal["refuse", "allow"]

_CONNECTS = ("realtime", "live", "responses", "beta")
"""Resources of a client that may hold a connection of their own, past `request`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How one client is supervised."""

    ungated: Ungated = "refuse"
    streams: Streams = "auto"
    models: Mapping[str, Any] = field(default_factory=dict)

    def check(self, client: Any) -> None:
        """Raise `ConfigError` for settings that cannot be used."""
        if self.ungated not in ("refuse", "allow"):
            raise ConfigError(f"ungated: {self.ungated!r} is neither 'refuse' nor 'allow'")
        check_streams(self.streams)
        kind = OpenAI if isinstance(client, OpenAI) else AsyncOpenAI
        for name, other in self.models.items():
            if not isinstance(other, kind):
                raise ConfigError(f"models: {name!r} is a {type(other).__name__}, not a client "
                                  f"like the supervised one ({kind.__name__})")  # fmt: skip


def supervise_client(
    rein: Rein,
    client: C,
    *,
    ungated: Ungated = "refuse",
    streams: Streams = "auto",
    models: Mapping[str, Any] | None = None,
) -> C:
    """A copy of an `OpenAI` or `AsyncOpenAI` client whose requests go through `rein`.

    Args:
        rein: The Rein whose plugins decide.
        client: The client; it is left as it is. The copy shares its connections.
        ungated: What to do about what nothing here can stop or look at: tools that the provider
            runs (web search, file search, code interpreter, MCP servers ...), `background=True`,
            raw responses, and all other endpoints. `refuse` them where they are asked for, or
            `allow` and mark them in the journal.
        streams: `auto` shows what the plugins' stream filters let through, and nothing of an
            answer that a plugin wants to see whole; `hold` never shows anything before the
            whole answer is judged; `pass` shows it and takes it back if it is blocked, by an
            `AnswerRetracted` event (of chat completions, a `RetractedChunk`).
        models: Clients by the name of the model, for plugins that choose another one.

    Raises `ConfigError` for what is no such client, one of another Rein, and openai of a version
    that is not known.
    """
    check()
    if not isinstance(client, (OpenAI, AsyncOpenAI)):
        raise ConfigError(f"{type(client).__name__} is neither an OpenAI nor an AsyncOpenAI client")
    owner = getattr(type(client), "checkrein_supervision", None)
    if isinstance(owner, Supervision):
        if owner.rein is rein:
            return client
        raise ConfigError("this client is supervised by another Rein already")
    settings = Settings(ungated, streams, dict(models or {}))
    settings.check(client)
    made: Any = copy.copy(client)
    kind: Any = type(client)
    for name in list(vars(made)):
        if isinstance(getattr(kind, name, None), functools.cached_property):
            # A resource of the given client: it would send past us.
            del vars(made)[name]
    object.__setattr__(made, "__class__", Supervision(rein, settings).kind(kind))
    return cast("C", made)


class Supervision:
    """How a client, and those made of it by `with_options`, are supervised."""

    def __init__(self, rein: Rein, settings: Settings) -> None:
        self.rein = rein
        self.settings = settings

    def kind(self, cls: Any) -> Any:
        """The class of a supervised client."""
        supervision = self
        inner = cls.request

        def request(
            self: Any, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None
        ) -> Any:
            send = functools.partial(inner, self)
            return supervision.request(Request(send, cast_to, options, stream, stream_cls))

        async def arequest(
            self: Any, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None
        ) -> Any:
            send = functools.partial(inner, self)
            given = Request(send, cast_to, options, stream, stream_cls)
            return await supervision.arequest(given)

        names: dict[str, Any] = {
            "checkrein_supervision": supervision,
            "request": arequest if issubclass(cls, AsyncOpenAI) else request,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
        }
        for name in _CONNECTS:
            resource = getattr(cls, name, None)
            if isinstance(resource, functools.cached_property):
                names[name] = functools.cached_property(_closed(resource.func, name))
        return type(cls.__name__, (cls,), names)

    # -- requests

    def request(self, request: Request) -> Any:
        """A request of a sync client."""
        session = self._session(request)
        if session is None:
            return self._plain(request)
        if self._is_model(request):
            job = ModelJob(self, session, request)
            return streamed(job) if request.stream and not request.raw else job.run()

        def run(_: Call, exact: dict[str, Any]) -> Any:
            return self._sent(request, exact)

        return self.rein.enter(self._other_entry(session, request, run, is_async=False)).value

    async def arequest(self, request: Request) -> Any:
        """A request of an async client."""
        session = self._session(request)
        if session is None:
            return await self._plain(request)
        if self._is_model(request):
            job = ModelJob(self, session, request)
            return await (astreamed(job) if request.stream and not request.raw else job.arun())

        async def run(_: Call, exact: dict[str, Any]) -> Any:
            return await self._sent(request, exact)

        entry = self._other_entry(session, request, run, is_async=True)
        return (await self.rein.aenter(entry)).value

    def _session(self, request: Request) -> Session | None:
        """The session of a request; None where it is free, or judged further out."""
        if request.options.method.lower() == "get" and request.path.startswith("/models"):
            return None
        session = self.rein.current_session()
        if CURRENT.get() is not None and in_model_call(session.id):
            return None
        return session

    def _is_model(self, request: Request) -> bool:
        return request.options.method.lower() == "post" and request.path in FORMS

    def _plain(self, request: Request) -> Any:
        return request.send(
            request.cast_to, request.options, stream=request.stream, stream_cls=request.stream_cls
        )

    # -- what cannot be gated

    def allowed(self, outside: Sequence[str]) -> dict[str, str]:
        """Labels for what is let through unseen. Raises `ConfigError` where it is refused."""
        if not outside:
            return {}
        names = ", ".join(outside)
        if self.settings.ungated == "refuse":
            raise ConfigError(
                f"{names}: nothing here can stop or look at what the provider does by itself; "
                "leave it out, or accept that with supervise_client(..., ungated='allow')"
            )
        return {"ungated": names}

    def _other_entry(
        self, session: Session, request: Request, run: Callable[..., Any], *, is_async: bool
    ) -> Entry:
        """The entry of a request to another endpoint: a tool call, named by its resource."""
        method = request.options.method.upper()
        labels = self.allowed([f"{method} {request.path}"])
        name = "openai." + request.path.strip("/").partition("/")[0]
        effect: Any = "read" if method == "GET" else "egress"
        return Entry(
            Tool(ToolInfo(name, effect=effect), None, no_effect_on=UNBILLED),
            {"method": method, "path": request.path, "body": request.body() or None},
            session,
            run=run,
            is_async=is_async,
            labels=labels,
        )

    def _sent(self, request: Request, exact: Mapping[str, Any]) -> Any:
        options = request.options
        if request.body():
            options = options.model_copy(update={"json_data": exact["body"], "extra_json": None})
        return request.send(
            request.cast_to, options, stream=request.stream, stream_cls=request.stream_cls
        )

    def other(self, name: str, send: Callable[..., Any]) -> Callable[..., Any]:
        """How a model that a plugin chose is asked. Raises `ConfigError` for an unknown one."""
        client = self.settings.models.get(name)
        if client is None:
            known = ", ".join(self.settings.models) or "none"
            raise ConfigError(
                f"a plugin chose model {name!r}, which is not in supervise_client(models={{...}}) "
                f"(known: {known})"
            )
        return cast("Callable[..., Any]", client.request)


def _closed(make: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """A resource of which nothing opens a connection of its own."""

    def resource(client: Any) -> Any:
        if name in ("realtime", "live"):
            raise _unconnected(name)
        made = make(client)
        if name == "beta":
            for inner in ("realtime", "live", "responses"):
                if hasattr(type(made), inner):
                    vars(made)[inner] = _Refused(f"beta.{inner}")
        elif hasattr(made, "connect"):
            vars(made)["connect"] = _Refused(f"{name}.connect")
        return made

    return resource


def _unconnected(what: str) -> ConfigError:
    return ConfigError(
        f"{what}: what goes over a connection of its own is not supervised; use the client that "
        "was given to supervise_client where you accept that"
    )


class _Refused:
    """Stands in place of what opens a connection."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise _unconnected(self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise _unconnected(self._name)
