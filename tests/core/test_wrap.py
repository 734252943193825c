"""Wrapped SDK clients: supervised where they act, and otherwise like the original."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import inspect
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import pytest

from checkrein import Approved, Call, Deny, Plugin, Rein, errors


class NotFound(Exception):
    """The SDK's own error."""


@dataclass
class Page:
    """Plain data of the SDK."""

    number: int


class Customer:
    """What a call gives: neither a dict nor plain data."""

    def __init__(self, service: Customers, id: str) -> None:
        self._service = service
        self.id = id
        self.created = dt.date(2026, 1, 2)

    def delete(self) -> None:
        self._service.log.append(f"-{self.id}")

    def rename(self, name: str) -> Customer:
        self._service.log.append(f"{self.id}={name}")
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Customer) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class Customers:
    """A resource, with positional-only parameters as stripe has them."""

    def __init__(self, client: Client, log: list[str]) -> None:
        self.client = client
        self.log = log

    def create(self, name: str, /, params: dict[str, Any] | None = None) -> Customer:
        """Create one."""
        self.log.append(f"+{name}")
        return Customer(self, f"cus_{name}")

    def delete(self, customer: str, /, *, reason: str = "") -> bool:
        self.log.append(f"-{customer}")
        return True

    def list(self, limit: int = 10) -> list[Customer]:
        return [Customer(self, f"cus_{n}") for n in range(limit)]

    def retrieve(self, customer: str | Customer) -> Customer:
        if customer == "nobody":
            raise NotFound(customer)
        return customer if isinstance(customer, Customer) else Customer(self, customer)

    def search(self) -> Iterator[Customer]:
        yield Customer(self, "found")

    @contextmanager
    def batch(self) -> Iterator[Customer]:
        yield Customer(self, "batch")

    async def acreate(self, name: str) -> Customer:
        await asyncio.sleep(0)
        self.log.append(f"+{name}")
        return Customer(self, f"cus_{name}")

    async def pages(self) -> AsyncIterator[Customer]:
        yield Customer(self, "paged")

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[Customer]:
        return iter([Customer(self, "a"), Customer(self, "b")])

    def __getitem__(self, id: str) -> Customer:
        return Customer(self, id)

    def __contains__(self, id: str) -> bool:
        return id == "a"


class Client:
    """The client itself."""

    version = "2026-01"

    def __init__(self) -> None:
        self.log: list[str] = []
        self.customers = Customers(self, self.log)
        self.page = Page(1)
        self.error = NotFound
        self._secret = "sk"

    @property
    def region(self) -> str:
        return "eu"

    def ping(self) -> str:
        return "pong"

    def chain(self) -> Client:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.log.append("closed")


@pytest.fixture
def rein() -> Iterator[Rein]:
    with Rein(on_error="keep") as made:
        yield made


def names(rein: Rein, session: str) -> list[str]:
    events = rein.read(session).events()
    return [e.view["name"] for e in events if e.kind == "intent" and e.view["kind"] == "tool"]


def wrapped(rein: Rein, **settings: Any) -> tuple[Client, Client]:
    client = Client()
    return client, rein.wrap(client, connector="shop", **settings)


# -- methods


def test_methods_at_any_depth_are_supervised(rein: Rein) -> None:
    client, shop = wrapped(rein)
    with rein.session() as session:
        customer = shop.customers.create("ada", {"vip": True})
        customer.rename("Ada").rename("Ada L")
        shop.chain().chain().customers.client.ping()
        shop.customers.list()[3].delete()
        for found in shop.customers:
            found.delete()
        shop.customers["x"].delete()
        next(shop.customers.search()).delete()
        with shop.customers.batch() as batch:
            batch.delete()
        with shop as entered:
            entered.ping()
        method = shop.customers.delete
        method("y", reason="z")
    assert names(rein, session.id) == [
        "shop.customers.create", "shop.Customer.rename", "shop.Customer.rename", "shop.chain",
        "shop.chain", "shop.ping", "shop.customers.list", "shop.Customer.delete",
        "shop.Customer.delete", "shop.Customer.delete", "shop.Customer.delete",
        "shop.customers.search", "shop.Customer.delete", "shop.customers.batch",
        "shop.Customer.delete", "shop.ping", "shop.customers.delete",
    ]  # fmt: skip
    assert client.log == [
        "+ada", "cus_ada=Ada", "cus_ada=Ada L", "-cus_3", "-a", "-b", "-x", "-found", "-batch",
        "closed", "-y",
    ]  # fmt: skip


