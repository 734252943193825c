"""How tools and models did: calls, latencies, errors and denials, read from the journal."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checkrein.store import Store

PAGE = 2000
"""Events that are read at once."""

_KINDS = ("intent", "outcome", "denied", "answered")


@dataclass(slots=True)
class ToolStats:
    """One tool or model. Every attempt counts; undos have names of their own."""

    name: str
    kind: str
    calls: int = 0
    """Attempts that were started."""
    errors: int = 0
    """Attempts whose caller got an error."""
    unknown: int = 0
    """Attempts of which nobody knows whether they had their effect."""
    running: int = 0
    """Attempts without an outcome: they run, or their process died."""
    answered: int = 0
    """Calls that a plugin answered; nothing ran."""
    denied: int = 0
    """Calls that were refused; nothing ran."""
    denials: Counter[str] = field(default_factory=Counter)
    """Refusals by rule, or by code where there is none."""
    times: array[int] = field(default_factory=lambda: array("Q"))
    """Microseconds of the attempts that ended, the shortest first."""

    def percentile(self, share: float) -> float | None:
        """Seconds below which `share` of the attempts stayed; None without any."""
        if not self.times:
            return None
        rank = max(0, min(len(self.times) - 1, -int(-share * len(self.times) // 1) - 1))
        return self.times[rank] / 1e6


def tool_stats(
    store: Store,
    *,
    session: str | None = None,
    since: int | None = None,
    until: int | None = None,
) -> list[ToolStats]:
    """What the journal tells of every tool and model, the most called first.

    `since`, `until`: microseconds since the epoch, of the attempts' beginnings and of refusals.
    """
    found: dict[tuple[str, str], ToolStats] = {}
    open_: dict[tuple[str, int], ToolStats] = {}
    after = _place(store, since) if since is not None and session is None else 0
    while True:
        page = store.events(session=session, kinds=_KINDS, after=after, limit=PAGE)
        for event in page:
            view = event.view
            assert isinstance(view, dict)
            if event.kind == "outcome":
                stats = open_.pop((event.call, event.attempt), None)
                if stats is not None:
                    stats.running -= 1
                    stats.times.append(int(view.get("us", 0)))
                    stats.errors += "error" in view
                    stats.unknown += view.get("state") == "unknown"
                continue
            if (since is not None and event.at < since) or (
                until is not None and event.at >= until
            ):
                continue
            name, kind = str(view["name"]), str(view["kind"])
            stats = found.get((kind, name))
            if stats is None:
                stats = found[kind, name] = ToolStats(name, kind)
            if event.kind == "intent":
                stats.calls += 1
                stats.running += 1
                open_[event.call, event.attempt] = stats
            elif event.kind == "denied":
                stats.denied += 1
                stats.denials[str(view.get("rule") or view.get("code") or "")] += 1
            else:
                stats.answered += 1
        if len(page) < PAGE:
            break
        after = page[-1].seq
    for stats in found.values():
        stats.times = array("Q", sorted(stats.times))
    return sorted(found.values(), key=lambda s: (-s.calls, -s.denied, s.kind, s.name))


def _place(store: Store, since: int) -> int:
    """A number below every event from `since` on.

    Times of one store rise, but for clocks that differ by less than a minute.
    """
    last = store.events(reverse=True, limit=1)
    low, high = 0, last[0].seq if last else 0
    while low < high:
        middle = (low + high) // 2
        event = store.events(after=middle, limit=1)
        if event and event[0].at < since - 60_000_000:
            low = event[0].seq
        else:
            high = middle
    return max(0, low - 1)
