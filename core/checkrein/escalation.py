"""Asking others when nobody has answered: each request once, by whichever process comes first."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from checkrein import codec
from checkrein.call import Call, ToolInfo
from checkrein.channels import Asking
from checkrein.errors import CheckreinError, Conflict
from checkrein.request import escalated, request_of
from checkrein.store import Batch, Put, Record

if TYPE_CHECKING:
    from checkrein._io import IO
    from checkrein.rein import Rein


class Escalation:
    """Tells the channels of one Rein that others may answer by now."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store

    def later(self, io: IO, call: Call, record: Record) -> None:
        """Tell when it is time, as long as this process lives."""
        act = partial(self._tell, io, call, record.id)
        self.rein.waiters.when("escalates", record.body, act)

    async def due(self, io: IO) -> list[str]:
        """Tell of all requests whose time has come, whoever asked; their ids."""
        told: list[str] = []
        after: str | None = None
        while True:
            page = self.store.records("approval", state="pending", after=after, limit=500)
            for record in page.rows:
                if not escalated(self.rein, record.body) or self._told(record.id):
                    continue
                try:
                    asking = self._tell(io, self._call(record), record.id)
                except CheckreinError as error:
                    self.rein.log.error("approval %s is not escalated: %s", record.id, error)
                    continue
                if asking is not None:
                    await asking.told()
                    told.append(record.id)
            after = page.next
            if after is None:
                return told

    def _told(self, id: str) -> bool:
        return self.store.record("escalation", id) is not None

    def _tell(self, io: IO, call: Call, id: str) -> Asking | None:
        """Tell every channel; None if it is decided, or another process tells."""
        record = self.store.record("approval", id)
        if record is None or not self.rein.permissions.is_open(id):
            return None
        self.rein.approvals.check(record)
        event = self.rein.journal.event(
            "approval_escalated", record.body["call"], id=id, who=record.body["then"]
        )
        put = Put("escalation", id, "told", {}, record.session, "", ("",))
        batch = Batch(record.session, (event,), event.at, puts=(put,))
        with contextlib.suppress(Conflict):
            self.rein.observers.notify(self.store.commit(batch), batch)
            request = request_of(self.rein, record, partial(self.rein.permissions.is_open, id))
            asking = Asking(self.rein, io, call, request)
            asking.tell()
            return asking
        return None

    def _call(self, record: Record) -> Call:
        """The call as channels are handed it. Raises `Conflict`, `Undecodable`."""
        self.rein.approvals.check(record)
        kept: dict[str, Any] = self.rein.approvals.kept(record)
        body = record.body
        tool = self.rein.tools.get(body["tool"])
        classes = tool.classes if tool is not None else {}
        info = tool.info if tool is not None else ToolInfo(body["tool"])
        return Call(
            body["call"], record.session, body["call_kind"], body["tool"],
            codec.decode_arguments(kept["arguments"], classes, {}), info, agent=body["agent"],
            user=body["user"], tenant=body["tenant"], parent=kept["parent"], task=kept["task"],
            labels=kept["labels"],
        )  # fmt: skip
