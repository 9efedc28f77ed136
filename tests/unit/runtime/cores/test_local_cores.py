import asyncio
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gearshift.errors import InvalidInput, WorkerDied
from gearshift.hardware import identical_devices
from gearshift.runtime.actuators.base import EmulatedActuator
from gearshift.runtime.cores import local_cores
from gearshift.runtime.cores.local_cores import (
    AskThreads,
    CorePool,
    FractionalCores,
    LocalCores,
    PoolAffinity,
    WorkerThreads,
    pooled_cores,
    processors_for,
)
from gearshift.runtime.wire.messages import Release, ThreadsSet
from tests.unit.runtime.actuators.stand_ins import group_v2


class Workers:
    """One replica, whose worker changes."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.told: list[tuple[int, Release | None]] = []

    def worker_pids(self) -> dict[int, int]:
        return {0: self.pid}

    def set_cores(self, replica: int, threads: int, release: Release | None) -> asyncio.Future[ThreadsSet]:
        self.told.append((threads, release))
        return asyncio.get_running_loop().create_future()


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where control groups are made: folders with the kernel's files."""
    monkeypatch.setattr(local_cores, "make_group", lambda name: group_v2(tmp_path / name, cores=1.0))
    return tmp_path


def of_shares(workers: Workers, core_share: float = 0.25, held: Sequence[int] = (0,)) -> LocalCores:
    pool = CorePool([0, 1], {0: held})
    return LocalCores(workers, pool, core_share=core_share, say=lambda text: None, now=lambda: 0)  # type: ignore[arg-type]


def group_of_worker(cores: LocalCores, groups: Path) -> Path:
    cores.actuator(0)
    (group,) = groups.iterdir()
    return group


def test_a_worker_that_is_started_again_is_put_into_the_group_of_the_one_before(groups: Path) -> None:
    workers = Workers(11)

    async def main() -> None:
        cores = of_shares(workers)
        group = group_of_worker(cores, groups)
        workers.pid = 12
        assert group_of_worker(cores, groups) == group
        assert (group / "cgroup.procs").read_text() == "12"

    asyncio.run(main())


def test_a_group_that_has_vanished_is_made_anew_for_the_worker_that_is_started_again(groups: Path) -> None:
    workers = Workers(11)

    async def main() -> None:
        cores = of_shares(workers)
        shutil.rmtree(group_of_worker(cores, groups))
        workers.pid = 12
        group = group_of_worker(cores, groups)
        assert (group / "cgroup.procs").read_text() == "12"

    asyncio.run(main())


def test_a_quota_changes_when_it_is_told_and_a_worker_gives_up_processors_itself_and_then_of_its_quota(
    groups: Path,
) -> None:
    workers = Workers(11)

    async def main() -> None:
        cores = of_shares(workers, core_share=0.5, held=(1, 0))
        group = group_of_worker(cores, groups)
        cores.tell(0, 4)
        assert (group / "cpu.max").read_text() == "10000 5000"
        cores.tell(0, 3)
        assert (group / "cpu.max").read_text() == "7500 5000"
        cores.tell(0, 2)
        assert (group / "cpu.max").read_text() == "7500 5000"
        assert workers.told == [(2, None), (2, None), (1, Release(processors=(1,), group=str(group), cores=1.0))]

    asyncio.run(main())


def test_a_worker_without_a_quota_gives_up_processors_alone() -> None:
    workers = Workers(11)

    async def main() -> None:
        cores = of_shares(workers, core_share=1, held=(1, 0))
        cores.tell(0, 1)
        cores.tell(0, 2)
        assert workers.told == [(1, Release(processors=(1,))), (2, None)]

    asyncio.run(main())


def test_no_process_is_moved_where_there_is_no_worker(groups: Path) -> None:
    async def main() -> None:
        with pytest.raises(WorkerDied):
            of_shares(Workers(0)).actuator(0)
        assert not [*groups.iterdir()]

    asyncio.run(main())


LONGEST_S = 20.0


def in_a_thread(ask: AskThreads, use: Callable[[WorkerThreads], None], *, longest_s: float = LONGEST_S) -> None:
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


def test_no_processor_is_ever_held_twice_and_a_worker_keeps_what_it_has() -> None:
    pool = CorePool(range(1, 8), {0: [7], 1: [6]})
    assert pool.resize(0, 3) == (7, 5, 4)
    assert pool.resize(1, 9) == (6, 3, 2, 1)
    assert pool.resize(0, 1) == (7,)
    assert len(pool) == 7
    assert pool.resize(1, 6) == (6, 3, 2, 1, 5, 4)


def test_shares_of_processors_round_up_to_whole_ones() -> None:
    assert [processors_for(cores, 0.25) for cores in (0, 1, 4, 5)] == [1, 1, 1, 2]
    assert processors_for(3, 1 / 3) == 1


def test_the_router_has_the_lowest_processor_for_itself_unless_devices_need_it() -> None:
    assert pooled_cores(identical_devices(1), (0, 1, 2), 1.0) == ({"cpu-0": {2}}, (1, 2), {0})
    assert pooled_cores(identical_devices(2), (0, 1), 1.0) == ({"cpu-0": {1}, "cpu-1": {0}}, (0, 1), {0})
    assert pooled_cores(identical_devices(1, cores=4), (0, 1), 0.25) == ({"cpu-0": {1}}, (1,), {0})
    with pytest.raises(InvalidInput, match="needs 3 cores"):
        pooled_cores(identical_devices(3), (0, 1), 1.0)
