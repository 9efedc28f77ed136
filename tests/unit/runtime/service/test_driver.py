import asyncio
from collections.abc import Callable

import pytest

from gearshift.clock import NEVER_NS, WallClock
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.runtime.service import driver
from gearshift.runtime.service.driver import Pulse
from tests.manual_clock import ManualClock

LONGEST_S = 10


class Timer:
    """One that is fired by hand."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fired: Callable[[], None]) -> None:
        self.fired, self.delays_ns = fired, list[int]()

    def start(self) -> None: ...

    def set(self, delay_ns: int) -> None:
        self.delays_ns.append(delay_ns)


def test_it_ticks_on_a_grid_and_passes_over_points_that_were_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Timer] = []
    monkeypatch.setattr(driver, "FineTimer", lambda *given: made.append(Timer(*given)) or made[-1])
    clock, ticks = ManualClock(), list[int]()

    async def main() -> None:
        Pulse(clock, lambda: ticks.append(clock.now_ns()), lambda: None).start()
        ticking, _ = made
        assert ticking.delays_ns == [METER_WINDOW_NS]
        for late_ns, passed_over in ((0, 0), (300, 0), (METER_WINDOW_NS, 1), (7, 0)):
            due_ns = (clock.now_ns() // METER_WINDOW_NS + 1) * METER_WINDOW_NS
            clock.move_to(due_ns + late_ns)
            ticking.fired()
            assert ticks[-1] == due_ns + late_ns
            assert clock.now_ns() + ticking.delays_ns[-1] == due_ns + (1 + passed_over) * METER_WINDOW_NS

    asyncio.run(main())


def test_it_ticks_and_wakes_no_later_than_asked() -> None:
    clock, ticks, wakes = WallClock(), list[int](), list[int]()

    async def main() -> None:
        ticked, woken = asyncio.Event(), asyncio.Event()
        pulse = Pulse(
            clock,
            lambda: (ticks.append(clock.now_ns()), ticked.set())[0],
            lambda: (wakes.append(clock.now_ns()), woken.set())[0],
        )
        pulse.wake_by(0)
        pulse.start()
        due_ns = clock.now_ns() + 5_000_000
        pulse.wake_by(due_ns + METER_WINDOW_NS * 100)
        pulse.wake_by(due_ns)
        pulse.wake_by(NEVER_NS)
        async with asyncio.timeout(LONGEST_S):
            await woken.wait()
            await ticked.wait()
        pulse.stop()
        assert wakes[0] >= due_ns

    asyncio.run(main())
    assert ticks[0] >= METER_WINDOW_NS
