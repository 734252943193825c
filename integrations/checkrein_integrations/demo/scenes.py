"""The five scenes of the demo."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from checkrein.errors import BudgetExceeded
from checkrein_integrations.demo import agent
from checkrein_integrations.demo.agent import Heard
from checkrein_integrations.demo.cast import PRICES, Cast
from checkrein_integrations.demo.desk import CaseSystemDown
from checkrein_integrations.demo.world import CUSTOMERS
from checkrein_integrations.testing.langchain import ai, call

DEAR, DEAR_CAP = "o1", 0.3
"""A model at six times the price, and the dollars of a cap from which on it plays the loop."""


def private_data(cast: Cast) -> None:
    """(a) The model gets redacted data, the mail the real address."""
    stage, world = cast.stage, cast.world
    stage.scene(
        "a", "Customer data stays in",
        "The agent refunds order o1. What leaves for the model is redacted on the way.",
    )  # fmt: skip
    before, heard = world.balance(), Heard()
    question = "casey.doyle@example.org asks for a refund of order o1. Please refund it in full."
    steps = agent.refund_steps("o1", PRICES["o1"])
    with cast.session("a", "refund o1"):
        answer = agent.run(
            cast.desk, heard=heard, question=question,
            model=cast.model([*steps, ai("Order o1 is refunded.")]),
        )  # fmt: skip
    stored = json.dumps(cast.desk.look_up_order("o1"))
    secrets = [v for row in CUSTOMERS for v in row[1:]] + ["4111 1111 1111 1111"]
    found = [secret for secret in secrets if secret in heard.text()]
    to = [str(mail["To"]) for mail in world.mails()]
    searched = (
        f"{len(heard.text())} characters in {len(heard.requests)} requests to the model: "
        f"{len(found)} of the customers' {len(secrets)} addresses and numbers found"
    )
    stage.pairs(
        ("the user wrote", question),
        ("the model got", heard.question()),
        ("the shop has", stored),
        ("the model got", heard.result_of("look_up_order")),
        ("searched", searched, "bad" if found else "good"),
        ("mail went to", ", ".join(to), "good"),
        ("the agent said", answer),
        ("before", before),
        ("after", world.balance()),
    )
    stage.fact(
        leaked=found, mailed_to=to, model_got=heard.result_of("look_up_order"),
        before=str(before), after=str(world.balance()),
    )  # fmt: skip


def big_refund(cast: Cast, how: str) -> None:
    """(b) A refund above the limit waits for a person."""
    stage, world = cast.stage, cast.world
    stage.scene(
        "b", "A person is asked",
        "Order o2 costs $269. The policy asks a person above $100, and nothing is held meanwhile.",
    )  # fmt: skip
    if how:
        stage.say(how, "wait")
    before, heard = world.balance(), Heard()
    with cast.session("b", "refund o2"):
        answer = agent.run(
            cast.desk, heard=heard, question="Refund order o2 in full: it never arrived.",
            model=cast.model([*agent.refund_steps("o2", PRICES["o2"]), _last_words("o2")]),
        )  # fmt: skip
    decided = [r.state for r in cast.rein.read(cast.sessions["b"]).records("approval")]
    after = world.balance()
    stage.pairs(
        ("pay_refund gave", heard.result_of("pay_refund")),
        ("the agent said", answer),
        ("before", before),
        ("after", after),
    )
    stage.fact(approvals=decided, said=answer, before=str(before), after=str(after))


def _last_words(order: str) -> Callable[[Any], Any]:
    def step(messages: Any) -> Any:
        refused = getattr(messages[-1], "status", "") == "error"
        return ai(
            f"Order {order} is NOT refunded: a person said no."
            if refused
            else f"Order {order} is refunded."
        )

    return step


def late_failure(cast: Cast) -> None:
    """(c) The last step fails: everything before it is undone, newest first."""
    stage, world = cast.stage, cast.world
    stage.scene(
        "c", "A late failure is undone",
        "Order o3 is paid, recorded and mailed; then the case system is down.",
    )  # fmt: skip
    before, heard = world.balance(), Heard()
    cast.case_system_down.append("o3")
    error = ""
    try:
        with cast.session("c", "refund o3"):
            agent.run(
                cast.desk, heard=heard,
                question="Refund order o3 in full: it has the wrong size.",
                model=cast.model([*agent.refund_steps("o3", PRICES["o3"]), ai("Done.")]),
            )  # fmt: skip
    except CaseSystemDown as raised:
        error = str(raised)
    after = world.balance()
    undone = [
        str(event.view["name"]).removesuffix(".undo")
        for event in cast.rein.read(cast.sessions["c"]).events()
        if event.kind == "intent" and event.view["kind"] == "undo"
    ]
    stage.pairs(
        ("the model got", heard.result_of("send_mail")),
        ("then it failed", error or "(the model did not get that far)"),
        ("undone", " -> ".join(undone)),
        ("before", before),
        ("at the failure", cast.at_failure[-1] if cast.at_failure else ""),
        ("after", after),
    )
    same = before == after
    stage.say(
        "the world is as it was" if same else "NOT as it was: see checkrein show",
        "good" if same else "bad",
    )
    stage.fact(
        error=error, undone=undone, before=str(before), during=cast.at_failure[-1:],
        after=str(after), restored=same,
    )  # fmt: skip


def runaway(cast: Cast) -> None:
    """(d) A loop is stopped before the call that would pass the cap."""
    stage = cast.stage
    stage.scene(
        "d", "A runaway loop is capped",
        f"A (scripted) model asks for the same order for ever. A session may spend ${cast.cap:g}.",
    )  # fmt: skip
    loop = [ai("", call("look_up_order", order="o4")) for _ in range(60)]
    # Under the higher cap of a real model a dearer one gets there in as few calls.
    priced_as = agent.PRICED_AS if cast.cap < DEAR_CAP else DEAR
    heard, refusal = Heard(), ""
    try:
        with cast.session("d", "a loop"):
            agent.run(
                cast.desk, heard=heard, question="Look up order o4 until you are sure.",
                model=agent.scripted(loop, priced_as),
            )  # fmt: skip
    except BudgetExceeded as raised:
        refusal = str(raised)
    spend = cast.rein.read(cast.sessions["d"]).spend()
    stage.pairs(
        ("the model got", heard.result_of("look_up_order")),
        ("stopped by", refusal or "(nothing)"),
        ("spent", f"${spend.usd:.6f} of ${cast.cap:g} in {len(heard.requests)} model calls"),
    )
    within = bool(refusal) and spend.nano_usd <= round(cast.cap * 1e9)
    stage.say(
        "the call that could have passed the cap was never sent" if within else "NOT capped",
        "good" if within else "bad",
    )
    stage.fact(
        within=within,
        refusal=refusal,
        spent=spend.usd,
        cap=cast.cap,
        model_calls=len(heard.requests),
    )
