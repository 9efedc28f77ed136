import asyncio
import shutil
from pathlib import Path

import pytest

from gearshift.errors import WorkerDied
from gearshift.runtime import local_cores
from gearshift.runtime.core_pool import CorePool
from gearshift.runtime.local_cores import LocalCores
from tests.unit.runtime.actuators.stand_ins import group_v2


class Workers:
    """One replica, whose worker changes."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def worker_pids(self) -> dict[int, int]:
        return {0: self.pid}


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where control groups are made: folders with the kernel's files."""
    monkeypatch.setattr(local_cores, "make_group", lambda name: group_v2(tmp_path / name, cores=1.0))
    return tmp_path


def of_shares(workers: Workers) -> LocalCores:
    pool = CorePool([0], {0: [0]})
    return LocalCores(workers, pool, core_share=0.25, say=lambda text: None, now=lambda: 0)  # type: ignore[arg-type]


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


def test_no_process_is_moved_where_there_is_no_worker(groups: Path) -> None:
    async def main() -> None:
        with pytest.raises(WorkerDied):
            of_shares(Workers(0)).actuator(0)
        assert not [*groups.iterdir()]

    asyncio.run(main())
