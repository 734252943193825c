"""How calls are taken back: templates over the state before, requests, what cannot be undone."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel

from checkrein import Call, Rein, errors
from checkrein.http_undo import HttpUndo, http_delete
from checkrein.report import RollbackReport


class Shelf:
    """Books by id, outside."""

    def __init__(self) -> None:
        self.books: dict[int, dict[str, Any]] = {1: {"title": "one", "price": 5}}
        self.broken = False

    def read(self, id: int) -> dict[str, Any]:
        if self.broken:
            raise ConnectionError
        return dict(self.books[id])

    def edit(self, id: int, fields: dict[str, Any]) -> None:
        self.books[id].update(fields)

    def retitle(self, id: int, *, title: str = "-", price: int = 0) -> None:
        self.books[id].update(title=title, price=price)

    def remove(self, id: int) -> dict[str, Any]:
        return self.books.pop(id)

    def put(self, id: int, book: dict[str, Any]) -> None:
        self.books[id] = book


def rolled(go: Any, rein: Rein, session: str) -> RollbackReport:
    report = go.run(rein, "rollback", session)
    assert isinstance(report, RollbackReport)
    return report


# -- the state before


@pytest.mark.parametrize(
    ("method", "undo", "arguments"),
    [
        ("edit", "edit(id, before[fields])", {"id": 1, "fields": {"price": 9}}),
        ("retitle", "retitle(id, **before)", {"id": 1, "title": "new", "price": 8}),
        ("remove", "put(id, book=before)", {"id": 1}),
        ("edit", lambda id, before: None, {"id": 1, "fields": {"price": 9}}),
    ],
)
def test_what_stood_there_is_put_back(
    go: Any, make: Callable[..., Rein], method: str, undo: Any, arguments: dict[str, Any]
) -> None:
    rein = make()
    shelf = Shelf()
    if callable(undo):
        undo = lambda id, before: shelf.put(id, before)  # noqa: E731
    for name in ("edit", "retitle", "remove", "put"):
        if name != method:
            rein.declare(name, getattr(shelf, name))
    rein.declare(method, getattr(shelf, method), undo=undo, before=shelf.read)
    with rein.session() as session:
        go.call(rein, getattr(shelf, method), **arguments)
    assert shelf.books != {1: {"title": "one", "price": 5}}
    intent = next(e for e in session.events() if e.kind == "intent")
    assert intent.view["before"] == {"title": "one", "price": 5}
    assert rolled(go, rein, session.id).complete
    assert shelf.books == {1: {"title": "one", "price": 5}}


def test_the_state_before_survives_a_crash(make: Callable[..., Rein]) -> None:
    rein = make()
    shelf = Shelf()

    def fall(id: int, fields: dict[str, Any]) -> None:
        shelf.edit(id, fields)
        raise OSError

    fell = rein.tool(
        fall, undo=lambda id, before: shelf.put(id, before), before=lambda id: shelf.read(id),
        probe=lambda id: shelf.books[id]["price"] == 9, settle_time=0,
    )  # fmt: skip
    with rein.session() as session, pytest.raises(OSError):
        fell(1, {"price": 9})
    report = session.rollback()
    assert report is not None and report.complete and shelf.books[1]["price"] == 5


@pytest.mark.parametrize("policy", ["refuse", "ask", "go_on"])
def test_a_state_that_cannot_be_read(go: Any, make: Callable[..., Rein], policy: Any) -> None:
    rein = make(approvals="store", clock=None)
    shelf = Shelf()
    edit = rein.tool(
        shelf.edit, name="edit", undo=lambda id, before: shelf.put(id, before), before=shelf.read,
        on_capture=policy,
    )  # fmt: skip
    shelf.broken = True
    with rein.session(wait="suspend") as session:
        if policy == "refuse":
            with pytest.raises(errors.Denied, match="could not be read") as refused:
                go.call(rein, edit, 1, {"price": 9})
            assert refused.value.code == "capture_failed" and shelf.books[1]["price"] == 5
            return
        if policy == "ask":
            with pytest.raises(errors.ApprovalPending) as pending:
                go.call(rein, edit, 1, {"price": 9})
            assert shelf.books[1]["price"] == 5
            rein.approvals.approve(pending.value.token, by="ann")
            go.run(rein, "resume", pending.value.token)
        else:
            go.call(rein, edit, 1, {"price": 9})
    assert shelf.books[1]["price"] == 9
    intent = next(e for e in session.events() if e.kind == "intent")
    assert intent.view["before_failed"] == "ConnectionError"
    (action,) = rolled(go, rein, session.id).actions
    assert action.status == "not_undoable" and "could not be read" in action.detail


def test_readers_that_do_not_fit(make: Callable[..., Rein]) -> None:
    rein = make()
    for settings, told in (
        ({"before": lambda nope: 1}, "takes 'nope'"),
        ({"before": 5}, "must be a function"),
        ({"before": lambda id: 1, "on_capture": "no"}, "on_capture"),
        ({"undo": "put(id, before)"}, "neither `result`"),
        ({"undo": "put(id, **before)"}, "but for `before`"),
        ({"undo": "put(id, before[fields])", "before": lambda id: 1}, "no parameter of the tool"),
    ):
        with pytest.raises(errors.ConfigError, match=told):
            rein.declare("x", lambda id: None, **settings)
    with pytest.raises(errors.ConfigError, match="`before` is a parameter"):
        rein.declare("y", lambda before: None, before=lambda before: 1)


# -- none


def test_what_cannot_be_undone_is_told_before_and_after(go: Any, make: Callable[..., Rein]) -> None:
    rein = make()
    seen: list[str] = []
    mail = rein.tool(lambda to: seen.append(to), name="mail", undo="none")
    call = rein.tool(lambda: None, name="call", undo="none", irreversible="it rang")
    with rein.session() as session:
        go.call(rein, mail, "ann")
        go.call(rein, call)
    views = [e.view["irreversible"] for e in session.events() if e.kind == "intent"]
    assert views == ["declared so", "it rang"]
    found = [(a.status, a.detail) for a in rolled(go, rein, session.id).actions]
    assert found == [
        ("not_undoable", "irreversible: it rang"), ("not_undoable", "irreversible: declared so"),
    ]  # fmt: skip
    assert session.state != "ROLLED_BACK"


# -- requests


class Service:
    """Items over HTTP."""

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}
        self.seen: list[tuple[str, str, Any, dict[str, str]]] = []
        self.fail = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                service.seen.append((self.command, self.path, body, dict(self.headers)))
                status = 200
                if service.fail:
                    service.fail -= 1
                    status = 500
                elif self.command == "DELETE" and service.items.pop(self.path, None) is None:
                    status = 404
                elif self.command == "PUT":
                    service.items[self.path] = body
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_DELETE = do_PUT = answer  # noqa: N815

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_a_request_deletes_what_was_made(
    go: Any, make: Callable[..., Rein], service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    rein = make()

    def create(name: str) -> dict[str, str]:
        service.items[f"/items/{name}%2F1"] = name
        return {"id": f"{name}/1"}

    undo = http_delete(f"{service.url}/items/{{result.id}}", {"Authorization": "Bearer ${TOKEN}"})
    tool = rein.tool(create, undo=undo)
    with rein.session() as session:
        go.call(rein, tool, "a")
    plan = next(e for e in session.events() if e.kind == "outcome")
    assert "Bearer ${TOKEN}" in str(rein.store.payload(plan.seq))
    (failed,) = rolled(go, rein, session.id).actions
    assert failed.status == "failed" and len(service.items) == 1
    monkeypatch.setenv("TOKEN", "s3cret")
    service.fail = 1
    assert rolled(go, rein, session.id).complete and service.items == {}
    keys = {headers["Idempotency-Key"] for *_, headers in service.seen}
    assert len(service.seen) == 2 and len(keys) == 1
    assert service.seen[0][3]["Authorization"] == "Bearer s3cret"
    # Gone already is what was wanted.
    with rein.session() as session:
        go.call(rein, tool, "b")
    service.items.clear()
    assert rolled(go, rein, session.id).complete


def test_a_request_puts_back_what_stood_there(make: Callable[..., Rein], service: Service) -> None:
    rein = make()
    service.items["/items/7"] = {"name": "old", "tags": [1]}

    def rename(item: int, name: str) -> None:
        service.items[f"/items/{item}"] = {"name": name, "tags": []}

    tool = rein.tool(
        rename,
        undo=HttpUndo(
            "PUT", f"{service.url}/items/{{item}}",
            json={"name": "{before.name}", "tags": "{before.tags}", "by": "undo of {item}"},
        ),
        before=lambda item: service.items[f"/items/{item}"],
    )  # fmt: skip
    with rein.session() as session:
        tool(7, "new")
    report = session.rollback()
    assert report is not None and report.complete
    assert service.items["/items/7"] == {"name": "old", "tags": [1], "by": "undo of 7"}


def test_requests_that_cannot_be(make: Callable[..., Rein]) -> None:
    rein = make()
    for undo, told in (
        (http_delete("ftp://x/{result.id}"), "http or https"),
        (http_delete("https://{result.host}/x"), "host must be fixed"),
        (http_delete("https://x/{nope}"), "'nope' is neither"),
        (http_delete("https://x/{before.id}"), "'before' is neither"),
        (http_delete("https://x/{a b}"), "not a path"),
        (HttpUndo("GET", "https://x"), "use one of"),
        (HttpUndo("PUT", "https://x", json={"a": ["{b}"]}), "'b' is neither"),
    ):
        with pytest.raises(errors.ConfigError, match=told):
            rein.declare("x", lambda a: None, undo=undo)


def test_requests_and_operations_in_a_file(tmp_path: Path, service: Service) -> None:
    path = tmp_path / "checkrein.toml"
    path.write_text(
        f"""
        store = "sqlite:///{tmp_path}/s.db"
        [tools.create]
        operation = "create"
        undo = {{ http-delete = "{service.url}/items/{{result.id}}" }}
        [tools.mail]
        undo = "none"
        irreversible = "it was sent"
        """
    )
    with Rein.from_file(path) as rein:
        seen: list[Call] = []

        @rein.tool
        def create(id: str) -> dict[str, str]:
            service.items[f"/items/{id}"] = 1
            return {"id": id}

        mail = rein.tool(lambda: None, name="mail", irreversible="it was sent")
        with rein.session() as session:
            create("a")
            mail()
        del seen
        views = [e.view for e in session.events() if e.kind == "intent"]
        assert views[0]["operation"] == "create" and views[1]["irreversible"] == "it was sent"
        report = session.rollback()
        assert report is not None
        assert [a.status for a in report.actions] == ["not_undoable", "undone"]
        assert service.items == {}
    path.write_text(path.read_text().replace("http-delete", "http-dlete"))
    with pytest.raises(errors.ConfigError, match=r"toml:5"):
        Rein.from_file(path)


def test_a_file_and_the_code_must_not_say_different_things(tmp_path: Path) -> None:
    path = tmp_path / "checkrein.toml"
    path.write_text('[tools.act]\nidempotent = true\ntimeout = 5\nundo = "back"\n')
    rein = Rein.from_file(path)
    rein.declare("back", lambda: None)
    rein.tool(lambda: None, name="act", timeout=5, description="Acts.")
    tool = rein.tools.get("act")
    assert tool is not None
    assert (tool.info.idempotent, tool.info.timeout, tool.info.undo, tool.info.description) == (
        True, 5.0, "back", "Acts.",
    )  # fmt: skip
    rein = Rein.from_file(path)
    with pytest.raises(errors.ConfigError, match="timeout is set in the configuration"):
        rein.tool(lambda: None, name="act", timeout=6)


@dataclasses.dataclass
class Made:
    id: str

    def link(self) -> str:
        return f"x:{self.id}"


class Typed(TypedDict):
    id: str


class Modelled(BaseModel):
    id: str


def dataclass_tool() -> Made:
    return Made("1")


def dict_tool() -> Typed:
    return {"id": "1"}


def model_tool() -> Modelled:
    return Modelled(id="1")


@pytest.mark.parametrize("tool", [dataclass_tool, dict_tool, model_tool])
def test_a_field_that_the_declared_result_does_not_have(
    make: Callable[..., Rein], tool: Any
) -> None:
    rein = make()
    rein.declare("back", lambda id: None)
    with pytest.raises(errors.ConfigError, match="has no 'idd'"):
        rein.declare("wrong", tool, undo="back(result.idd)")
    rein.declare("right", tool, undo="back(result.id)")
    # A result that says nothing of itself is looked at when it is there: the call is not undoable.
    act = rein.tool(lambda: {"id": 1}, name="act", undo="back(result.idd)")
    with rein.session() as session:
        act()
    report = session.rollback(dry_run=True)
    assert report is not None and report.actions[0].status == "not_undoable"
    assert "the call gave no result.idd" in report.actions[0].detail
