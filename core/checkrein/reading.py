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
        return self._events(None)

    def _events(self, kinds: tuple[str, ...] | None) -> Iterator[Event]:
        after = 0
        while True:
            page = self.store.events(session=self.id, kinds=kinds, after=after, limit=PAGE)
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
        """What this session and its sub-sessions used: their rows of the bill, added up."""
        from checkrein.session import Spend

        spend = Spend()
        for session in descendants(self.store, self.id, detached=True):
            begun = Reading(self.store, session)._events(("intent",))
            calls = sum(event.view["kind"] != "undo" for event in begun)
            spend = spend.plus(Spend(calls=calls))
            after: str | None = None
            while True:
                page = self.store.costs(session=session, after=after, limit=PAGE)
                for row in page.rows:
                    spend = spend.plus(
                        Spend(
                            row.cost or 0, row.tokens, 0, row.state == "unpriced",
                            row.state == "estimated",
                        )
                    )  # fmt: skip
                after = page.next
                if after is None:
                    break
        return spend
