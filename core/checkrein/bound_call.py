"""The exact call that an approval is about, and what binds a decision to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from checkrein import codec
from checkrein.errors import Conflict
from checkrein.store import Record

if TYPE_CHECKING:
    from checkrein.rein import Rein


class BoundCalls:
    """Reads what was asked about and what was approved, for one Rein."""

    def __init__(self, rein: Rein) -> None:
        self.rein = rein
        self.store = rein.store

    def digest(self, body: Mapping[str, Any], tree: Mapping[str, Any]) -> str:
        """Bind a decision to exactly one call; keyed, so that nobody can guess values."""
        return codec.digest(
            self.store.key,
            [body["call_kind"], body["tool"], body["session"], body["tool_digest"], dict(tree)],
        )

    @staticmethod
    def bound(record: Record) -> str:
        """The digest of the call that a decision is bound to."""
        return str(record.body.get("edited_digest") or record.body["digest"])

    def kept(self, record: Record) -> dict[str, Any]:
        """The exact call that an approval belongs to. Raises `Conflict` if it was erased."""
        for event in self.store.events(call=record.body["call"], kinds=("approval_requested",)):
            if event.view.get("id") == record.id:
                payload = self.store.payload(event.seq)
                if isinstance(payload, dict):
                    return payload
        raise Conflict(f"approval {record.id}: the call it belongs to was erased from the store")

    def approved(self, record: Record, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The arguments that were approved, as they may run; `kept`: the call, if it was read.

        Raises `Conflict` where what is stored is not what the decision is bound to.
        """
        tree: dict[str, Any] = self.edits(record) or (kept or self.kept(record))["arguments"]
        if self.digest(record.body, tree) != self.bound(record):
            raise Conflict(
                f"approval {record.id}: the call that is stored is not the one that was approved; "
                "nothing was run. Look with `checkrein doctor`"
            )
        return tree

    def edits(self, record: Record) -> dict[str, Any] | None:
        """The whole call as its approver edited it; None if it was not edited."""
        if not record.body.get("edited_digest"):
            return None
        for event in self.store.events(
            call=record.body["call"], kinds=("approval_decided",), reverse=True
        ):
            if event.view.get("id") == record.id:
                payload = self.store.payload(event.seq)
                if isinstance(payload, dict):
                    return dict(payload["arguments"])
        raise Conflict(f"approval {record.id}: what was edited cannot be read any more")

    def edited(self, record: Record, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The whole call with `arguments` in place of those that they name.

        Raises `Conflict` for what cannot be changed, `Unencodable` for what cannot be kept.
        """
        if record.body["kind"] != "before":
            done = "the call has run" if record.body["kind"] == "after" else "an undo is fixed"
            raise Conflict(f"approval {record.id}: {done}; it cannot be edited")
        tree: dict[str, Any] = self.kept(record)["arguments"]
        tool = self.rein.tools.get(record.body["tool"])
        known = {*tree, *(tool.parameters if tool is not None else ())}
        for name in arguments:
            held = tree.get(name)
            if name not in known:
                raise Conflict(
                    f"approval {record.id}: {record.body['tool']} has no argument {name!r} "
                    f"(it has {', '.join(sorted(known)) or 'none'})"
                )
            if isinstance(held, dict) and held.get("$cr") == "opaque":
                raise Conflict(
                    f"approval {record.id}: {name} is passed by reference and cannot be edited"
                )
        return {**tree, **codec.encode_arguments(arguments)}
