"""CrewAI: crews, agents, flows, tools and models under supervision.

    from checkrein_integrations.crewai import supervise

    with supervise(rein):
        crew.kickoff()

Raises `ConfigError` on import where the package of the extra is missing, or is one that the
adapter does not know.
"""

from __future__ import annotations

from checkrein_integrations.crewai.resuming import aresume, resume
from checkrein_integrations.crewai.retracting import AnswerRetractedEvent
from checkrein_integrations.crewai.supervise import supervise
from checkrein_integrations.crewai.supervised import (
    supervise_model,
    supervise_tools,
    supervised_tool,
)

__all__ = [
    "AnswerRetractedEvent",
    "aresume",
    "resume",
    "supervise",
    "supervise_model",
    "supervise_tools",
    "supervised_tool",
]
