"""OpenAI's own clients under supervision: chat completions and responses, plain and streamed.

    from checkrein_integrations.openai import supervise_client

    client = supervise_client(rein, OpenAI())

Raises `ConfigError` on import where the packages of the extra are missing.
"""

from __future__ import annotations

from checkrein_integrations._shared.retracting import AnswerRetracted
from checkrein_integrations.openai.chat_stream import RetractedChunk
from checkrein_integrations.openai.client import supervise_client

__all__ = ["AnswerRetracted", "RetractedChunk", "supervise_client"]