def test_async_methods(rein: Rein) -> None:
    client, shop = wrapped(rein)

    async def run() -> str:
        async with rein.session() as session:
            customer = await shop.customers.acreate("ada")
            customer.delete()
            async for found in shop.customers.pages():
                found.delete()
        return session.id

    session = asyncio.run(run())
    assert client.log == ["+ada", "-cus_ada", "-paged"]
    assert names(rein, session)[:2] == ["shop.customers.acreate", "shop.Customer.delete"]


def test_methods_keep_their_looks(rein: Rein) -> None:
    client, shop = wrapped(rein)
    create = shop.customers.create
    assert create.__name__ == "create" and create.__doc__ == "Create one."
    assert inspect.signature(create) == inspect.signature(client.customers.create)
    assert inspect.iscoroutinefunction(shop.customers.acreate)
    assert not inspect.iscoroutinefunction(create)
    assert create == shop.customers.create
    with rein.session(), pytest.raises(TypeError, match="missing"):
        create()
    with rein.session(), pytest.raises(TypeError):
        create(name="positional-only")
    assert client.log == []


def test_errors_are_the_client_s_own(rein: Rein) -> None:
    _, shop = wrapped(rein)
    with rein.session(), pytest.raises(shop.error) as caught:
        shop.customers.retrieve("nobody")
    assert type(caught.value) is NotFound
    with pytest.raises(AttributeError, match="nothing"):
        _ = shop.nothing


def test_plugins_decide(rein: Rein) -> None:
    class NoDelete(Plugin):
        def pre_call(self, call: Call) -> Deny | None:
            return Deny("no") if call.name.endswith(".delete") else None

    with Rein([NoDelete()], on_error="keep") as guarded:
        client, shop = wrapped(guarded)
        with guarded.session():
            customer = shop.customers.create("a")
            for delete in (lambda: shop.customers.delete("a"), customer.delete):
                with pytest.raises(errors.Denied):
                    delete()
    assert client.log == ["+a"]


def test_reads_are_known_by_their_words(rein: Rein) -> None:
    from checkrein.wrap import effect_of_name

    reads = [
        "get", "list_all", "getIssue", "retrieve", "searchCode", "HeadObject", "is_open",
        "describe",
    ]  # fmt: skip
    writes = [
        "create", "get_or_create", "delete_repo", "set", "issue", "getter", "send", "listen",
        "checkout", "execute", "query", "find_and_delete", "resolve",
    ]  # fmt: skip
    assert [effect_of_name(n) for n in reads] == ["read"] * len(reads)
    assert [effect_of_name(n) for n in writes] == ["write"] * len(writes)
    _, shop = wrapped(rein)
    rein.declare("shop.customers.retrieve", effect="egress")
    with rein.session() as session:
        shop.customers.list(limit=1)
        shop.customers.retrieve("a")
        shop.customers.delete("a")
    effects = [e.view["effect"] for e in rein.read(session.id).events() if e.kind == "intent"]
    assert effects == ["read", "egress", "write"]


# -- undo


