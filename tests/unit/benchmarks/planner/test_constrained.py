import numpy as np
import pytest

from benchmarks.planner.constrained import OTHER_SEED, at_batch_one, highest_metered_qps, simulated_again
from benchmarks.shared.judging import judged
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.workload import Trace
from tests.unit.planner.little import PROFILE, little_request, single_plan


def test_a_plan_simulated_again_sees_other_arrivals_and_samples() -> None:
    request, made = little_request(), single_plan("m0")
    [again] = simulated_again([made], request)
    [before] = judged([made], request, part=PART_A, seeds=1)
    assert again != before
    assert OTHER_SEED != 0
    quality = request.profile.predictions.quality[0, request.profile.predictions.indices(PART_B)]
    assert again[1] == pytest.approx(float(quality.mean()), abs=0.01)


def test_at_batch_one_only_single_requests_have_run_times() -> None:
    for before, after in zip(PROFILE.curves, at_batch_one(PROFILE).curves, strict=True):
        assert (after.batch_sizes, after.median_s) == ((1,), before.median_s[:1])


def test_the_highest_metered_load_is_that_of_the_busiest_tenth_of_a_second() -> None:
    arrivals_ns = np.array([0, 10, 20, 150, 160], dtype=np.int64) * 10**6
    assert highest_metered_qps(Trace(arrivals_ns, 1.0)) == 30.0
