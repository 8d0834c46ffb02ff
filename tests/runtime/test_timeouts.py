import asyncio

import pytest

from agentmagic.runtime.timeouts import Deadline

NOW = 0.001


def test_time_runs_again_only_after_the_last_pause_and_never_without_a_limit():
    async def main():
        async with Deadline(None) as unlimited:
            with pytest.raises(TimeoutError):  # noqa: PT012  (the block is what is tested)
                async with Deadline(NOW) as deadline:
                    with deadline.pause_in_block(), unlimited.pause_in_block():
                        with deadline.pause_in_block():
                            pass
                        await asyncio.sleep(20 * NOW)  # time itself is what is tested
                        assert not deadline.expired
                    await asyncio.Event().wait()
            deadline.resume()  # after the end it does nothing

    asyncio.run(main())


@pytest.mark.parametrize("seconds", [None, 60])
def test_the_time_of_all_pauses_is_counted_once_and_also_while_one_goes_on(seconds):
    async def main():
        clock, found = asyncio.get_running_loop(), list[float]()
        begun = clock.time()
        async with Deadline(seconds) as deadline:
            for _ in range(2):
                with deadline.pause_in_block(), deadline.pause_in_block():
                    await asyncio.sleep(NOW)  # time itself is what is tested
                    found.append(deadline.paused_for)
        assert 0 < found[0] < found[1] <= deadline.paused_for <= clock.time() - begun

    asyncio.run(main())


def test_a_pause_after_the_time_ran_out_does_not_bring_it_back():
    async def main():
        deadline = Deadline(NOW)
        with pytest.raises(TimeoutError):  # noqa: PT012  (the block is what is tested)
            async with deadline:
                try:
                    await asyncio.Event().wait()
                finally:
                    with deadline.pause_in_block():
                        pass
        assert deadline.expired

    asyncio.run(main())


def test_a_held_deadline_begins_anew_at_the_restart_and_the_time_counts():
    async def main():
        with pytest.raises(TimeoutError):  # noqa: PT012  (the block is what is tested)
            async with Deadline(NOW) as deadline:
                deadline.hold()
                await asyncio.sleep(20 * NOW)  # time itself is what is tested
                with deadline.pause_in_block():
                    deadline.hold()
                    deadline.restart()
                    deadline.hold()
                await asyncio.sleep(20 * NOW)
                assert not deadline.expired
                assert deadline.paused_for < 20 * NOW
                deadline.restart()
                await asyncio.Event().wait()
        assert deadline.expired
        deadline.hold()  # after the end both do nothing
        deadline.restart()

    asyncio.run(main())