def test_an_undo_may_use_the_client(go: Any, rein: Rein) -> None:
    client, shop = wrapped(rein)
    rein.declare("shop.Customer.rename", undo=lambda name: shop.customers.delete(name))
    with rein.session() as session:
        shop.customers["x"].rename("ada")
        report = go.run(rein, "rollback", session.id)
    assert report.complete and client.log == ["x=ada", "-ada"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_undo_by_name(go: Any, rein: Rein, when: str) -> None:
    def declare() -> None:
        rein.declare("shop.customers.create", undo="shop.customers.delete(result.id)")

    if when == "before":
        declare()
    client, shop = wrapped(rein)
    if when == "after":
        declare()
    with rein.session() as session:
        assert shop.customers.create("ada").id == "cus_ada"
    report = go.run(rein, "rollback", session.id)
    assert report.complete and client.log == ["+ada", "-cus_ada"]


def test_undo_in_another_process_that_used_no_method_yet(rein: Rein, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    logs = []
    session = ""
    for _ in range(2):
        with Rein(store=url, on_error="keep") as other:
            other.declare("shop.customers.create", undo="shop.customers.delete(result.id)")
            client, shop = wrapped(other)
            logs.append(client.log)
            if not session:
                with other.session() as opened:
                    shop.customers.create("ada")
                session = opened.id
            else:
                report = other.rollback(session)
                assert report is not None and report.complete
    assert logs == [["+ada"], ["-cus_ada"]]


@pytest.mark.parametrize(
    ("undo", "why"),
    [
        ("shop.customers.delete(result.id, why=name)", "no parameter 'why'"),
        ("shop.customers.delete(nam)", "neither"),
        ("shop.customers.delete()", "needs 'customer'"),
        ("shop.customers.delete", "takes 'customer'"),
    ],
)
def test_an_undo_that_does_not_fit(rein: Rein, undo: str, why: str) -> None:
    _, shop = wrapped(rein)
    with pytest.raises(errors.ConfigError, match=why):
        rein.declare("shop.customers.create", undo=undo)
    with Rein() as other:
        other.declare("shop.customers.create", undo=undo)
        with pytest.raises(errors.ConfigError, match=why):
            wrapped(other)
    assert shop is not None


def test_two_accounts_of_one_connector(go: Any, rein: Rein) -> None:
    """An undo goes to the account that acted."""
    clients = {}
    shops = {}
    for account in ("eu", "us"):
        clients[account] = Client()
        shops[account] = rein.wrap(clients[account], connector="shop", account=account)
        rein.declare(
            f"shop[{account}].customers.create", undo=f"shop[{account}].customers.delete(result.id)"
        )
    with rein.session() as session:
        shops["eu"].customers.create("a")
        shops["us"].customers.create("b")
    assert go.run(rein, "rollback", session.id).complete
    assert clients["eu"].log == ["+a", "-cus_a"] and clients["us"].log == ["+b", "-cus_b"]


def test_a_result_that_cannot_be_recorded_fails_no_call(rein: Rein) -> None:
    _, shop = wrapped(rein)
    with rein.session() as session:
        assert shop.customers.create("a").id == "cus_a"
        assert shop.customers.retrieve(shop.customers.create("b")).id == "cus_b"
    report = rein.rollback(session.id)
    assert report is not None
    assert [a.status for a in report.left] == ["not_undoable"] * 2


# -- settings


def test_requires_approval(rein: Rein) -> None:
    class Yes(Plugin):
        def __init__(self) -> None:
            self.asked: list[str] = []

        def on_approval(self, call: Call, request: Any) -> Approved:
            self.asked.append(call.name)
            return Approved("eve")

    for names_, asked in (
        (["customers.delete"], ["shop[eu].customers.delete"]),
        (["Customer.*", "*.create"], ["shop[eu].customers.create", "shop[eu].Customer.delete"]),
    ):
        yes = Yes()
        with Rein([yes], on_error="keep") as asking:
            _, shop = wrapped(asking, account="eu", requires_approval=names_)
            with asking.session():
                customer = shop.customers.create("a")
                shop.customers.delete("a")
                customer.delete()
            assert yes.asked == asked
            assert "requires_approval" in asking.plugins.order("pre_call")


def test_nobody_to_ask_is_a_denial(rein: Rein) -> None:
    client, shop = wrapped(rein, requires_approval=["customers.delete"])
    with rein.session(), pytest.raises(errors.Denied, match="nobody can be asked"):
        shop.customers.delete("a")
    assert client.log == []


def test_retryable(rein: Rein) -> None:
    from checkrein import Outcome, Retry

    class Again(Plugin):
        def post_call(self, call: Call, outcome: Outcome) -> Retry | None:
            return Retry() if outcome.error is not None and call.attempt < 3 else None

    for retryable, tries in (([], 1), (["flaky"], 3), (["fl*"], 3)):
        client = Client()
        seen: list[int] = []

        def flaky(seen: list[int] = seen) -> None:
            seen.append(1)
            raise ConnectionError

        client.flaky = flaky  # type: ignore[attr-defined]
        with Rein([Again()], on_error="keep") as retrying:
            shop = retrying.wrap(client, connector="shop", retryable=retryable)
            with retrying.session(), pytest.raises(ConnectionError):
                shop.flaky()  # type: ignore[attr-defined]
        assert len(seen) == tries


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"requires_approval": ["customers.remove"]}, "has no 'customers.remove'"),
        ({"retryable": ["version"]}, "is no method"),
        ({"retryable": "ping"}, "list of names"),
        ({"account": "eu[1]"}, "account must be"),
        ({"connector": ""}, "connector must be"),
        ({"connector": "a(b)"}, "connector must be"),
    ],
)
def test_settings_that_do_not_fit(rein: Rein, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(errors.ConfigError, match=why):
        rein.wrap(Client(), **{"connector": "shop", **settings})
    wrapped(rein)


@pytest.mark.parametrize("client", [None, 3, "x", {}, [], Client, len, lambda: None])
def test_what_cannot_be_wrapped(rein: Rein, client: Any) -> None:
    with pytest.raises(errors.ConfigError, match="is no client"):
        rein.wrap(client, connector="shop")


def test_one_client_a_name(rein: Rein) -> None:
    _, shop = wrapped(rein)
    with pytest.raises(errors.ConfigError, match="wrapped already"):
        wrapped(rein)
    with pytest.raises(errors.ConfigError, match="wrapped already"):
        rein.wrap(shop, connector="other")
    wrapped(rein, account="second")


# -- like the original


def test_plain_values(rein: Rein) -> None:
    client, shop = wrapped(rein)
    assert type(shop.version) is str and shop.region == "eu" and shop._secret == "sk"
    assert shop.page is client.page and shop.error is NotFound
    assert type(shop.customers.create("a").created) is dt.date
    assert shop.log is client.log


def test_like_the_original(rein: Rein) -> None:
    client, shop = wrapped(rein)
    assert isinstance(shop, Client) and isinstance(shop.customers, Customers)
    assert shop == client and client == shop and hash(shop) == hash(client)
    assert shop.customers is shop.customers
    assert repr(shop) == repr(client) and dir(shop) == dir(client)
    assert len(shop.customers) == 2 and "a" in shop.customers and bool(shop.customers)
    assert [c.id for c in shop.customers] == ["a", "b"]
    assert shop.customers["x"] == Customer(client.customers, "x")
    assert {shop.customers["x"], shop.customers["x"]} == {Customer(client.customers, "x")}
    shop.version = "2027-01"
    assert client.version == "2027-01"
    del shop.version
    assert client.version == "2026-01"
    for broken in (lambda: len(shop), lambda: shop["x"], lambda: iter(shop), lambda: shop()):  # type: ignore[operator]
        with pytest.raises(TypeError):
            broken()
    with pytest.raises(TypeError):
        hash(rein.wrap(Unhashable(), connector="u"))


class Unhashable:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def reachable(proxy: Any) -> Iterator[tuple[str, Any]]:
    for name in {*dir(proxy), *dir(type(proxy)), "__wrapped__", "__self__", "_behind", "__dict__"}:
        try:
            yield name, getattr(proxy, name)
        except (AttributeError, errors.ConfigError):
            continue


def test_no_attribute_leads_to_the_target(rein: Rein) -> None:
    client, shop = wrapped(rein)
    raw = (client, client.customers)
    for proxy in (shop, shop.customers):
        for name, value in reachable(proxy):
            assert not any(value is r for r in raw), name
            holder = getattr(value, "__self__", None)
            assert not any(holder is r for r in raw), f"{name}.__self__"
            assert not hasattr(value, "__wrapped__"), name
        assert not any(value is r for value in vars(proxy).values() for r in raw)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_a_copy_is_supervised(rein: Rein, how: Callable[[Any], Any]) -> None:
    client, shop = wrapped(rein)
    twin = how(shop)
    assert isinstance(twin, Client) and twin is not shop
    with rein.session() as session:
        twin.customers.delete("a")
        twin.ping()
    assert names(rein, session.id) == ["shop.customers.delete", "shop.ping"]
    assert (client.log == ["-a"]) == (how is copy.copy)


def test_pickles_are_refused(rein: Rein) -> None:
    _, shop = wrapped(rein)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(errors.ConfigError, match="cannot be pickled"):
            pickle.dumps(shop, protocol)


def test_proxies_as_arguments(rein: Rein) -> None:
    """The client gets its own objects back, and the journal their class only."""
    client, shop = wrapped(rein)
    taken: list[Any] = []
    client.take = lambda one, *many, **named: taken.append((one, many, named))  # type: ignore[attr-defined]
    customer = Customer(client.customers, "x")
    with rein.session() as session:
        proxy = shop.customers.retrieve(customer)
        shop.take(proxy, 1)  # type: ignore[attr-defined]
    [(one, many, named)] = taken
    assert type(one) is Customer and one is customer and (many, named) == ((1,), {})
    assert names(rein, session.id) == ["shop.customers.retrieve", "shop.take"]


def test_a_module_as_a_client(rein: Rein) -> None:
    import shutil

    shop = rein.wrap(shutil, connector="files")
    with rein.session() as session:
        assert shop.which("no such program at all") is None
    assert names(rein, session.id) == ["files.which"]
    assert shop.Error is shutil.Error


def test_a_connection_of_the_standard_library(rein: Rein) -> None:
    import sqlite3

    real = sqlite3.connect(":memory:")
    db = rein.wrap(real, connector="db")
    with rein.session() as session:
        db.execute("CREATE TABLE t (x)")
        cursor = db.cursor()
        cursor.execute("INSERT INTO t VALUES (?)", (1,))
        assert list(cursor.execute("SELECT x FROM t")) == [(1,)]
    assert names(rein, session.id) == [
        "db.execute", "db.cursor", "db.Cursor.execute", "db.Cursor.execute",
    ]  # fmt: skip
    real.close()
