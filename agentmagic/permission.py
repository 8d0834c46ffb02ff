"""Which calls run, which ask a person first, which never run."""

from dataclasses import dataclass, field

from agentmagic import settings
from agentmagic.settings import Permission
from agentmagic.tools.base import Tool


@dataclass(slots=True)
class Policy:
    """Decides each call.

    A tool that does not ask (a function given in code or marked `@tool`, a server's tool that a rule
    allows) runs. For one that asks, `default` speaks, unless a person once said "always" in this session.
    `AGENTMAGIC_PERMISSION=deny` and a default of deny let nothing run; `AGENTMAGIC_PERMISSION=allow`
    stands in for the default `ask`.
    """

    default: Permission = "ask"
    remembered: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def decide(self, tool: Tool) -> Permission:
        """Return what becomes of a call of the tool.

        Raises UsageError where `AGENTMAGIC_PERMISSION` says nothing known.
        """
        override = settings.permission_override()
        if "deny" in (override, self.default):
            return "deny"
        if not tool.ask or _key(tool) in self.remembered:
            return "allow"
        return override or self.default

    def remember(self, tool: Tool) -> None:
        """Ask no more about this tool."""
        self.remembered.add(_key(tool))


def denial(tool: Tool) -> str:
    """Say to model and person why a call that would ask was not asked about, and what would allow it."""
    return (
        f"{tool.name} was not run: it needs a person's approval, and nobody is there to give it. The user can allow it "
        f'with permission="allow", with an "allow" entry for the server {tool.definition.server!r}, '
        f"or with {settings.PERMISSION}=allow."
    )


def _key(tool: Tool) -> tuple[str, str]:
    return tool.definition.server, tool.name
