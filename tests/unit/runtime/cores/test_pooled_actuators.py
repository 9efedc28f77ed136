import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gearshift.errors import WorkerDied
from gearshift.runtime.actuators.base import EmulatedActuator
from gearshift.runtime.cores.core_pool import CorePool
from gearshift.runtime.cores.pooled_actuators import FractionalCores, PoolAffinity, SetThreads, WorkerThreads
from gearshift.runtime.wire.messages import ThreadsSet

LONGEST_S = 20.0


def in_a_thread(ask: SetThreads, use: Callable[[WorkerThreads], None], *, longest_s: float = LONGEST_S) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        actuator = WorkerThreads(ask, loop, cores=1.0, longest_s=longest_s)
        with ThreadPoolExecutor(1) as thread:
            await loop.run_in_executor(thread, use, actuator)

    asyncio.run(main())


def test_a_worker_says_how_many_threads_it_has() -> None:
    async def ask(cores: float) -> ThreadsSet:
        problem = "" if cores <= 2 else "there are 2"
        return ThreadsSet(threads=min(math.ceil(cores), 2), since_ns=time.monotonic_ns(), problem=problem)

    def use(actuator: WorkerThreads) -> None:
        assert actuator.apply(1.5).cores == actuator.in_force() == 1.5
        short = actuator.apply(3)
        assert (short.cores, short.problem) == (2.0, "there are 2")

    in_a_thread(ask, use)


def test_a_worker_that_is_busy_or_gone_keeps_its_threads() -> None:
    async def busy(cores: float) -> ThreadsSet:
        return await asyncio.get_running_loop().create_future()

    async def gone(cores: float) -> ThreadsSet:
        raise WorkerDied("it is gone")

    def use(actuator: WorkerThreads) -> None:
        effect = actuator.apply(2)
        assert effect.cores == actuator.in_force() == 1.0
        assert "threads" in effect.problem

    in_a_thread(busy, use, longest_s=0.05)
    in_a_thread(gone, use)


def test_a_change_of_threads_holds_since_the_worker_has_them_however_late_it_answers() -> None:
    async def ask(cores: float) -> ThreadsSet:
        return ThreadsSet(threads=int(cores), since_ns=time.monotonic_ns() - 1_000_000_000)

    def use(actuator: WorkerThreads) -> None:
        effect = actuator.apply(2)
        assert effect.effective_ns == effect.asked_ns

    in_a_thread(ask, use)


def test_a_worker_is_asked_for_threads_that_it_does_not_have_or_may_not_have() -> None:
    asked: list[float] = []

    async def ask(cores: float) -> ThreadsSet:
        asked.append(cores)
        if len(asked) == 3:
            raise WorkerDied("it is gone")
        return ThreadsSet(threads=int(cores), since_ns=0)

    def use(actuator: WorkerThreads) -> None:
        for cores in (2.0, 1.5, 1.0, 2.0, 1.0, 1.0):
            actuator.apply(cores)
        assert asked == [2, 1, 2, 1]
        assert actuator.in_force() == 1.0

    in_a_thread(ask, use)


def test_a_worker_is_pinned_to_processors_of_its_own() -> None:
    processors = sorted(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        pool = CorePool(processors, {0: processors[-1:], 1: []})
        actuator = PoolAffinity(child.pid, pool, 0)
        assert actuator.apply(1).cores == actuator.in_force() == 1
        assert os.sched_getaffinity(child.pid) == {processors[-1]}
        pool.resize(1, len(processors))
        effect = actuator.apply(len(processors) + 1)
        assert effect.cores == 1
        assert "its pool has 1" in effect.problem
        assert child.stdin is not None
        child.stdin.close()


def test_processors_of_a_worker_that_is_gone_are_for_the_one_in_its_place() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
        pool = CorePool([], {0: (0, 1)})
        effect = PoolAffinity(child.pid, pool, 0).apply(1)
    assert effect.cores == 0
    assert "cannot be pinned" in effect.problem
    assert pool.held == {0: (0, 1)}


def test_cores_may_be_shares_of_processors() -> None:
    inner = EmulatedActuator(cores=1, most=0.75)
    actuator = FractionalCores(inner, 0.25)
    assert actuator.in_force() == 4
    assert actuator.apply(2).cores == 2
    assert inner.cores == 0.5
    assert actuator.apply(4).cores == 3
    tenth = FractionalCores(EmulatedActuator(), 0.1)
    assert tenth.apply(3).cores == tenth.in_force() == 3
