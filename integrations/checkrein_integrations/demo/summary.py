"""What the demo shows at its end: a timeline of effects, and the bill."""

from __future__ import annotations

from collections.abc import Mapping

from checkrein import Rein
from checkrein.call import NANO
from checkrein.journal import is_effect
from checkrein.store import Event
from checkrein_integrations.demo.stage import Stage


def timeline(stage: Stage, rein: Rein, sessions: Mapping[str, str]) -> None:
    """Every write, undo, refusal and question of all scenes, in the order in which they began."""
    rows: list[tuple[int, int, list[str]]] = []
    for scene, session in sessions.items():
        own: list[tuple[int, int, list[str]]] = []
        open_calls: dict[tuple[str, int], list[str]] = {}
        for event in rein.read(session).events():
            row = _row(scene, event)
            if event.kind == "intent" and row is not None:
                open_calls[event.call, event.attempt] = row
            elif event.kind in ("outcome", "late"):
                begun = open_calls.pop((event.call, event.attempt), None)
                if begun is not None:
                    begun[3] = _ended(event)
            if row is not None:
                own.append((event.seq, event.at, row))
        undone = any(row[1].startswith("undo ") for *_, row in own)
        # A rollback of a session that changed nothing is no news.
        rows += [entry for entry in own if undone or entry[2][1] != "rollback"]
    rows.sort()
    start = rows[0][1] if rows else 0
    shown = [[f"{(at - start) / 1e6:.1f}s", *row] for _, at, row in rows]
    stage.table("Timeline (reads and model calls left out)",
                ("time", "scene", "what", "order", "became"), shown)  # fmt: skip
    stage.facts["timeline"] = shown


def _row(scene: str, event: Event) -> list[str] | None:
    view = event.view
    if event.kind == "intent" and (is_effect(event) or view["kind"] == "undo"):
        name = str(view["name"])
        what = f"undo {name.removesuffix('.undo')}" if view["kind"] == "undo" else name
        return [scene, what, str(view.get("arguments", {}).get("order", "")),
                "no outcome: killed"]  # fmt: skip
    if event.kind == "denied":
        return [scene, str(view["name"]), "", f"refused by {view['plugin'] or 'a person'}"]
    if event.kind == "approval_requested":
        return [scene, f"ask about {view['tool']}", "", str(view.get("reason", ""))]
    if event.kind == "approval_decided":
        return [scene, "decision", "", f"{view.get('state', 'noted')} by {view['by']}"]
    if event.kind == "resolved" and view["state"] != "unknown":
        return [scene, "probe", "", f"found it {view['state'].replace('_', ' ')}"]
    if event.kind == "rollback_started":
        return [scene, "rollback", "", f"because of {view['cause']}"]
    return None


def _ended(event: Event) -> str:
    state = str(event.view["state"]).replace("_", " ")
    error = event.view.get("error")
    return f"{state} ({error['type']})" if error else state


def bill(stage: Stage, rein: Rein, sessions: Mapping[str, str]) -> None:
    """What each scene's model calls used and cost."""
    rows: list[list[str]] = []
    total = 0
    for scene, session in sessions.items():
        spend = rein.read(session).spend()
        models = sum(
            event.kind == "intent" and event.view["kind"] == "model"
            for event in rein.read(session).events()
        )
        total += spend.nano_usd
        unpriced = f" + {spend.unpriced} unpriced" if spend.unpriced else ""
        rows.append([scene, str(models), str(spend.tokens), f"${spend.usd:.6f}{unpriced}"])
    rows.append(["all", "", "", f"${total / NANO:.6f}"])
    stage.table("The bill", ("scene", "model calls", "tokens", "cost"), rows, right=1)
    stage.facts["bill_nano_usd"] = total
