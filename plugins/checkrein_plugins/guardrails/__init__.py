"""Guards: plugins that stop or question a call by what it is."""

from checkrein_plugins.guardrails.scope import Scope

__all__ = ["Scope"]
