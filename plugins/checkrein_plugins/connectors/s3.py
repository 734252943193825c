"""Objects, tags and policies of S3 as they stood before, and how they are put back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LARGEST = 8 * 1024 * 1024
"""Bytes of an object above which it is not read: its overwriting is then not undoable."""

_KEPT = (
    "ContentType", "Metadata", "CacheControl", "ContentDisposition", "ContentEncoding",
    "ContentLanguage", "StorageClass",
)  # fmt: skip


def _code(error: Any) -> str:
    found: str = error.response.get("Error", {}).get("Code", "")
    return found


def _object(client: Any, bucket: str, key: str) -> dict[str, Any]:
    from botocore.exceptions import ClientError  # pyright: ignore[reportMissingImports]  # not in every environment

    try:
        found = client.get_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if _code(error) in ("NoSuchKey", "404"):
            return {}
        raise
    if found["ContentLength"] > LARGEST:
        raise ValueError(f"the object has {found['ContentLength']} bytes, more than is kept")
    return {"Body": found["Body"].read(), **{k: found[k] for k in _KEPT if found.get(k)}}


def object_before(client: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The object at a call's key; empty if there is none."""
    given = arguments["kwargs"]
    return _object(client, given["Bucket"], given["Key"])


def object_back(client: Any, kwargs: dict[str, Any], before: dict[str, Any]) -> None:
    """Put an object back as it was, or delete what was not there."""
    _put(client, kwargs["Bucket"], kwargs["Key"], before)


def _put(client: Any, bucket: str, key: str, before: dict[str, Any]) -> None:
    if before:
        client.put_object(Bucket=bucket, Key=key, **before)
    else:
        client.delete_object(Bucket=bucket, Key=key)


def objects_before(client: Any, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects at the keys of a call."""
    given = arguments["kwargs"]
    keys = [found["Key"] for found in given["Delete"]["Objects"]]
    return [{"Key": key, "object": _object(client, given["Bucket"], key)} for key in keys]


def objects_back(client: Any, kwargs: dict[str, Any], before: list[dict[str, Any]]) -> None:
    """Put objects back as they were."""
    for found in before:
        _put(client, kwargs["Bucket"], found["Key"], found["object"])


def object_tags(client: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The tags of an object."""
    given = arguments["kwargs"]
    found = client.get_object_tagging(Bucket=given["Bucket"], Key=given["Key"])
    return {"TagSet": found["TagSet"]}


def bucket_tags(client: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The tags of a bucket; empty if it has none."""
    from botocore.exceptions import ClientError  # pyright: ignore[reportMissingImports]  # not in every environment

    try:
        found = client.get_bucket_tagging(Bucket=arguments["kwargs"]["Bucket"])
    except ClientError as error:
        if _code(error) == "NoSuchTagSet":
            return {}
        raise
    return {"TagSet": found["TagSet"]}


def bucket_tags_back(client: Any, kwargs: dict[str, Any], before: dict[str, Any]) -> None:
    """Give a bucket the tags that it had."""
    if before:
        client.put_bucket_tagging(Bucket=kwargs["Bucket"], Tagging=before)
    else:
        client.delete_bucket_tagging(Bucket=kwargs["Bucket"])


def bucket_policy(client: Any, arguments: Mapping[str, Any]) -> str:
    """The policy of a bucket; empty if it has none."""
    from botocore.exceptions import ClientError  # pyright: ignore[reportMissingImports]  # not in every environment

    try:
        found: str = client.get_bucket_policy(Bucket=arguments["kwargs"]["Bucket"])["Policy"]
    except ClientError as error:
        if _code(error) == "NoSuchBucketPolicy":
            return ""
        raise
    return found


def bucket_policy_back(client: Any, kwargs: dict[str, Any], before: str) -> None:
    """Give a bucket the policy that it had."""
    if before:
        client.put_bucket_policy(Bucket=kwargs["Bucket"], Policy=before)
    else:
        client.delete_bucket_policy(Bucket=kwargs["Bucket"])
