"""How many requests may be open at a time."""

import asyncio

from gearshift.bulk.window import Window


async def entered(window: Window) -> bool:
    task = asyncio.create_task(window.enter())
    await asyncio.sleep(0)
    done = task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return done


def test_requests_beyond_the_window_wait_for_one_to_end():
    async def main() -> None:
        window = Window(2)
        await window.enter()
        await window.enter()
        assert not await entered(window)
        window.leave(True)
        assert await entered(window)

    asyncio.run(main())


def test_it_halves_without_room_and_grows_by_one_a_round():
    async def main() -> None:
        window = Window(32)
        for fits, allowed in ((False, 16), (False, 8), (True, 8)):
            await window.enter()
            window.leave(fits)
            assert window.allowed == allowed
        for _ in range(8):
            await window.enter()
            window.leave(True)
        assert window.allowed == 9
        for _ in range(20):
            await window.enter()
            window.leave(False)
        assert window.allowed == 1

    asyncio.run(main())


def test_a_turn_that_nobody_takes_goes_to_the_next():
    async def main() -> None:
        window = Window(1)
        await window.enter()
        gives_up, waits = (asyncio.create_task(window.enter()) for _ in range(2))
        await asyncio.sleep(0)
        window.leave(True)
        gives_up.cancel()
        async with asyncio.timeout(5):
            await waits

    asyncio.run(main())
