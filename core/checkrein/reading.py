"""Reading a session: events, records, balances and what it used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from checkrein.effects import PAGE, descendants
from checkrein.errors import Conflict
from checkrein.store import Balance, Event, Record, SessionRow, Store

if TYPE_CHECKING:
    from checkrein.session import Spend


class Reading:
    """A read-only look at one session."""

    def __init__(self, store: Store, session: str) -> None:
        self.store = store
        self.id = session

    @property
    def row(self) -> SessionRow | None:
        """The session's own row."""
        return self.store.session(self.id)

    def events(self) -> Iterator[Event]:
        """All events, oldest first, read page by page."""
        after = 0
        while True:
            page = self.store.events(session=self.id, after=after, limit=PAGE)
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].seq

    def records(self, kind: str) -> Iterator[Record]:
        """Rows of `kind` (approval, decision, grant) of this session."""
        after: str | None = None
        while True:
            page = self.store.records(kind, session=self.id, after=after, limit=PAGE)
            yield from page.rows
            after = page.next
            if after is None:
                return

    def result(
        self, call: str, classes: Mapping[str, type] | None = None, *, seen: bool = False
    ) -> Any:
        """What a finished call returned, as it was recorded.

        `classes`: what the tool's annotations name, where the result is of such a class. `seen`:
        as its caller got it, after every plugin. Raises `Conflict` for a call without a known
        result and `Undecodable` where it cannot be rebuilt.
        """
        from checkrein.codec import decode
        from checkrein.effects import effect_of, every

        events = every(self.store, call)
        effect = effect_of(self.store, call, events)
        number = effect.result_seq if effect is not None else 0
        if seen and number:
            amended = [e for e in events if e.kind == "amended" and e.seq > number]
            number = amended[-1].seq if amended else number
        payload = self.store.payload(number) if number else None
        if not isinstance(payload, dict) or "result" not in payload:
            raise Conflict(f"call {call} has no recorded result")
        return decode(payload["result"], dict(classes or {}))

    def balance(self, account: str) -> Balance | None:
        """What an account holds and spent."""
        return self.store.balance(account)

    def spend(self) -> Spend:
        """What this session and its sub-sessions used: a fold over their outcomes."""
        from checkrein.session import Spend

        nano = tokens = calls = unpriced = 0
        for session in descendants(self.store, self.id):
            for event in Reading(self.store, session).events():
                if event.kind == "intent" and event.view["kind"] != "undo":
                    calls += 1
                elif event.kind == "outcome":
                    nano += event.view.get("charged") or event.view.get("cost") or 0
                    usage = event.view.get("usage") or {}
                    tokens += usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
                    unpriced += event.view.get("cost_state") == "unpriced"
        return Spend(nano, tokens, calls, unpriced)
