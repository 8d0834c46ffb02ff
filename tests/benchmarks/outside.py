"""The time to the first words of an outside agent, beside a bare client of the acp library with the same agent.

`python -m tests.benchmarks.outside` prints the table alone.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import acp

from agentmagic import Agent, Session
from agentmagic.events import PartDelta
from tests.acp.sessions import AGENT, command

REPEATS = 50
STARTS = 5
PROMPT = "!say Hello"
WHAT = ("with the start of its program", "when it runs")
GOALS = (100, 3)


class BareClient:
    """Notes when the agent says its first words."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def on_connect(self, conn: Any) -> None:
        """Do nothing."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Take in an update."""
        if not self.heard.done():
            self.heard.set_result(time.perf_counter())


async def bare() -> tuple[float, list[float]]:
    """Return the seconds to the first words from the start of the agent, and then of prompts to the running one."""
    began = time.perf_counter()
    client: Any = BareClient()
    took: list[float] = []
    async with acp.spawn_agent_process(client, sys.executable, str(AGENT)) as (connection, _):
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = (await connection.new_session(cwd="/", mcp_servers=[])).session_id
        for _ in range(REPEATS + 1):
            client.heard = asyncio.get_running_loop().create_future()
            await connection.prompt(prompt=[acp.text_block(PROMPT)], session_id=session)
            took.append(await client.heard - began)
            began = time.perf_counter()
    return took[0], took[1:]


async def ours() -> tuple[float, list[float]]:
    """Return the same for a session."""
    began = time.perf_counter()
    took: list[float] = []
    async with Session(Agent(command())) as session:
        for _ in range(REPEATS + 1):
            run = session.start(PROMPT)
            took += [time.perf_counter() - began async for event in run if isinstance(event, PartDelta)][:1]
            await run
            began = time.perf_counter()
    return took[0], took[1:]


async def medians(ask: Callable[[], Awaitable[tuple[float, list[float]]]]) -> tuple[float, float]:
    """Return the medians of both, in ms."""
    found = [await ask() for _ in range(STARTS)]
    starts, later = [start for start, _ in found], [one for _, took in found for one in took]
    return statistics.median(starts) * 1000, statistics.median(later) * 1000


async def table() -> None:
    """Print the rows."""
    await bare()  # a warm disk
    floors, figures = await medians(bare), await medians(ours)
    print(f"\n{'the first words of an outside agent':44} {'ours':>9} {'floor':>9} {'ratio':>8}")
    for what, took, floor, goal in zip(WHAT, figures, floors, GOALS, strict=True):
        over = f"{took - floor:.1f} over the floor, goal {goal}"
        print(f"{what:44} {took:9.2f} {floor:9.2f} {took / floor:7.1f}x ms  {over}", flush=True)


if __name__ == "__main__":
    asyncio.run(table())
