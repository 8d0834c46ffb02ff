import asyncio

import pytest

from agentmagic.runtime.timeouts import Deadline

NOW = 0.001


def test_time_runs_again_only_after_the_last_pause_and_never_without_a_limit():
    async def main():
        async with Deadline(None) as unlimited:
            with pytest.raises(TimeoutError):  # noqa: PT012  (the block is what is tested)
                async with Deadline(NOW) as deadline:
                    with deadline.paused(), unlimited.paused():
                        with deadline.paused():
                            pass
                        await asyncio.sleep(20 * NOW)  # time itself is what is tested
                        assert not deadline.expired
                    await asyncio.Event().wait()
            deadline.resume()  # after the end it does nothing

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
