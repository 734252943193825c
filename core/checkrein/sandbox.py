"""Sessions in which nothing runs: calls are answered, and the plan of their effects is kept.

An answer is, in this order: what a recorded session gave to the same call, and the example that
the tool declares. A call that has neither is refused: nothing is made up.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkrein import codec
from checkrein.errors import Conflict, Denied
from checkrein.verdicts import Answer

if TYPE_CHECKING:
    from checkrein.call import Call
    from checkrein.checks import Checked
    from checkrein.entry import Entry
    from checkrein.rein import Rein


@dataclass(frozen=True, slots=True)
class Planned:
    """What a call would have done."""

    step: int
    name: str
    arguments: Any
    """As a person may see them."""
    effect: str
    undo: str
    """How it would be taken back; empty if nothing is declared."""

    def __str__(self) -> str:
        how = {"read": "changes nothing"}.get(self.effect) or (
            f"undo: {self.undo}" if self.undo else "not undoable"
        )
        return f"{self.step}. {self.name} {codec.dumps(codec.describe(self.arguments))}  [{how}]"


class Sandbox:
    """Answers the calls of one session. Raises `Conflict` for a recorded one that is unknown."""

    def __init__(self, rein: Rein, recorded: str | None) -> None:
        self.rein = rein
        self.plan: list[Planned] = []
        self.recorded = recorded
        self._known: dict[bytes, list[Any]] = {}
        if recorded is not None:
            self._read(recorded)

    def _read(self, id: str) -> None:
        if self.rein.store.session(id) is None:
            raise Conflict(f"session {id} is unknown here: its results cannot answer")
        reading = self.rein.read(id)
        for event in reading.events():
            if event.kind != "intent" or event.view["kind"] == "undo":
                continue
            payload = self.rein.store.payload(event.seq)
            if not isinstance(payload, dict):
                continue
            tool = self.rein.tools.get(event.view["name"])
            try:
                value = reading.result(event.call, tool.classes if tool is not None else {})
            except Exception as error:  # noqa: BLE001 - a result that is not kept answers nothing
                self.rein.log.debug("sandbox: %s: %s", event.call, error)
                continue
            key = self._key(event.view["kind"], event.view["name"], payload["arguments"])
            self._known.setdefault(key, []).append(value)

    @staticmethod
    def _key(kind: str, name: str, tree: Any) -> bytes:
        return codec.canonical([kind, name, tree])

    def answer(self, entry: Entry, call: Call, tree: dict[str, Any], checked: Checked) -> None:
        """Answer a call that no plugin denied; nothing is held for it, and nobody is asked.

        A guard's own call runs: without it the guard would decide otherwise than elsewhere.
        """
        if self.rein.mode == "observe":
            checked.denied = None  # it is among the notes, and would not have kept it from running
        if call.guard or checked.denied is not None or checked.answer is not None:
            return
        checked.asks.clear()
        checked.holds.clear()
        found = self._known.get(self._key(call.kind, call.name, tree))
        if found:
            # As often as it was made there, and then what it gave last.
            value = found.pop(0) if len(found) > 1 else found[0]
            checked.answer = "sandbox", Answer(value, "recorded")
        elif call.name in self.rein.tools.examples:
            example = self.rein.tools.examples[call.name]
            checked.answer = "sandbox", Answer(_fresh(example, call), "example")
        else:
            checked.denied = Denied(
                f"sandbox: there is no recorded result of {call.name} with these arguments, and no "
                "example is declared (example=...)",
                rule="sandbox", tool=call.name, call_id=call.id, plugin="sandbox",
                code="no_example",
            )  # fmt: skip
        info = call.tool
        shown = self.rein.journal.view(call, dict(call.arguments), "person")
        undo = info.undo or (f"none: {info.irreversible}" if info.irreversible else "")
        self.plan.append(Planned(call.step, call.name, shown, info.effect, undo))

    def tell(self) -> None:
        """Print the plan on standard error."""
        head = "checkrein sandbox: nothing ran; this is what would have been done"
        lines = [head, *map(str, self.plan)]
        sys.stderr.write("\n".join(lines) + "\n")


def _fresh(example: Any, call: Call) -> Any:
    """An example as a value of its own; a function makes one from the arguments."""
    if callable(example):
        return example(**call.arguments)
    return codec.decode(codec.encode(example, "example"), {type(example).__name__: type(example)})
