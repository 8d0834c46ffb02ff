"""One session of a connection, where its connection cannot make the moment come about."""

import asyncio

import pytest

from agentmagic.errors import ServerError
from agentmagic.tools.mcp.pending import Host, PendingCallers
from agentmagic.tools.mcp.server_requests import ServerRequests
from agentmagic.tools.mcp.session_task import SessionTask
from tests.tools.mcp.calling import PATIENCE, raw


def test_who_waits_for_a_life_that_is_left_before_it_began_is_told():
    async def main():
        session = SessionTask(
            raw(),
            ServerRequests(PendingCallers("raw", Host()), ()),
            None,
            on_change=lambda _: None,
            on_tools_changed=lambda: None,
        )
        await session.leave()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ServerError, match="it was disconnected"):
                await session.until_ready()

    asyncio.run(main())
