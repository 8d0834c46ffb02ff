"""What a session holds open: its models and the servers of its recipes."""

import asyncio
from typing import Any

from agentmagic.providers.base import Model
from agentmagic.providers.registry import resolve
from agentmagic.runtime.engine import engine
from agentmagic.tools.base import Toolset


class Connections:
    """Models and servers, each made once; apart from the session, so that they can be closed when it is gone."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._servers: list[tuple[Any, Toolset]] = []

    def model(self, name: str) -> Model:
        """Return the model of a name, the same one each time."""
        if name not in self._models:
            self._models[name] = resolve(name)
        return self._models[name]

    def servers(self, mcp: Any) -> Toolset | None:
        """Return the servers of a recipe, the same ones each time, or None where it has none."""
        if not mcp:
            return None
        for known, servers in self._servers:
            if known is mcp or known == mcp:
                return servers
        from agentmagic.tools.mcp import McpServers, config

        servers = McpServers(config.read(mcp))
        self._servers.append((mcp, servers))
        return servers

    def close_later(self) -> None:
        """Close what a session held open that nobody holds any more."""
        engine().submit(self.aclose())

    async def aclose(self) -> None:
        """Close it all; on the engine."""
        engine().forget(self.aclose)
        for model in self._models.values():
            await model.aclose()
        await asyncio.gather(*(servers.aclose() for _, servers in self._servers))
