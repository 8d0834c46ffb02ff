import asyncio

import pytest

from agentmagic.runtime.timeouts import Deadline

NOW = 0.001


@pytest.mark.parametrize("seconds", [NOW, None])
def test_no_time_passes_while_it_is_paused_and_none_is_no_limit(seconds):
    async def main():
        async with Deadline(seconds) as deadline:
            with deadline.paused(), deadline.paused():
                await asyncio.sleep(20 * NOW)  # time itself is what is tested
            assert not deadline.expired
        deadline.resume()  # after the end it does nothing

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
        assert deadline.expired

    asyncio.run(main())
