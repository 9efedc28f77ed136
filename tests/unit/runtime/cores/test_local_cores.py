import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from gearshift.errors import WorkerDied
from gearshift.runtime.cores import local_cores
from gearshift.runtime.cores.core_pool import CorePool
from gearshift.runtime.cores.local_cores import LocalCores
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
