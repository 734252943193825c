"""The refund desk: the tools that the agent may use, and what undoes each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkrein import Absent, Call, Present, Rein
from checkrein_integrations.demo.world import World

SETTLE = 2.0
"""Seconds after which the payment service has applied whatever it received."""


@dataclass
class Desk:
    """The declared tools as supervised functions."""

    look_up_order: Any
    pay_refund: Any
    record_refund: Any
    send_mail: Any

    @property
    def tools(self) -> list[Any]:
        """All of them, as a framework wants them."""
        return [self.look_up_order, self.pay_refund, self.record_refund, self.send_mail]


def policy(
    *, ask_above: float = 100.0, cap_usd: float | None = None, calls: int | None = None
) -> dict[str, Any]:
    """The policy of the desk, as it would stand in a checkrein.toml."""
    budget: dict[str, Any] = {"per": "session"}
    if cap_usd is not None:
        budget["usd"] = cap_usd
    if calls is not None:
        budget["calls"] = calls
    plugins: dict[str, Any] = {
        "redaction": {"per_tool": {"send_mail": {"keep": ["email"]}}},
        "scope": {
            "rules": [
                {
                    "tool": "pay_refund",
                    "arguments": {"amount": {"ask_above": ask_above, "maximum": 1000.0}},
                },
                {"tool": "deliver", "arguments": {"to": {"match": r"[^@\s]+@example\.(org|net|com)"}}},
            ],
        },
        "cost": {},
    }
    if len(budget) > 1:
        plugins["budget"] = budget
    return {"plugins": plugins}


def open_desk(rein: Rein, world: World) -> Desk:
    """Declare the desk's tools in `rein`.

    Each write takes its key from the order, so that whoever asks again asks for the same.
    """

    def look_up_order(order: str) -> dict[str, Any]:
        """Look up an order, its complaint and its customer."""
        row = world.row(
            "select o.id, o.item, o.cents, o.complaint, c.name, c.email, c.phone "
            "from orders o join customers c on c.id = o.customer where o.id = ?", order,
        )  # fmt: skip
        return row or {"error": f"no order {order}"}

    def pay_refund(order: str, amount: float) -> dict[str, Any]:
        """Pay a refund in dollars to the customer of an order."""
        return world.pay(f"pay-{order}", order, round(amount * 100))

    def unpay(order: str) -> None:
        world.reverse(f"pay-{order}")

    def is_paid(order: str) -> Present | Absent:
        found = world.paid(f"pay-{order}")
        return Present(found) if found else Absent()

    def record_refund(order: str, amount: float) -> str:
        """Record a refund in the shop's database."""
        with world.shop() as db:
            db.execute(
                "insert or replace into refunds values (?, ?, ?)",
                (order, round(amount * 100), f"row-{order}"),
            )
        return f"refund of order {order} recorded"

    def unrecord(order: str) -> None:
        with world.shop() as db:
            db.execute("delete from refunds where ord = ?", (order,))

    def is_recorded(order: str) -> bool:
        return world.row("select ord from refunds where ord = ?", order) is not None

    def deliver(order: str, to: str, text: str) -> str:
        return world.mail(f"mail-{order}", to, f"Your refund for order {order}", text)

    def send_mail(order: str, text: str) -> str:
        """Mail the customer of an order; the desk knows the address."""
        row = world.row(
            "select c.email from orders o join customers c on c.id = o.customer where o.id = ?",
            order,
        )
        if row is None:
            raise LookupError(f"no order {order}")
        mailer(order, row["email"], text)
        return f"customer of order {order} was mailed"

    def recall(order: str) -> None:
        world.recall(f"mail-{order}")

    def is_mailed(order: str) -> bool:
        return world.mailed(f"mail-{order}")

    mailer = rein.tool(
        name="deliver", effect="egress", undo=recall, probe=is_mailed, settle_time=0,
        sinks=("to",),
    )(deliver)  # fmt: skip
    return Desk(
        look_up_order=rein.tool(effect="read", idempotent=True)(look_up_order),
        pay_refund=rein.tool(
            undo=unpay, probe=is_paid, settle_time=SETTLE, idempotent=True
        )(pay_refund),
        record_refund=rein.tool(
            undo=unrecord, probe=is_recorded, settle_time=0, idempotent=True
        )(record_refund),
        # It acts only through `deliver`, which is supervised itself.
        send_mail=rein.tool(effect="read")(send_mail),
    )


def refund(desk: Desk, order: str, amount: float) -> None:
    """One refund without a model: pay, record, mail."""
    desk.look_up_order(order)
    desk.pay_refund(order, amount)
    desk.record_refund(order, amount)
    desk.send_mail(order, f"We refunded ${amount:.2f}.")


def stored_call(call: Call) -> str:
    """How a call is named in the demo's output."""
    return f"{call.name}({', '.join(map(str, call.arguments.values()))})"
