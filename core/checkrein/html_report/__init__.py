"""A session as one HTML file: timeline, verdicts, costs, approvals and undo, for people.

    from checkrein.html_report import html_report
    Path("session.html").write_text(html_report(Replay(rein.read(id))), encoding="utf-8")

The file needs no network and loads nothing: its policy forbids it to. It shows the journal's
view, so what plugins redact is redacted in it too.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from checkrein.replay import Frame, Replay

TEXTS = 3_200_000
"""Characters that the texts of all rows may take: with figures and page under 5 MB."""
WIDEST = 2_000
"""Characters of one text of a row, at most."""


def html_report(replay: Replay, about: Mapping[str, object] | None = None) -> str:
    """The page. `about`: names and values that stand under its title (agent, state ...).

    Texts are cut so that the page stays small: at 2,000 characters, and shorter where there are
    many rows. Raises `Conflict` for a session without events.
    """
    frames = list(replay.frames())
    style, script = _part("page.css"), _part("page.js")
    page = Template(_part("page.html"))
    return page.substitute(
        title=escape(f"Session {replay.id}"),
        style=style, style_hash=_hash(style),
        script=script, script_hash=_hash(script),
        data=_embedded(_data(replay, frames, about or {})),
    )  # fmt: skip


def _part(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As a Content-Security-Policy names an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embedded(data: Any) -> str:
    """JSON that cannot end the element that it stands in, whatever an agent wrote."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


class _Names:
    """Texts that repeat, each once; rows hold their positions."""

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        return self.positions.setdefault(name, len(self.positions))


def _data(replay: Replay, frames: list[Frame], about: Mapping[str, object]) -> dict[str, Any]:
    total = replay.summary()
    width = max(40, min(WIDEST, TEXTS // (4 * len(frames))))
    phases, whats, states = _Names(), _Names(), _Names()
    rows = [
        [
            (frame.at - total.begun) // 1000,
            phases(frame.phase),
            frame.step,
            whats(frame.what),
            states(frame.state),
            frame.us,
            frame.cost,
            frame.tokens,
            frame.attempt if frame.attempt > 1 else 0,
            frame.cost_state,
            _cut(frame.verdict, width),
            _cut(frame.undo, width),
            _cut(_text(frame.arguments), width),
            _cut(_text(frame.result), width),
            _cut(frame.detail, width),
        ]
        for frame in frames
    ]
    verdicts = Counter(
        told for frame in frames for told in frame.verdict.split(", ") if frame.verdict
    )
    denied = total.outcomes.get("denied", 0)
    unknown = total.outcomes.get("unknown", 0)
    asked = total.approvals.get("approval_requested", 0)
    cards = [
        (f"{total.tokens:,}", "tokens"),
        (f"{sum(total.outcomes.values()):,}", "calls"),
        (f"{denied:,}", "denied"),
        (f"{asked:,}", "approvals asked"),
        (f"{total.undos.get('done', 0):,}", "undos done"),
        (f"{unknown:,}", "outcome unknown"),
        (f"{(total.ended - total.begun) / 1e6:,.1f} s", "took"),
    ]
    if total.unpriced:
        cards.append((f"{total.unpriced:,}", "unpriced: not in the cost"))
    return {
        "title": f"Session {replay.id}",
        "facts": [
            *((str(name), str(value)) for name, value in about.items() if value not in ("", None)),
            ("begun", _when(total.begun)),
            ("last event", _when(total.ended)),
        ],
        "cost": total.cost,
        "cards": cards,
        "verdicts": verdicts.most_common(),
        "names": {"phase": list(phases.positions), "what": list(whats.positions),
                  "state": list(states.positions)},
        "rows": rows,
        "note": f"Texts are cut at {width} characters; the store holds them whole.",
    }  # fmt: skip


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _when(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(" ", "seconds")
