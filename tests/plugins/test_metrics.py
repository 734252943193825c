"""Metrics: what calls took, used and cost, read from the events of a real run."""

import pytest

from checkrein import Ask, Deny, Plugin, Rein
from checkrein.errors import ConfigError, Denied
from checkrein.verdicts import Approved
from checkrein_plugins.budget import Budget
from checkrein_plugins.cost import Cost
from checkrein_plugins.metrics import OTHER, Metrics

sdk = pytest.importorskip("opentelemetry.sdk.metrics")
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402 - meant so

PRICES = {"m": {"input": 1000.0, "output": 1000.0}}


class Guard(Plugin):
    def pre_call(self, call):
        if call.name == "wipe":
            return Deny("secret reason", rule="no")
        return Ask("large", rule="limit") if call.name == "big" else None

    def on_approval(self, call, request):
        return Approved("anna")


class Measured:
    def __init__(self, *plugins, **settings):
        self.reader = InMemoryMetricReader()
        self.provider = sdk.MeterProvider([self.reader])
        metrics = Metrics(meter_provider=self.provider, **settings)
        self.rein = Rein(plugins=[Guard(), *plugins, metrics], store="memory:")

    def points(self):
        """Metric -> its points."""
        data = self.reader.get_metrics_data()
        found = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = list(metric.data.data_points)
        return found

    def values(self, name):
        """(attributes without prefixes, value or count) of the points of a metric."""
        return [
            (
                {key.rpartition(".")[2]: value for key, value in point.attributes.items()},
                point.count if hasattr(point, "count") else point.value,
            )
            for point in self.points().get(name, ())
        ]


@pytest.fixture
def make():
    made = []

    def make(*plugins, **settings):
        made.append(Measured(*plugins, **settings))
        return made[-1]

    yield make
    for one in made:
        one.rein.close()
        one.provider.shutdown()


def provider(**request):
    return {"model": "m", "usage": {"prompt_tokens": 100, "completion_tokens": 20}}


def test_model_calls_tokens_durations_and_cost(make):
    at = make(Budget(usd=10.0, per="session", prices=PRICES), Cost(overlay=PRICES))
    with at.rein.session(user="someone"):
        for _ in range(2):
            at.rein.model_call(provider, model="m", messages=[])
    tokens = {a["type"]: n for a, n in at.values("gen_ai.client.token.usage")}
    assert tokens == {"input": 2, "output": 2}
    (point,) = [
        p for p in at.points()["gen_ai.client.token.usage"]
        if p.attributes["gen_ai.token.type"] == "input"
    ]  # fmt: skip
    assert point.sum == 200
    ((about, count),) = at.values("gen_ai.client.operation.duration")
    assert (about["name"], about["model"], count) == ("chat", "m", 2)
    ((_, cost),) = at.values("checkrein.cost")
    assert cost == pytest.approx(2 * 0.12)
    assert ({"plugin": "budget", "verdict": "hold"}, 2) in at.values("checkrein.verdicts")
    ((about, left),) = at.values("checkrein.budget.remaining")
    assert about == {"budget": "budget", "unit": "usd"}
    assert left == pytest.approx(10 - 0.24)


def test_verdicts_approvals_undo_and_doubt(make):
    at = make()

    @at.rein.tool(undo=lambda order: None, name="pay")
    def pay(order):
        return None

    @at.rein.tool(name="wipe")
    def wipe():
        return None

    @at.rein.tool(name="big")
    def big():
        return None

    @at.rein.tool(name="shaky")
    def shaky():
        raise OSError("secret detail")

    with at.rein.session(on_error="keep") as session:
        pay("secret order")
        big()
        with pytest.raises(Denied):
            wipe()
        with pytest.raises(OSError, match="detail"):
            shaky()
    session.rollback()
    assert at.values("checkrein.undo.results") == [({"name": "pay", "state": "done"}, 1)]
    assert at.values("checkrein.in_doubt") == [({"name": "shaky"}, 1)]
    assert at.values("checkrein.approvals.wait") == [({"decision": "approved"}, 1)]
    assert at.values("checkrein.approvals.pending") == [({}, 0)]
    verdicts = {(a["plugin"], a["verdict"]): n for a, n in at.values("checkrein.verdicts")}
    assert verdicts["guard", "denied"] == 1
    durations = {a["name"]: a for a, _ in at.values("gen_ai.client.operation.duration")}
    assert set(durations) == {"pay", "big", "shaky", "pay.undo"}
    assert "secret" not in str(at.points())


def test_a_call_that_waits_is_pending(make):
    class Asks(Plugin):
        def pre_call(self, call):
            return Ask("large", rule="limit")

    reader = InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])
    rein = Rein(
        plugins=[Asks(), Metrics(meter_provider=provider)], store="memory:", wait="suspend",
        approvals="store",
    )  # fmt: skip
    with rein.session():
        with pytest.raises(Exception, match="approval"):
            rein.call(max, 1, 2)
        (resource,) = reader.get_metrics_data().resource_metrics
        found = {m.name: m for m in resource.scope_metrics[0].metrics}
        (point,) = found["checkrein.approvals.pending"].data.data_points
        assert point.value == 1
    rein.close()
    provider.shutdown()


def test_attributes_are_bounded(make):
    at = make(most_names=3)
    with at.rein.session():
        for number in range(10):

            def tool():
                return None

            at.rein.tool(tool, name=f"tool-{number}")()
    found = {a["name"]: n for a, n in at.values("gen_ai.client.operation.duration")}
    assert found == {"tool-0": 1, "tool-1": 1, "tool-2": 1, OTHER: 7}


def test_after_the_rein_is_closed_nothing_is_observed():
    reader = InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])
    Rein(plugins=[Metrics(meter_provider=provider)], store="memory:").close()
    data = reader.get_metrics_data()
    assert not data or not data.resource_metrics
    provider.shutdown()


def test_wrong_settings():
    with pytest.raises(ConfigError, match=r"metrics\.meter_provider"):
        Metrics(meter_provider=3)
    with pytest.raises(ConfigError, match=r"metrics\.most_names"):
        Metrics(most_names=0)
    with pytest.raises(ConfigError, match="unknown key 'x'"):
        Metrics(x=1)
