"""boto3 against moto's server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto")

import boto3
from moto import server

from checkrein import Rein
from checkrein_plugins import connectors
from checkrein_plugins.connectors import s3 as readers

from .conftest import statuses

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def store() -> Iterator[Any]:
    running = server.ThreadedMotoServer(port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    client = boto3.client(
        "s3", region_name="us-east-1", endpoint_url=f"http://{host}:{port}",
        aws_access_key_id="x", aws_secret_access_key="x",
    )  # fmt: skip
    client.create_bucket(Bucket="bkt")
    yield client
    running.stop()


def body(client: Any, key: str) -> bytes:
    found: bytes = client.get_object(Bucket="bkt", Key=key)["Body"].read()
    return found


def test_objects_tags_and_policies_are_put_back(go: Any, rein: Rein, store: Any) -> None:
    store.put_object(
        Bucket="bkt", Key="old", Body=b"one", ContentType="text/x", Metadata={"a": "1"}
    )
    store.put_object(Bucket="bkt", Key="gone", Body=b"two")
    store.put_object_tagging(
        Bucket="bkt", Key="old", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]}
    )
    client = rein.wrap(store, connector="s3", table=connectors.S3)
    with rein.session() as session:
        client.put_object_tagging(
            Bucket="bkt", Key="old", Tagging={"TagSet": [{"Key": "k", "Value": "w"}]}
        )
        client.put_object(Bucket="bkt", Key="old", Body=b"changed")
        client.put_object(Bucket="bkt", Key="new", Body=b"new")
        client.copy_object(Bucket="bkt", Key="copied", CopySource="bkt/old")
        client.delete_object(Bucket="bkt", Key="gone")
        client.delete_objects(Bucket="bkt", Delete={"Objects": [{"Key": "new"}, {"Key": "no"}]})
        client.put_bucket_tagging(Bucket="bkt", Tagging={"TagSet": [{"Key": "team", "Value": "x"}]})
        client.put_bucket_policy(Bucket="bkt", Policy='{"Version": "2012-10-17", "Statement": []}')
        client.create_multipart_upload(Bucket="bkt", Key="big")
        client.create_bucket(Bucket="bk2")
        client.put_bucket_versioning(Bucket="bk2", VersioningConfiguration={"Status": "Enabled"})
    assert body(store, "old") == b"changed"
    report = go.run(rein, "rollback", session.id)
    assert dict(statuses(report)).pop("put_bucket_versioning") == "not_undoable"
    assert [status for _, status in statuses(report)][1:] == ["undone"] * 10
    found = store.get_object(Bucket="bkt", Key="old")
    assert (found["Body"].read(), found["ContentType"], found["Metadata"]) == (
        b"one", "text/x", {"a": "1"},
    )  # fmt: skip
    assert store.get_object_tagging(Bucket="bkt", Key="old")["TagSet"] == [
        {"Key": "k", "Value": "v"}
    ]
    keys = [o["Key"] for o in store.list_objects_v2(Bucket="bkt")["Contents"]]
    assert keys == ["gone", "old"] and body(store, "gone") == b"two"
    assert [b["Name"] for b in store.list_buckets()["Buckets"]] == ["bkt"]
    with pytest.raises(store.exceptions.ClientError):
        store.get_bucket_policy(Bucket="bkt")
    assert "Uploads" not in store.list_multipart_uploads(Bucket="bkt")


def test_what_is_too_large_to_keep_goes_by_the_setting(
    rein: Rein, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from checkrein import errors

    monkeypatch.setattr(readers, "LARGEST", 10)
    store.put_object(Bucket="bkt", Key="big", Body=b"x" * 11)
    client = rein.wrap(store, connector="s3", table=connectors.S3)
    with rein.session(), pytest.raises(errors.Denied, match="could not be read"):
        client.delete_object(Bucket="bkt", Key="big")
    assert body(store, "big") == b"x" * 11
