"""Every ready table against the installed SDK: its methods, their parameters, their undos."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein
from checkrein.connectors import connector_of
from checkrein_plugins import connectors


def stripe() -> Any:
    import stripe

    return stripe.StripeClient("sk_test_x", base_addresses={"api": "http://127.0.0.1:1"})


def github() -> Any:
    import github

    return github.Github(base_url="http://127.0.0.1:1")


def slack() -> Any:
    import slack_sdk

    return slack_sdk.WebClient(base_url="http://127.0.0.1:1/")


def s3() -> Any:
    import boto3

    return boto3.client(
        "s3", region_name="us-east-1", endpoint_url="http://127.0.0.1:1",
        aws_access_key_id="x", aws_secret_access_key="x",
    )  # fmt: skip


def sqlalchemy() -> Any:
    import sqlalchemy

    return connectors.Database(
        sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.StaticPool)
    )


CLIENTS: dict[str, tuple[Callable[[], Any], Path]] = {
    "stripe": (stripe, connectors.STRIPE),
    "github": (github, connectors.GITHUB),
    "slack": (slack, connectors.SLACK),
    "s3": (s3, connectors.S3),
    "sqlalchemy": (sqlalchemy, connectors.SQLALCHEMY),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_table_fits_the_installed_sdk(name: str) -> None:
    make, path = CLIENTS[name]
    client = make()
    with Rein() as rein:
        # Without network: every undo, reader and probe is compiled against the client's methods.
        rein.wrap(client, connector=name, table=path)
        found = connector_of(name, path)
        table = found.table
        assert table is not None
        for method, about in table.methods.items():
            tool = rein.tools.get(f"{name}.{method}")
            if method.partition(".")[0] in set(table.classes) - set(found.chains):
                continue  # of objects that only this process holds
            assert tool is not None and tool.fn is not None, method
            if about.operation == "read":
                continue
            assert tool.undo is not None or tool.info.irreversible, method
            assert (tool.before is not None) == (about.before is not None), method
        acting = [m for m in table.methods.values() if m.operation != "read"]
        assert len(acting) >= 10
        assert sum(m.undo != "none" for m in acting) >= 10
    installed = version(table.package)
    assert installed.partition(".")[0] == table.tested.partition(".")[0]


def test_the_operations_of_s3_are_the_service_s() -> None:
    model = s3().meta.service_model
    from botocore import xform_name

    known = {xform_name(name) for name in model.operation_names}
    table = connector_of("s3", connectors.S3).table
    assert table is not None and set(table.methods) <= known


def test_every_method_of_our_own_clients_is_in_their_table() -> None:
    for client, path in (
        (connectors.Database, connectors.SQLALCHEMY), (connectors.Files, connectors.FILES),
    ):  # fmt: skip
        table = connector_of(path.stem, path).table
        assert table is not None
        public = {n for n, f in inspect.getmembers(client, inspect.isfunction) if n[0] != "_"}
        inner = {"table", "took_effect", "at", "keep", "put_back", "read", "list"}
        assert public - inner == set(table.methods)
