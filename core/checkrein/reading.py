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
        return _events(self.store, self.id, None)

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

        nano = tokens = calls = unpriced = estimated = 0
        for session in descendants(self.store, self.id, detached=True):
            begun = _events(self.store, session, ("intent",))
            calls += sum(event.view["kind"] != "undo" for event in begun)
            after: str | None = None
            while True:
                page = self.store.costs(session=session, after=after, limit=PAGE)
                for row in page.rows:
                    nano += row.cost or 0
                    tokens += row.tokens
                    unpriced += row.state == "unpriced"
                    estimated += row.state == "estimated"
                after = page.next
                if after is None:
                    break
        return Spend(nano, tokens, calls, unpriced, estimated)


def _events(store: Store, session: str, kinds: tuple[str, ...] | None) -> Iterator[Event]:
    after = 0
    while True:
        page = store.events(session=session, kinds=kinds, after=after, limit=PAGE)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].seq
