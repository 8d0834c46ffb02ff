import asyncio

import pytest

from agentmagic.runtime.timeouts import Deadline

NOW = 0.001
LONG = 60.0


def test_a_deadline_that_runs_out_raises_timeout_error():
    async def main():
        deadline = Deadline(NOW)
        with pytest.raises(TimeoutError):
            async with deadline:
                await asyncio.Event().wait()
        assert deadline.expired

    asyncio.run(main())


def test_none_is_no_limit():
    async def main():
        async with Deadline(None) as deadline:
            with deadline.paused():
                await asyncio.sleep(0)
        assert not deadline.expired

    asyncio.run(main())


def test_no_time_passes_while_it_is_paused():
    async def main():
        async with Deadline(NOW) as deadline:
            with deadline.paused(), deadline.paused():
                await asyncio.sleep(20 * NOW)  # time itself is what is tested
            assert not deadline.expired

    asyncio.run(main())


def test_time_runs_again_only_after_the_last_pause():
    async def main():
        deadline = Deadline(NOW)
        with pytest.raises(TimeoutError):  # noqa: PT012  (the block is what is tested)
            async with deadline:
                deadline.pause()
                deadline.pause()
                deadline.resume()
                await asyncio.sleep(20 * NOW)  # time itself is what is tested
                assert not deadline.expired
                deadline.resume()
                await asyncio.Event().wait()

    asyncio.run(main())


def test_a_resume_that_comes_after_the_end_does_nothing():
    async def main():
        async with Deadline(LONG) as deadline:
            deadline.pause()
        deadline.resume()

    asyncio.run(main())


def test_a_pause_after_the_time_ran_out_does_not_bring_it_back():
    async def main():
        deadline = Deadline(NOW)
        with pytest.raises(TimeoutError):  # noqa: PT012  (the block is what is tested)
            async with deadline:
                try:
                    await asyncio.Event().wait()
                finally:
                    with deadline.paused():
                        pass

    asyncio.run(main())
