"""Wrapped SDK clients: supervised where they act, and otherwise like the original."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import datetime as dt
import inspect
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import pytest

from checkrein import Answer, Approved, Call, Deny, Plugin, Rein, Replace, Rewrite, errors


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
    client, shop = wrapped(rein, record_reads=True)
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
    _, shop = wrapped(rein, record_reads=True)
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


def test_a_pickle_is_a_reference(rein: Rein) -> None:
    _, shop = wrapped(rein)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for proxy in (shop, shop.customers):
            dumped = pickle.dumps(proxy, protocol)
            assert pickle.loads(dumped) is proxy and b"sk" not in dumped
    with pytest.raises(errors.ConfigError, match="cannot be pickled"):
        pickle.dumps(shop.customers["x"])
    dumped = pickle.dumps(shop)
    with Rein() as other:
        _, second = wrapped(other)
        with pytest.raises(errors.ConfigError, match="more than one"):
            pickle.loads(dumped)
        with other.session():
            assert pickle.loads(dumped) is second
    del second
    other_name = dumped.replace(b"shop", b"shed")
    with pytest.raises(errors.ConfigError, match="no client is wrapped as shed"):
        pickle.loads(other_name)


def test_proxies_as_arguments(rein: Rein) -> None:
    """The client gets its own objects back, and the journal their class only."""
    client, shop = wrapped(rein, record_reads=True)
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


# -- generators, recorded when they are consumed


def test_generators_are_recorded_when_they_are_consumed(rein: Rein) -> None:
    client, shop = wrapped(rein)

    def sweep(many: int) -> Iterator[Customer]:
        for n in range(many):
            client.log.append(f"swept {n}")
            yield Customer(client.customers, f"c{n}")

    def fail() -> Iterator[int]:
        yield 1
        raise NotFound

    client.sweep, client.fail = sweep, fail  # type: ignore[attr-defined]
    made: Any = shop
    with rein.session() as first:
        never, later = made.sweep(2), made.sweep(3)
        assert inspect.isgenerator(later) and inspect.isgeneratorfunction(made.sweep)
        del never
    assert names(rein, first.id) == [] and client.log == []
    with rein.session() as second:
        assert [c.id for c in later] == ["c0", "c1", "c2"]
        for found in made.sweep(9):
            found.delete()
            break
        with pytest.raises(NotFound):
            list(made.fail())
        assert list(made.sweep(0)) == []
    assert names(rein, second.id) == [
        "shop.sweep", "shop.sweep", "shop.Customer.delete", "shop.fail", "shop.sweep",
    ]  # fmt: skip
    ended = [(e.view["items"], e.view["ended"]) for e in second.events() if e.kind == "consumed"]
    assert ended == [(3, "whole"), (1, "closed"), (1, "NotFound"), (0, "whole")]
    rein.stop(second.id)
    with rein.session() as third:
        rein.stop(third.id)
        with pytest.raises(errors.SessionClosed):
            list(made.sweep(1))
    assert client.log[-1] == "-c0"


def test_async_generators_are_recorded_when_they_are_consumed(rein: Rein) -> None:
    client, shop = wrapped(rein)

    async def sweep(many: int) -> AsyncIterator[Customer]:
        for n in range(many):
            client.log.append(f"swept {n}")
            yield Customer(client.customers, f"c{n}")

    client.sweep = sweep  # type: ignore[attr-defined]
    made: Any = shop

    async def run() -> Any:
        later = made.sweep(2)
        async with rein.session() as session:
            assert [c.id async for c in later] == ["c0", "c1"]
            async for found in made.sweep(5):
                found.delete()
                break
        return session

    session = asyncio.run(run())
    assert names(rein, session.id) == ["shop.sweep", "shop.sweep", "shop.Customer.delete"]
    assert client.log == ["swept 0", "swept 1", "swept 0", "-c0"]


class Sweeper:
    """A client whose methods act while their items are taken."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.faults = 0

    def sweep(self, where: str) -> Iterator[str]:
        self.log.append(where)
        if self.faults:
            self.faults -= 1
            raise ConnectionError
        yield where
        yield where * 2

    async def sweep_later(self, where: str) -> AsyncIterator[str]:
        for item in self.sweep(where):
            yield item


