from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from gearshift.errors import InvalidInput
from gearshift.placement import Replica
from gearshift.plans.plan_file import read_plan
from gearshift.plans.plan_tables import plan_tables
from gearshift.plans.workers import scaled_workers
from gearshift.profiles.curves import performance_models
from gearshift.profiles.performance_model import Statistic
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import NO_FRONT_END, FrontEnd, core_table_ns, front_end_of, scaled_times_ns
from gearshift.profiles.store import read_profile
from tests.scaled_task import PER_BATCH_S, PER_SAMPLE_S, SHARE, scaled_profile, write_scaled_cascade

REPLICA = Replica(id="net-0", model="net", device_ids=("cpu-0",))


def table(profile: Profile, most: int = 4, statistic: Statistic = "median") -> np.ndarray:
    return core_table_ns(REPLICA, "cpu", profile, most_cores=most, largest=4, statistic=statistic)


def test_every_count_of_cores_has_its_measured_times() -> None:
    found = table(scaled_profile())
    assert found.shape == (5, 5)
    for cores in (1, 2, 3, 4):
        sizes = np.arange(1, 5)
        expected = (PER_BATCH_S + PER_SAMPLE_S * sizes) / (SHARE * cores) * 1e9
        np.testing.assert_allclose(found[cores, 1:], expected, rtol=1e-6)


def test_counts_between_the_measured_ones_are_filled_by_the_model_and_there_are_none_beyond() -> None:
    found = table(scaled_profile((1, 2, 4)), most=16)
    assert len(found) == 5
    assert found[4, 1] < found[3, 1] < found[2, 1]
    assert (table(scaled_profile(), statistic="p95")[1:, 1:] > 0).all()


def test_who_share_a_worker_are_planned_on_cores_that_all_were_measured_on_by_the_larger_of_median_and_p95(
    tmp_path: Path,
) -> None:
    write_scaled_cascade(tmp_path, devices=1, cores=1, most_net=2)
    plan, profile = read_plan(tmp_path / "plan.json"), read_profile(tmp_path / "profile")
    curves = tuple(structs.replace(one, p95_s=tuple(2 * s for s in one.median_s)) for one in profile.curves)
    profile = replace(profile, curves=curves, performance=performance_models(curves))
    tables = plan_tables(plan)
    workers = scaled_workers(plan, tables, printed=False)
    times = scaled_times_ns(workers, plan, tables, profile, most_cores=4, margin=0.5)
    assert len(times) == 2
    for medians, planned in times.values():
        assert medians.shape == (3, 5)
        np.testing.assert_allclose(np.reshape(planned, (3, 5))[1:, 1:], 3.0 * medians[1:, 1:], rtol=1e-6)


def test_one_core_has_to_be_among_the_measured() -> None:
    with pytest.raises(InvalidInput, match="profile it on 1 core too"):
        table(scaled_profile((2, 3, 4)))


@pytest.mark.parametrize(
    ("front_end_s", "router_s", "expected"),
    [
        (0.0, 0.0, NO_FRONT_END),
        (0.002, 0.0, FrontEnd(0.002, 0, 0)),
        (0.002, 0.0005, FrontEnd(0.0015, 250_000, 250_000)),
        (0.0001, 0.0005, FrontEnd(0.0, 250_000, 250_000)),
    ],
)
def test_the_routers_time_is_a_part_of_the_front_ends_and_counted_once(
    front_end_s: float, router_s: float, expected: FrontEnd
) -> None:
    profile = replace(scaled_profile(), front_end_s=front_end_s, router_s=router_s)
    assert front_end_of(profile) == pytest.approx(expected)
