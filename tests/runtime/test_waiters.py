"""Coroutines that wait for more, on any event loop."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from agentmagic.runtime.waiters import Waiters
from agentmagic.testing import PATIENCE
from tests.turns import AT_ONCE


def test_who_waits_is_woken_on_each_event_loop():
    waiters = Waiters()
    more = []

    async def wait():
        await waiters.wait(lambda: bool(more))
        return True

    with ThreadPoolExecutor(2) as pool:
        loops = [pool.submit(asyncio.run, wait()) for _ in range(2)]
        more.append("more")
        while not all(one.done() for one in loops):  # a loop may begin to wait at any time
            waiters.wake()
        assert [one.result(PATIENCE) for one in loops] == [True, True]


def test_what_comes_just_before_the_waiting_begins_is_not_waited_for():
    asyncio.run(asyncio.wait_for(Waiters().wait(lambda: True), AT_ONCE))
