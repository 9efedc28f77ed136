import numpy as np
import pytest

from gearshift.gear import GearPlan
from gearshift.planner.evaluate.confirm import (
    SEEDS,
    Replayed,
    Replays,
    share_late_bound,
    shares_late,
    slowest_of,
    workload_of,
)
from gearshift.profiles.profile import PART_A
from gearshift.result import percentile
from gearshift.simulator.simulate import simulate
from tests.unit.planner.little import PROFILE, little_request, little_trace, single_plan

AT = 0.95


def made() -> GearPlan:
    return single_plan(PROFILE.models[0])


def latencies_s(seeds: int) -> list[np.ndarray]:
    plan, trace = made(), little_trace()
    return [simulate(plan, PROFILE, workload_of(trace, PROFILE, part=PART_A, seed=s)).latency_s for s in range(seeds)]


def replayed() -> Replayed:
    return Replays().of("key", made, little_request())


def test_a_short_trace_has_the_latency_that_its_confirmation_would_name() -> None:
    found = replayed()
    slowest_s = [slowest_of(seconds, AT) for seconds in latencies_s(SEEDS)]
    requests = len(little_trace())
    assert share_late_bound(shares_late(slowest_s, requests, found.latency_s)) <= 1 - AT
    assert share_late_bound(shares_late(slowest_s, requests, found.latency_s / 1.01)) > 1 - AT


def test_the_careful_latency_is_that_of_a_standard_error_more_late() -> None:
    found = replayed()
    records = len(PROFILE.predictions.indices(PART_A))
    careful = AT + np.sqrt(AT * (1 - AT) / records)
    each_s = [percentile(seconds, careful) for seconds in latencies_s(SEEDS)]
    assert found.careful_s >= found.latency_s
    assert found.careful_s >= np.mean(each_s) * 0.999


def test_a_plan_is_replayed_once() -> None:
    replays, times = Replays(), []

    def make() -> GearPlan:
        times.append(1)
        return made()

    for _ in range(2):
        replays.of("key", make, little_request())
    assert times == [1]


@pytest.mark.parametrize("moments", [0, 3])
def test_a_search_out_of_time_ends_before_the_next_replay(moments: int) -> None:
    left = iter(range(moments))

    def on_time() -> None:
        if next(left, None) is None:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        Replays(on_time).of("key", made, little_request())
