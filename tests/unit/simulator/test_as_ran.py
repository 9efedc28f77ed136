from dataclasses import replace

import msgspec
import numpy as np
import pytest

from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import run_times_ns
from gearshift.result import LatencySummary
from gearshift.simulator.as_ran import Ran, as_ran, run_time_ratios, split_latency
from gearshift.simulator.simulate import Prepared, Simulation, prepare
from gearshift.traces.generate import steady
from gearshift.verbs.common.inputs import workload_of
from tests.little_task import little_plan, little_profile

SLOWER = {"small": 1.5, "large": 1.25}
PLAN = little_plan("")


def of(profile: Profile, qps: float = 150.0) -> tuple[Prepared, Simulation]:
    prepared = prepare(PLAN, profile)
    return prepared, prepared.run(workload_of(profile, steady(qps, 4, seed=1)))


def slower_profile() -> Profile:
    profile = little_profile()
    curves = [
        msgspec.structs.replace(curve, median_s=tuple(SLOWER[curve.model] * seconds for seconds in curve.median_s))
        for curve in profile.curves
    ]
    return replace(profile, curves=tuple(curves))


def ran_in(prepared: Prepared, simulation: Simulation) -> dict[str, Ran]:
    """What a server counts that runs just what was simulated."""
    found = {}
    for replica, batches in enumerate(simulation.batches):
        seconds = float((batches * prepared.run_ns[replica, : len(batches)]).sum()) / 1e9
        samples = int((batches * np.arange(len(batches))).sum())
        found[simulation.tables.model_of(replica)] = int(batches.sum()), samples, seconds
    return found


def times_ns() -> np.ndarray:
    return run_times_ns(PLAN, prepare(PLAN, little_profile()).tables, little_profile())


@pytest.mark.parametrize("qps", [50.0, 150.0, 200.0])
def test_run_times_that_have_changed_are_found_whatever_sizes_batches_have(qps: float) -> None:
    _, simulation = of(little_profile())
    ratios = run_time_ratios(simulation, times_ns(), ran_in(*of(slower_profile(), qps)))
    assert ratios == pytest.approx(SLOWER, rel=0.02)


def test_what_ran_as_profiled_has_ratios_of_one_and_what_did_not_run_has_none() -> None:
    prepared, simulation = of(little_profile())
    ran = ran_in(prepared, simulation)
    assert run_time_ratios(simulation, times_ns(), ran) == pytest.approx({"small": 1.0, "large": 1.0})
    assert run_time_ratios(simulation, times_ns(), {"small": ran["small"]}) == pytest.approx({"small": 1.0})
    assert run_time_ratios(simulation, times_ns(), {"small": (0, 0, 0.0)}) == {}


def test_a_plan_with_the_ratios_is_simulated_as_one_of_the_slower_profile() -> None:
    prepared, simulation = of(little_profile())
    slower, with_slower = of(slower_profile())
    scaled = as_ran(prepared, SLOWER)
    np.testing.assert_allclose(scaled.run_ns, slower.run_ns, atol=1)
    run = scaled.run(simulation.workload)
    np.testing.assert_allclose(run.latency_s, with_slower.latency_s, atol=1e-6)


def test_the_steps_add_up_to_what_was_measured() -> None:
    prepared, simulation = of(little_profile())
    slow = as_ran(prepared, SLOWER).run(simulation.workload)
    later = replace(simulation, communication_s=np.full(len(simulation.workload), 0.002))
    measured = LatencySummary(mean=1.0, p50=0.5, p95=0.8, p99=0.9)
    split = split_latency(simulation, later, replace(slow, communication_s=later.communication_s), measured, SLOWER)
    assert split.generator == pytest.approx((0.002, 0.002, 0.002))
    assert min(split.run_times) > 0
    steps = zip(split.predicted, split.generator, split.run_times, split.rest, strict=True)
    assert [sum(step) for step in steps] == pytest.approx(split.measured)
    assert split.measured == (0.5, 0.8, 0.9)
