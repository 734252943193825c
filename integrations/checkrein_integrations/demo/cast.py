"""Who plays in the demo's scenes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from checkrein import Rein
from checkrein_integrations.demo.desk import AGENT, CaseSystemDown, Desk
from checkrein_integrations.demo.stage import Stage
from checkrein_integrations.demo.world import ORDERS, World

PRICES = {order: cents / 100 for order, _, _, cents, _ in ORDERS}
"""Dollars by order."""


@dataclass
class Cast:
    """Everything that plays in the scenes."""

    stage: Stage
    world: World
    rein: Rein
    desk: Desk
    model: Callable[[list[Any]], Any]
    """A chat model: the scripted one with these steps, or the real one that was asked for."""
    cap: float
    """Dollars that the policy lets a session spend."""
    case_system_down: list[str] = field(default_factory=list)
    """Orders whose case cannot be closed."""
    at_failure: list[str] = field(default_factory=list)
    """The balance at the moment when the case system failed."""
    sessions: dict[str, str] = field(default_factory=dict)
    """Scene -> id of its session."""

    @contextmanager
    def session(self, scene: str, intent: str) -> Iterator[None]:
        """The scene's session."""
        session = self.rein.session(agent=AGENT, intent=intent)
        self.sessions[scene] = session.id
        with session:
            yield

    def close_case(self, order: str) -> None:
        """The case system, as the desk reaches it."""
        if order in self.case_system_down:
            self.at_failure.append(str(self.world.balance()))
            raise CaseSystemDown(f"the case system refused the connection for {order}")
