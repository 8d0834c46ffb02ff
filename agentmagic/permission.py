"""Which calls run, which ask a person first, which never run."""

from dataclasses import dataclass, field

from agentmagic import settings
from agentmagic.messages import ToolDef
from agentmagic.settings import Permission


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

    def decide(self, tool: ToolDef, *, asks: bool) -> Permission:
        """Return what becomes of a call of a tool, which itself asks or does not.

        Raises UsageError where `AGENTMAGIC_PERMISSION` says nothing known.
        """
        override = settings.permission_override()
        if "deny" in (override, self.default):
            return "deny"
        if not asks or _key(tool) in self.remembered:
            return "allow"
        return override or self.default

    def remember(self, tool: ToolDef) -> None:
        """Ask no more about this tool."""
        self.remembered.add(_key(tool))


def denial(tool: ToolDef) -> str:
    """Say to model and person why a call that would ask was not asked about, and what would allow it."""
    rule = "" if tool.server == "notebook" else f'with %mcp allow {tool.server} or an "allow" entry for that server, '
    return (
        f"{tool.name} was not run: it needs a person's approval, and nobody is there to give it. The user can allow it "
        f'{rule}with permission="allow" (--permission allow in a cell), or with {settings.PERMISSION}=allow.'
    )


def _key(tool: ToolDef) -> tuple[str, str]:
    return tool.server, tool.name
