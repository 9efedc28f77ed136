from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.plans.plan_file import read_plan
from gearshift.plans.plan_tables import plan_tables
from gearshift.plans.workers import cores_in_gears, scaled_workers, shared_pool
from tests.scaled_task import write_geared_task, write_scaled_task


def pool_of(plan: GearPlan, given: int | None) -> tuple[list[list[int]], int]:
    tables = plan_tables(plan)
    workers = scaled_workers(plan, tables, printed=False)
    return cores_in_gears(workers, tables), shared_pool(workers, tables, given)


def test_workers_need_the_cores_of_the_gear_that_has_the_most(tmp_path: Path) -> None:
    write_geared_task(tmp_path, (1, 2), (3, 1), pool=6)
    plan = read_plan(tmp_path / "plan.json")
    assert pool_of(plan, None) == ([[1, 2], [3, 1]], 4)
    assert pool_of(plan, 6)[1] == 6
    with pytest.raises(InvalidInput, match="has gears of 4 cores, and replicas share 3; give more"):
        pool_of(plan, 3)


def test_where_gears_have_none_workers_need_those_that_they_begin_with(tmp_path: Path) -> None:
    write_scaled_task(tmp_path, cores=1, replicas=2)
    plan = read_plan(tmp_path / "plan.json")
    assert pool_of(plan, None) == ([], 2)
    with pytest.raises(InvalidInput, match="begins with 2 cores, and replicas share 0"):
        pool_of(plan, 0)
