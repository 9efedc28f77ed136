import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import numpy as np

from gearshift.clock import NS_PER_S, WallClock
from gearshift.observability.journal import NoJournal
from gearshift.policies.demand import Scaling
from gearshift.runtime.actuators.base import Effect, EmulatedActuator
from gearshift.runtime.vertical import ScaledReplica, ScaledWorker, VerticalScaling

MOST, LARGEST = 4, 2
TABLE = np.array(
    [[0, NS_PER_S, NS_PER_S]] + [[0, NS_PER_S // cores, NS_PER_S // cores] for cores in range(1, MOST + 1)]
)
LONGEST_S = 20


class Slow(EmulatedActuator):
    """Makes each change when it is told to."""

    def __init__(self, cores: int) -> None:
        super().__init__(cores=cores)
        self.asked, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def apply(self, cores: float) -> Effect:
        self.asked.release()
        assert self.go_on.acquire(timeout=LONGEST_S)
        return super().apply(cores)


class Queues:
    """The cores that the router reckons with, one change after another."""

    def __init__(self) -> None:
        self.cores: list[int] = []

    def waiting(self, replica: int, now_ns: int) -> tuple[list[tuple[int, int]], int]:
        return [], 0

    def take_run_times(self, replica: int, run_ns: Sequence[int], now_ns: int) -> None:
        self.cores.append(NS_PER_S // run_ns[1])


def scaled(actuator: EmulatedActuator, in_gear: Sequence[Sequence[int]]) -> VerticalScaling:
    replica = ScaledReplica(0, "net-0", TABLE.tolist(), TABLE)
    return VerticalScaling(
        [ScaledWorker((replica,), int(actuator.cores))],
        lambda number: actuator,
        cores=MOST,
        scaling=Scaling(scaler="static", period_s=1000.0),
        clock=WallClock(),
        journal=NoJournal(),
        in_gear=in_gear,
    )


def run(scaling: VerticalScaling, queues: Queues, body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LONGEST_S):
            await scaling.start(queues, lambda: None)  # type: ignore[arg-type]
            try:
                await body()
            finally:
                await scaling.stop()

    asyncio.run(main())


def test_cores_that_come_late_are_not_reckoned_with_when_they_are_to_go_again() -> None:
    actuator, queues = Slow(cores=1), Queues()
    scaling = scaled(actuator, [[1], [4]])

    async def body() -> None:
        for gear in (1, 0):  # back while the actuator is still at the cores of gear 1
            scaling.shifted(gear)
            await asyncio.sleep(0)
        for under_way in (2, 1):  # beside the loop of the periods
            await asyncio.to_thread(actuator.asked.acquire, timeout=LONGEST_S)
            actuator.go_on.release()
            while len(scaling._tasks) > under_way:
                await asyncio.sleep(0.001)
            assert set(queues.cores) == {1}
        assert actuator.cores == 1

    run(scaling, queues, body)


def test_cores_that_came_are_reckoned_with_and_fewer_at_once() -> None:
    actuator, queues = EmulatedActuator(cores=1), Queues()
    scaling = scaled(actuator, [[1], [4]])

    async def body() -> None:
        scaling.shifted(1)
        while queues.cores[-1] != 4:
            await asyncio.sleep(0.001)
        scaling.shifted(0)
        assert queues.cores[-1] == 1

    run(scaling, queues, body)
