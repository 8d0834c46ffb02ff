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
    stands in for the default `ask`. A tool `in_doubt`, which was under way when the kernel stopped, may
    have done its work: it is asked about whatever else holds, until a person has approved it.
    """

    default: Permission = "ask"
    remembered: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    in_doubt: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def decide(self, tool: ToolDef, *, asks: bool) -> Permission:
        """Return what becomes of a call of a tool, which itself asks or does not.

        Raises UsageError where `AGENTMAGIC_PERMISSION` says nothing known.
        """
        override = settings.permission_override()
        if "deny" in (override, self.default):
            return "deny"
        if self.doubts(tool):
            return "ask"
        if not asks or _key(tool) in self.remembered:
            return "allow"
        return override or self.default

    def doubts(self, tool: ToolDef) -> bool:
        """Whether the tool may have been cut off in the middle of its work."""
        return _key(tool) in self.in_doubt

    def approve(self, tool: ToolDef, *, always: bool) -> None:
        """Take a person's yes: to this call, or to every later one of the tool too."""
        self.in_doubt.discard(_key(tool))
        if always:
            self.remembered.add(_key(tool))


DOUBT = "It was under way when the kernel stopped, and may have done its work already."
"""Why a tool in doubt is asked about."""


def doubtful_denial(tool: ToolDef) -> str:
    """Say why a tool in doubt was not run where nobody can be asked."""
    return (
        f"{tool.name} was not run: {DOUBT[0].lower()}{DOUBT[1:]} Nobody is there to say whether it may run again. "
        "Look whether it did; session.in_doubt.clear() (agent.in_doubt.clear() in a notebook) lets it run."
    )


def denial(tool: ToolDef) -> str:
    """Say to model and person why a call that would ask was not asked about, and what would allow it."""
    rule = "" if tool.server == "notebook" else f'with %mcp allow {tool.server} or an "allow" entry for that server, '
    return (
        f"{tool.name} was not run: it needs a person's approval, and nobody is there to give it. The user can allow it "
        f'{rule}with permission="allow" (--permission allow in a cell), or with {settings.PERMISSION}=allow.'
    )


def _key(tool: ToolDef) -> tuple[str, str]:
    return tool.server, tool.name