class Says(Plugin):
    """One verdict about every call that is not about `x`."""

    def __init__(self, verdict: Callable[[Call], Any]) -> None:
        self.verdict = verdict

    def pre_call(self, call: Call) -> Any:
        return None if call.arguments.get("where") == "x" else self.verdict(call)


def swept(client: Sweeper, made: Any, is_async: bool, where: str) -> list[str]:
    async def later() -> list[str]:
        return [item async for item in made.sweep_later(where)]

    return asyncio.run(later()) if is_async else list(made.sweep(where))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("says", "given", "log"),
    [
        (lambda call: Rewrite(call.replace(arguments={"where": "x"})), ["x", "xx"], ["x"]),
        (lambda call: Answer(["p", "q"], "cache"), ["p", "q"], []),
        (lambda call: Answer(None, "cache"), [], []),
        (lambda call: Answer("p", "cache"), ["p"], []),
    ],
)
def test_what_plugins_say_of_a_generator_holds_for_all_of_it(
    says: Callable[[Call], Any], given: list[str], log: list[str], is_async: bool
) -> None:
    client = Sweeper()
    with Rein(plugins=[Says(says)], store="memory:") as rein:
        made: Any = rein.wrap(client, connector="shop")
        with rein.session():
            assert swept(client, made, is_async, "y") == given
    assert client.log == log


class Looks(Plugin):
    """Replaces what holds `y`, and withholds the rest after so many items."""

    def __init__(self, most: int) -> None:
        self.seen: list[Any] = []
        self.most = most

    def post_call(self, call: Call, outcome: Any) -> Any:
        if outcome.value is None:  # how many items there are is not said here
            return None
        self.seen.append(outcome.value)
        if len(self.seen) > self.most:
            return Deny("enough", rule="most")
        return Replace(str(outcome.value).replace("y", "[y]"))


