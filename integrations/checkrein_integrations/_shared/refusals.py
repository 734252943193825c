"""Texts that models are given in place of a result."""

from __future__ import annotations


def in_doubt(tool: str) -> str:
    """For a call that was started, and of which no result is known."""
    return (
        f"[in_doubt] {tool} was started and no result is known: it may have taken effect. It is "
        "not repeated, and asking for it again could do it twice."
    )
