"""What servers offer, for Tab: the names of their tools, prompts and resources."""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from agentmagic.errors import AgentMagicError
from agentmagic.jupyter.namespace import Namespace
from agentmagic.runtime.engine import engine

if TYPE_CHECKING:
    from agentmagic.tools.mcp import McpServers
    from agentmagic.tools.mcp.catalogue import Prompt

T = TypeVar("T")

SOON = 0.5
"""Seconds that a server has to say what it offers."""


class Offered:
    """What the servers of a notebook offer; one that is not connected is left alone, and no failure is shown."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def servers(self) -> Sequence[str]:
        """Return the names of the servers."""
        return list(dict.fromkeys(state.name for group in self._namespace.server_groups() for state in group.servers))

    def words(self, kind: str, before: Sequence[str]) -> Sequence[str]:
        """Return what a word of a kind may be behind others, the first of which names the server."""
        match kind:
            case "PATTERN":
                return self._tools(before[0])
            case "PROMPT":
                return [one.name for one in self._prompts(before[0])]
            case "NAME=VALUE":
                known = [one for one in self._prompts(before[0]) if one.name == before[1]]
                return [f"{argument.name}=" for prompt in known for argument in prompt.arguments]
            case _:
                return ()

    def resources(self, server: str) -> Sequence[str]:
        """Return the URIs of a server, those of templates up to their first place."""
        return [one.uri.partition("{")[0] for one in self._told(server, lambda group: group.resources(server))]

    def _tools(self, server: str) -> Sequence[str]:
        """Return the tools of a server that are known, by its own names for them."""
        group = self._namespace.group_of(server)
        return group.get(server).names if group else ()

    def _prompts(self, server: str) -> "Sequence[Prompt]":
        return self._told(server, lambda group: group.prompts(server))

    def _told(self, server: str, ask: "Callable[[McpServers], Coroutine[Any, Any, list[T]]]") -> "list[T]":
        group = self._namespace.group_of(server)
        if group is None or group.get(server).state != "ready":
            return []
        answer = engine().submit(ask(group))
        try:
            return answer.result(SOON)
        except (TimeoutError, AgentMagicError):
            answer.cancel()
            return []
