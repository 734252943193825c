"""What OpenAI's own clients do of themselves."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("openai")

from openai import InternalServerError, OpenAI

from checkrein.testing import Failure, OpenAIServer

HI: Any = [{"role": "user", "content": "hi"}]


def test_openai_names_failures_by_their_status() -> None:
    with (
        OpenAIServer([Failure(500, "provider down")]) as server,
        OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
        pytest.raises(InternalServerError, match="provider down"),
    ):
        client.chat.completions.create(model="m", messages=HI)


def test_openai_cut_stream_tells_no_usage() -> None:
    """Usage comes with the last chunk: who closes the stream before does not get it."""
    with (
        OpenAIServer(["one two three"]) as server,
        OpenAI(base_url=server.url, api_key="none") as client,
    ):
        options: Any = {"include_usage": True}
        stream: Any = client.chat.completions.create(
            model="m", messages=HI, stream=True, stream_options=options
        )
        seen = [next(stream), next(stream)]
        stream.close()
    assert seen[-1].choices[0].delta.content == "one "
    assert all(chunk.usage is None for chunk in seen)
