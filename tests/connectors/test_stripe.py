"""Stripe's own SDK against a stand-in over HTTP."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

pytest.importorskip("stripe")

import stripe

from checkrein import Rein, errors
from checkrein_plugins import connectors

from .conftest import StandIn, statuses


class Stripe:
    """Objects by id, and the keys under which they were made."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, str] = {}
        self.fail = 0

    def __call__(self, method: str, path: str, body: Any, headers: Any) -> tuple[int, Any]:
        if self.fail:
            self.fail -= 1
            return 503, {"error": {"message": "later", "type": "api_error"}}
        kind, _, rest = path.removeprefix("/v1/").partition("/")
        id, _, verb = rest.partition("/")
        body = {k: v for k, v in body.items() if not k.startswith("expand")}
        if method == "POST" and not id:
            key = headers.get("Idempotency-Key", "")
            id = self.keys.setdefault(key, f"{kind[:3]}_{len(self.objects) + 1}")
            self.objects.setdefault(id, {"id": id, "object": kind[:-1], "active": True, **body})
        elif id not in self.objects:
            return 404, {"error": {"message": "no such object", "type": "invalid_request_error"}}
        elif verb == "cancel" or method == "DELETE":
            return 200, {**self.objects.pop(id), "deleted": True}
        elif method == "POST":
            self.objects[id].update(body)
        return 200, self.objects[id]


@pytest.fixture
def shop(rein: Rein, service: StandIn) -> tuple[Any, Stripe]:
    service.answer = books = Stripe()
    client = stripe.StripeClient(
        "sk_test_x", base_addresses={"api": service.url}, max_network_retries=0
    )
    wrapped = rein.wrap(
        client, connector="stripe", table=connectors.STRIPE, retryable=["v1.products.create"]
    )
    return wrapped, books


def test_what_was_made_and_changed_is_taken_back(
    go: Any, rein: Rein, shop: tuple[Any, Stripe]
) -> None:
    client, books = shop
    with rein.session() as before:
        old = client.v1.customers.create({"email": "old@example.org"})
    with rein.session() as session:
        client.v1.customers.update(old.id, {"email": "new@example.org", "name": "Ann"})
        product = client.v1.products.create({"name": "tea"})
        price = client.v1.prices.create({"product": product.id, "currency": "eur"})
        client.v1.subscriptions.create({"customer": old.id})
        client.v1.refunds.create({"charge": "ch_1"})
    assert old.email == "old@example.org" and len(books.objects) == 5
    report = go.run(rein, "rollback", session.id)
    assert statuses(report) == [
        ("v1.refunds.create", "not_undoable"), ("v1.subscriptions.create", "undone"),
        ("v1.prices.create", "undone"), ("v1.products.create", "undone"),
        ("v1.customers.update", "undone"),
    ]  # fmt: skip
    assert books.objects[old.id]["email"] == "old@example.org"
    assert books.objects[old.id]["name"] == ""
    assert books.objects[price.id]["active"] in (False, "false", "False")
    assert product.id not in books.objects
    assert go.run(rein, "rollback", before.id).complete and old.id not in books.objects


def test_one_key_reaches_the_service_at_every_attempt(
    rein: Rein, shop: tuple[Any, Stripe], service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from checkrein import wrap

    monkeypatch.setattr(wrap, "DELAY", 0.0)
    client, books = shop
    books.fail = 2
    with rein.session():
        client.v1.products.create({"name": "tea"})
        books.fail = 1
        with pytest.raises(stripe.APIError):
            client.v1.customers.create({"email": "a@example.org"})
    keys = [headers["Idempotency-Key"] for *_, headers in service.seen]
    assert len(keys) == 4 and len(set(keys)) == 2 and keys[0] == keys[2] != keys[3]
    assert len(books.objects) == 1


def test_the_sdk_s_own_errors_and_types(rein: Rein, shop: tuple[Any, Stripe]) -> None:
    client, _ = shop
    assert isinstance(client, stripe.StripeClient)
    with rein.session() as session:
        with pytest.raises(stripe.InvalidRequestError):
            client.v1.customers.retrieve("cus_no")
        with pytest.raises(errors.Denied, match="could not be read"):
            client.v1.customers.update("cus_no", {"name": "x"})
        made = client.v1.customers.create({"email": "a@example.org"})
        assert isinstance(made, stripe.Customer) and re.fullmatch(r"cus_\d", made.id)
    names = [e.view["name"] for e in session.events() if e.kind == "intent"]
    assert names == ["stripe.v1.customers.create"]


def test_a_pickle_of_the_client_is_a_reference_without_its_key(shop: tuple[Any, Stripe]) -> None:
    client, _ = shop
    dumped = pickle.dumps(client)
    assert pickle.loads(dumped) is client and b"sk_test" not in dumped