@pytest.mark.parametrize("is_async", [False, True])
def test_every_item_of_a_generator_is_seen_before_it_is_given_out(is_async: bool) -> None:
    looks = Looks(most=9)
    with Rein(plugins=[looks], store="memory:") as rein:
        made: Any = rein.wrap(Sweeper(), connector="shop")
        with rein.session() as session:
            assert swept(Sweeper(), made, is_async, "y") == ["[y]", "[y][y]"]
        amended = rein.store.events(session=session.id, kinds=("amended",))
        assert [event.view["result"] for event in amended] == ["[y]", "[y][y]"]
        looks.seen.clear()
        looks.most = 1
        with rein.session(on_error="keep"), pytest.raises(errors.Denied, match="enough"):
            swept(Sweeper(), made, is_async, "y")
        assert len(looks.seen) == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_generator_runs_in_no_sandbox_and_is_tried_again_from_its_beginning(
    is_async: bool,
) -> None:
    client = Sweeper()
    with Rein(plugins=[], store="memory:") as rein:
        rein.declare("shop.sweep", example=["e"])
        rein.declare("shop.sweep_later", example=["e"])
        made: Any = rein.wrap(client, connector="shop", retryable=["sweep", "sweep_later"])
        with rein.session(sandbox=True):
            assert swept(client, made, is_async, "y") == ["e"]
        assert client.log == []
        client.faults = 1
        with rein.session() as session:
            assert swept(client, made, is_async, "y") == ["y", "yy"]
        assert client.log == ["y", "y"]
        # One item is not the result: nobody is answered with it.
        rein.tools.examples.clear()
        with rein.session(sandbox=session.id), pytest.raises(errors.Denied, match="no recorded"):
            swept(client, made, is_async, "y")
        assert client.log == ["y", "y"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("how", ["stop", "pause", "rollback", "end"])
@pytest.mark.parametrize("store", ["memory:", "sqlite"])
def test_no_item_is_made_after_a_session_is_closed(
    how: str, store: str, is_async: bool, tmp_path: Any
) -> None:
    client = Sweeper()

    def many(where: str) -> Iterator[str]:
        for n in range(3):
            client.log.append(n)
            yield where

    async def many_later(where: str) -> AsyncIterator[str]:
        for item in many(where):
            yield item

    client.many, client.many_later = many, many_later  # type: ignore[attr-defined]
    url = store if store == "memory:" else f"sqlite:///{tmp_path / 'a.db'}"
    with Rein(plugins=[], store=url) as rein, asyncio.Runner() as runner:
        made: Any = rein.wrap(client, connector="shop")
        items = made.many_later("y") if is_async else made.many("y")

        async def later() -> Any:
            return await anext(items)

        def take() -> Any:
            here = contextvars.copy_context()
            return runner.run(later(), context=here) if is_async else next(items)

        session = rein.session(on_error="keep")
        with session:
            assert take() == take() == "y"
            if how != "end":
                getattr(rein, how)(session.id)
                with pytest.raises(errors.SessionClosed):
                    take()
        if how == "end":  # it ended well: what was begun in it goes on
            assert take() == "y"
    assert client.log == [0, 1] + [2] * (how == "end")


@pytest.mark.parametrize("is_async", [False, True])
def test_an_approved_generator_runs_to_its_end_where_it_is_resumed(is_async: bool) -> None:
    client, name = Sweeper(), "sweep_later" if is_async else "sweep"
    with Rein(plugins=[], store="memory:", approvals="store", wait="suspend") as rein:
        made: Any = rein.wrap(client, connector="shop", requires_approval=[name])
        with pytest.raises(errors.ApprovalPending) as waits, rein.session():
            swept(client, made, is_async, "y")
        rein.approvals.approve(waits.value.token, by="ann", arguments={"where": "z"})
        assert client.log == []
        token = waits.value.token
        given = asyncio.run(rein.aresume(token)) if is_async else rein.resume(token)
        assert given == ["z", "zz"] and client.log == ["z"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_generator_function_is_no_tool(rein: Rein, is_async: bool) -> None:
    def items() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    with rein.session(), pytest.raises(errors.ConfigError, match="generator"):
        rein.call(later if is_async else items)


# -- reads


def test_reads_are_not_recorded_and_yet_stopped(rein: Rein) -> None:
    _, shop = wrapped(rein)
    with rein.session() as session:
        assert len(shop.customers.list(3)) == 3
        assert names(rein, session.id) == []
        rein.pause(session.id)
        with pytest.raises(errors.Paused):
            shop.customers.list(3)
        rein.stop(session.id)
        with pytest.raises(errors.Halted):
            shop.customers.list(3)

    class Looks(Plugin):
        def pre_call(self, call: Call) -> Deny | None:
            return Deny("no") if call.name.endswith(".list") else None

    with Rein([Looks()], on_error="keep") as looked:
        _, shop = wrapped(looked)
        with looked.session() as session:
            with pytest.raises(errors.Denied):
                shop.customers.list(3)
            shop.customers.retrieve("a")
        assert names(looked, session.id) == ["shop.customers.retrieve"]


# -- a connector's table


TABLE: dict[str, Any] = {
    "connector": "shop", "package": "shop", "tested": "1", "client": "shop:Client",
    "classes": {"Customer": {"type": f"{__name__}:Customer", "locator": "customers.retrieve(id)"}},
    "methods": {
        "customers.create": {
            "operation": "create", "undo": "customers.delete(result.id, reason='undo')",
            "idempotency": "params.key",
        },
        "customers.acreate": {"operation": "create", "undo": "Customer.delete(result.locator)"},
        "customers.delete": {"operation": "delete", "undo": "none", "why": "it is gone"},
        "Customer.rename": {
            "operation": "update", "undo": "Customer.rename(self, before)",
            "before": "customers.label(self)",
        },
        "Customer.delete": {"operation": "delete", "undo": "none"},
    },
}  # fmt: skip


def tabled(rein: Rein, **settings: Any) -> tuple[Client, Any]:
    client = Client()
    client.customers.label = lambda self: "the old name"  # type: ignore[attr-defined]
    return client, rein.wrap(client, connector="shop", table=TABLE, **settings)


def test_a_table_says_how_calls_are_undone(go: Any, rein: Rein) -> None:
    client, shop = tabled(rein)
    with rein.session() as session:
        shop.customers.create("ada", {"vip": True})
        asyncio.run(shop.customers.acreate("bob"))
        shop.customers.retrieve("eve").rename("Eve")
        shop.customers.delete("x")
    assert go.run(rein, "rollback", session.id).summary() == (
        "rollback: 1 not_undoable, 3 undone; left: shop.customers.delete "
        + next(e.call for e in session.events() if e.view.get("name") == "shop.customers.delete")
    )
    assert client.log == [
        "+ada", "+bob", "eve=Eve", "-x", "eve=the old name", "-cus_bob", "-cus_ada",
    ]  # fmt: skip
    views = [e.view for e in session.events() if e.kind == "intent" and e.view["kind"] == "tool"]
    assert [(v["name"], v["operation"]) for v in views] == [
        ("shop.customers.create", "create"), ("shop.customers.acreate", "create"),
        ("shop.Customer.rename", "update"), ("shop.customers.delete", "delete"),
    ]  # fmt: skip
    assert views[2]["arguments"]["self"] == "customers.retrieve('eve')"
    assert views[2]["before"] == "the old name" and views[3]["irreversible"] == "it is gone"


def test_an_object_is_found_again_by_another_process(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with Rein(store=url, on_error="keep") as rein, rein.session() as session:
        _, shop = tabled(rein)
        shop.customers.retrieve("eve").rename("Eve")
        dumped = pickle.dumps(shop.customers.retrieve("eve"))
    with Rein(store=url) as other:
        client, _ = tabled(other)
        report = other.rollback(session.id)
        assert report is not None and report.complete and client.log == ["eve=the old name"]
        with other.session():
            pickle.loads(dumped).rename("E")
        assert client.log[-1] == "eve=E"


def test_an_idempotency_key_reaches_the_client(rein: Rein, monkeypatch: Any) -> None:
    from checkrein import wrap

    monkeypatch.setattr(wrap, "DELAY", 0.0)
    seen: list[Any] = []
    client = Client()

    def create(name: str, /, params: dict[str, Any] | None = None) -> Customer:
        seen.append(params)
        if len(seen) < 3:
            raise ConnectionResetError
        return Customer(client.customers, name)

    client.customers.create = create  # type: ignore[method-assign]
    client.customers.label = lambda self: "x"  # type: ignore[attr-defined]
    shop = rein.wrap(client, connector="shop", table=TABLE, retryable=["customers.create"])
    with rein.session() as session:
        shop.customers.create("a", {"vip": True})
        shop.customers.create("b", {"key": "mine"})
    (call, *_) = [e.call for e in session.events() if e.kind == "intent"]
    assert seen == [{"vip": True, "key": call}] * 3 + [{"key": "mine"}]
    attempts = [e.attempt for e in session.events() if e.kind == "intent"]
    assert attempts == [1, 2, 3, 1]
    # What is wrong with the request is not tried again.
    del client.customers.create
    with rein.session(), pytest.raises(NotFound):
        shop.customers.retrieve("nobody")


def test_what_cannot_be_undone_may_be_asked_about() -> None:
    with Rein(on_error="keep", approvals="store") as rein:
        client, shop = tabled(rein, ask_irreversible=True)
        with rein.session(wait="suspend"):
            shop.customers.create("a")
            with pytest.raises(errors.ApprovalPending):
                shop.customers.delete("a")
        assert client.log == ["+a"]
        assert "cannot be undone: it is gone" in rein.approvals.pending()[0].reason


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"methods": {}}, "at least 1"),
        ({"methods": {"customers.create": {"operation": "create"}}}, "say how it is undone"),
        ({"methods": {"customers.nope": {"undo": "none"}}}, "no such method"),
        ({"methods": {"ping": {"undo": "customers.delete(result.id, nope=1)"}}}, "'nope'"),
        ({"methods": {"ping": {"undo": "customers.delete(nope)"}}}, "'nope' is neither"),
        ({"methods": {"ping": {"undo": "none", "idempotency": "key"}}}, "no parameter 'key'"),
        ({"methods": {"ping": {"undo": "python:nope:f"}}}, "cannot be imported"),
        ({"methods": {"ping": {"undo": "none", "udno": 1}}}, "udno"),
        ({"methods": {"Nope.ping": {"undo": "none"}}}, "classes has no Nope"),
        ({"classes": {"Customer": {"type": "x:Y", "locator": "a.__b(id)"}}}, "private"),
        ({"classes": {"Customer": {"type": "x:Y", "locator": "a(1 + 1)"}}}, "no path"),
        ({"methods": {"ping": {"undo": "customers.delete('x')", "why": "y"}}}, "why is for"),
    ],
)
def test_tables_that_do_not_fit(rein: Rein, change: dict[str, Any], told: str) -> None:
    with pytest.raises(errors.ConfigError, match=told):
        rein.wrap(Client(), connector="shop", table={**TABLE, **change})
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        rein.wrap(Client(), connector="shop2", table="nowhere.toml")


