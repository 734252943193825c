"""The refund desk: the tools that the agent may use, and what undoes each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from checkrein import Absent, Present, Rein
from checkrein_integrations.demo.world import World

AGENT = "refund-desk"
"""Name of the agent that works here."""

SETTLE = 2.0
"""Seconds after which the payment service has applied whatever it received."""


class CaseSystemDown(Exception):
    """The case system refused the connection: nothing was started."""


@dataclass(frozen=True, slots=True)
class Desk:
    """The desk's tools: plain functions that were declared in a Rein."""

    rein: Rein
    look_up_order: Callable[[str], dict[str, Any]]
    pay_refund: Callable[[str, float], dict[str, Any]]
    record_refund: Callable[[str, float], str]
    send_mail: Callable[[str, str], str]
    close_case: Callable[[str], str]

    @property
    def tools(self) -> list[Callable[..., Any]]:
        """All of them, as a framework wants them."""
        return [
            self.look_up_order, self.pay_refund, self.record_refund, self.send_mail,
            self.close_case,
        ]  # fmt: skip

    def refund(self, order: str, amount: float) -> None:
        """One refund without a model: look up, pay, record, mail. Needs an open session."""
        call = self.rein.call
        call(self.look_up_order, order)
        call(self.pay_refund, order, amount)
        call(self.record_refund, order, amount)
        call(self.send_mail, order, f"We refunded ${amount:.2f}.")


def open_desk(
    rein: Rein,
    world: World,
    *,
    settle: float = SETTLE,
    case_system: Callable[[str], None] | None = None,
) -> Desk:
    """Declare the desk's tools in `rein`.

    Each write takes its key from the order, so that whoever asks again asks for the same.
    `case_system` is called with the order whose case is closed; it may raise `CaseSystemDown`.
    """

    def look_up_order(order: str) -> dict[str, Any]:
        """Look up an order: item, price, the complaint and how to reach the customer."""
        row = world.row(
            "select o.id, o.item, o.cents, o.complaint, c.email, c.phone "
            "from orders o join customers c on c.id = o.customer where o.id = ?", order,
        )  # fmt: skip
        if row is None:
            return {"error": f"no order {order}"}
        return {"price": row.pop("cents") / 100, **row}

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
            db.execute("insert or replace into refunds values (?, ?)", (order, round(amount * 100)))
        return f"refund of order {order} recorded"

    def unrecord(order: str) -> None:
        world.unrecord(order)

    def is_recorded(order: str) -> bool:
        return world.row("select ord from refunds where ord = ?", order) is not None

    def deliver(order: str, to: str, text: str) -> str:
        return world.mail(f"mail-{order}", to, f"Your refund for order {order}", text)

    def recall(order: str) -> None:
        world.recall(f"mail-{order}")

    def is_mailed(order: str) -> bool:
        return world.mailed(f"mail-{order}")

    def send_mail(order: str, text: str) -> str:
        """Mail the customer of an order; the desk knows the address."""
        row = world.row(
            "select c.email from orders o join customers c on c.id = o.customer where o.id = ?",
            order,
        )
        if row is None:
            raise LookupError(f"no order {order}")
        rein.call(deliver, order, row["email"], text)
        return f"the customer of order {order} was mailed"

    def close_case(order: str) -> str:
        """Close the customer's case; the last step of a refund."""
        if case_system is not None:
            case_system(order)
        with world.shop() as db:
            db.execute("insert or ignore into closed values (?)", (order,))
        return f"the case of order {order} is closed"

    def reopen(order: str) -> None:
        with world.shop() as db:
            db.execute("delete from closed where ord = ?", (order,))

    def is_closed(order: str) -> bool:
        return world.row("select ord from closed where ord = ?", order) is not None

    rein.declare("look_up_order", fn=look_up_order, effect="read", idempotent=True)
    rein.declare("pay_refund", fn=pay_refund, undo=unpay, probe=is_paid, settle_time=settle)
    rein.declare("record_refund", fn=record_refund, undo=unrecord, probe=is_recorded, settle_time=0)
    rein.declare(
        "deliver", fn=deliver, effect="egress", undo=recall, probe=is_mailed, settle_time=0,
        sinks=("to",),
    )  # fmt: skip
    rein.declare(
        "close_case", fn=close_case, undo=reopen, probe=is_closed, settle_time=0,
        no_effect_on=(CaseSystemDown,),
    )  # fmt: skip
    # It acts only through `deliver`, which is supervised itself.
    rein.declare("send_mail", fn=send_mail, effect="read")
    return Desk(rein, look_up_order, pay_refund, record_refund, send_mail, close_case)
