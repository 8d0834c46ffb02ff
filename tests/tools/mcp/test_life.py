"""One life of a connection, where its connection cannot make the moment come about."""

import asyncio

import pytest

from agentmagic.errors import ServerError
from agentmagic.tools.mcp.asking import Asking
from agentmagic.tools.mcp.host import Typed
from agentmagic.tools.mcp.life import Life
from agentmagic.tools.mcp.waiting import Waiting
from tests.tools.mcp.calling import PATIENCE, raw


def test_who_waits_for_a_life_that_is_left_before_it_began_is_told():
    async def main():
        host = Typed()
        life = Life(
            "raw",
            raw(),
            Asking("raw", host, ()),
            Waiting("raw", host),
            None,
            on_change=lambda _: None,
            on_tools_changed=lambda: None,
        )
        await life.leave()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ServerError, match="it was disconnected"):
                await life.until_ready()

    asyncio.run(main())