def test_a_locator_leads_nowhere_else() -> None:
    from checkrein import locating

    chain = locating.parse("customers.retrieve(id)", "x")
    client = Client()
    assert locating.found(client, "customers.retrieve('a')", chain).id == "a"
    for wrong in ("customers.delete('a')", "customers.retrieve(id)", "_secret", "1 +", "log"):
        with pytest.raises(errors.Conflict):
            locating.found(client, wrong, chain)
    assert client.log == []


def test_an_installed_table_is_for_the_client_that_it_names(
    rein: Rein, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from checkrein import connectors

    path = tmp_path / "shop.toml"
    path.write_text(
        'connector = "shop"\npackage = "shop"\ntested = "1"\nclient = "elsewhere:Client"\n'
        '[methods.ping]\nundo = "none"\nwhy = "rung"\n'
    )
    monkeypatch.setattr(connectors, "offered", lambda: {"shop": path})
    wrapped(rein)
    tool = rein.tools.get("shop.ping")
    assert tool is not None and tool.info.irreversible == ""
    ours = path.with_name("ours.toml")
    ours.write_text(path.read_text().replace("elsewhere", Client.__module__.partition(".")[0]))
    monkeypatch.setattr(connectors, "offered", lambda: {"shop": ours})
    wrapped(rein, account="b")
    tool = rein.tools.get("shop[b].ping")
    assert tool is not None and tool.info.irreversible == "rung"


def test_a_generator_whose_close_raises_is_recorded_all_the_same() -> None:
    class Service:
        def lines(self) -> Iterator[str]:
            try:
                yield "one"
            finally:
                raise NotFound

        async def later(self) -> AsyncIterator[str]:
            try:
                yield "one"
            finally:
                raise NotFound

    async def take(made: Any) -> None:
        assert await anext(made) == "one"
        await made.aclose()

    rein = Rein()
    client: Any = rein.wrap(Service(), connector="service")
    with rein.session() as session:
        lines = client.lines()
        assert next(lines) == "one"
        with pytest.raises(NotFound):
            lines.close()
        with pytest.raises(NotFound):
            asyncio.run(take(client.later()))
    ended = [(e.view["items"], e.view["ended"]) for e in session.events() if e.kind == "consumed"]
    assert ended == [(1, "closed"), (1, "closed")]
