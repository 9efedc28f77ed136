import asyncio

from gearshift.clock import WallClock
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.runtime.pulse import Pulse

LONGEST_S = 10


def test_it_ticks_on_a_grid_and_wakes_no_later_than_asked() -> None:
    clock, ticks, wakes = WallClock(), list[int](), list[int]()

    async def main() -> None:
        ticked, woken = asyncio.Event(), asyncio.Event()
        pulse = Pulse(
            clock,
            lambda: (ticks.append(clock.now_ns()), ticked.set())[0],
            lambda: (wakes.append(clock.now_ns()), woken.set())[0],
        )
        pulse.wake_by(0)
        assert not pulse.started
        pulse.start()
        due_ns = clock.now_ns() + 5_000_000
        pulse.wake_by(due_ns + METER_WINDOW_NS * 100)
        pulse.wake_by(due_ns)
        pulse.wake_by(None)
        async with asyncio.timeout(LONGEST_S):
            await woken.wait()
            await ticked.wait()
        pulse.stop()
        assert wakes[0] >= due_ns

    asyncio.run(main())
    assert ticks[0] % METER_WINDOW_NS < METER_WINDOW_NS // 2
