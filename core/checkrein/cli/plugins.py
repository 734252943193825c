"""`checkrein plugins`."""

from __future__ import annotations

from typing import Any

from checkrein.call import Call, ToolInfo
from checkrein.cli._output import Out
from checkrein.cli._place import Place, command
from checkrein.hooks import HOOKS
from checkrein.manager import Plugins, available


@command
def plugins(*, place: Place, out: Out) -> int:
    """List installed plugins and the order in which they run."""
    installed = available()
    active, source = _active(place)
    order = {h: active.order(h) for h in HOOKS if active.order(h)} if active else {}
    back = _hold_backs(active) if active else []
    out.document(
        {
            "installed": [
                {"name": a.name, "distribution": a.distribution, "version": a.version,
                 "target": a.target}
                for a in installed
            ],
            "source": source,
            "active": [name for name, _ in active] if active else [],
            "order": order,
            "hold_backs": [{"plugin": n, "channel": c, "characters": k} for n, c, k in back],
        }
    )  # fmt: skip
    names = {name for name, _ in active} if active else set()
    out.line("Installed")
    out.table(
        ("name", "from", "version", "class"),
        [(a.name, a.distribution, a.version, a.target) for a in installed],
        empty="none",
    )
    out.line()
    if active is None:
        out.line("No configuration here: nothing is active (checkrein init writes one)")
        return 0
    out.line(f"Active, by {source}: {', '.join(names and [n for n, _ in active]) or 'none'}")
    out.table(
        ("hook", "runs in this order"),
        [(hook, " > ".join(order[hook])) for hook in order],
        empty="no plugin is configured: calls are recorded, none is checked",
    )
    if back:
        out.line()
        out.table(("stream filter", "channel", "holds back (characters)"), back)
        total = sum(k for _, channel, k in back if channel == "text" and k is not None)
        out.line(f"text comes up to {total} characters late")
    return 0


def _active(place: Place) -> tuple[Plugins | None, str]:
    """Plugins of the configuration, not started; else those of the application."""
    found = place.document() if place.app is None else None
    if found is not None and (found[1].plugins or found[1].app is None):
        from checkrein.policy import build_plugins

        document, settings = found
        chain = Plugins()
        chain.register(build_plugins(document, settings))
        return chain, document.name
    name = place.app_name()
    if name is None:
        return None, ""
    with place.application(name) as rein:
        return rein.plugins, name


def _hold_backs(chain: Plugins) -> list[tuple[str, str, int | None]]:
    """How much each stream filter keeps back; None where it cannot be asked."""
    call = Call("", "", "model", "", {"system": None, "messages": [], "tools": []}, ToolInfo(""))
    found: list[tuple[str, str, int | None]] = []
    for impl in chain.chains["open_stream"]:
        for channel in ("text", "reasoning"):
            try:
                stream: Any = impl(call, channel)
                if stream is not None:
                    found.append((impl.plugin, channel, int(stream.holdback)))
            except Exception:  # noqa: BLE001 - a plugin may need a real call; shown as unknown
                found.append((impl.plugin, channel, None))
    return found
