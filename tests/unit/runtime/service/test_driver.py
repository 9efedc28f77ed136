import asyncio
from collections.abc import Callable

import pytest

from gearshift.clock import NEVER_NS, ManualClock, WallClock
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.policies.watch.lost_workers import SILENCE_LASTS_NS, SILENT_AFTER
from gearshift.request import Request, Sample
from gearshift.runtime.service import driver
from gearshift.runtime.service.driver import Pulse, Silence

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
        assert not pulse.started
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


def batch(*unreached: bool) -> list[Sample]:
    request = Request(id=1, operator="o", arrived_ns=0, rows=len(unreached))
    return [Sample(request, row, row, unanswered=True, unreached=one) for row, one in enumerate(unreached)]


def silenced() -> Silence:
    silence = Silence(("small", "large"))
    for now_ns in range(SILENT_AFTER):
        silence.samples_finished("large", batch(True, True), now_ns)
    return silence


def test_a_model_is_silent_after_some_batches_in_a_row_that_nothing_answered():
    silence = Silence(("small", "large"))
    for now_ns in range(SILENT_AFTER):
        assert not list(silence.ticked(now_ns))
        silence.samples_finished("large", batch(True), now_ns)
    assert list(silence.ticked(SILENT_AFTER)) == [("large", True)]
    assert silence.models == {"large"}
    assert not list(silence.ticked(SILENT_AFTER + 1))


def test_one_answer_ends_it():
    silence = silenced()
    assert list(silence.ticked(5)) == [("large", True)]
    silence.samples_finished("large", batch(True, False), 6)
    assert list(silence.ticked(7)) == [("large", False)]
    assert not silence.models


def test_answers_that_do_not_count_are_no_silence():
    silence = Silence(("large",))
    for now_ns in range(2 * SILENT_AFTER):
        silence.samples_finished("large", batch(False), now_ns)
    assert not list(silence.ticked(2 * SILENT_AFTER))


def test_nothing_is_known_of_a_model_that_was_not_asked_for_long():
    silence = silenced()
    list(silence.ticked(5))
    assert list(silence.ticked(SILENCE_LASTS_NS + 5)) == [("large", False)]
