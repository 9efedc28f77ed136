"""The share of the devices that the others keep busy, where one pipeline is planned beside them."""

import msgspec
import pytest

from gearshift.clock import NS_PER_S
from gearshift.planner.several.coordinate import beside
from gearshift.planner.several.plan import cheapest_of_each
from gearshift.profiles.profile import RunTimeCurve
from gearshift.simulator.simulate import simulate
from gearshift.workload import draw_workload
from tests.unit.planner.several.worlds import CATS, two_operators

SEVERAL = two_operators()


def curve_of(model: str) -> RunTimeCurve:
    return next(curve for curve in CATS.curves if curve.model == model)


def test_others_keep_devices_busy_for_as_long_as_their_largest_batches_take() -> None:
    plans = cheapest_of_each(SEVERAL)
    among = beside(SEVERAL, plans, "dogs", kept=["cats"])
    (gear,) = plans["cats"].pipelines["cats"].gears
    (model,) = gear.cascade.models
    used = [settings for settings in gear.replicas if settings.load_share > 0]
    size = used[0].largest_batch_size
    assert size > 1
    curve = curve_of(model)
    least_s = min(ns / n for n, ns in enumerate(curve.table_ns().tolist()) if 1 <= n <= size) / NS_PER_S
    assert len(used) == 2
    for settings in used:
        device = settings.replica.rpartition("@")[2]
        expected = settings.load_share * among.loads_qps["cats"] * least_s
        assert among.busy[device] == pytest.approx(expected, rel=1e-6)


def test_they_are_busier_in_the_small_batches_that_they_run_alone() -> None:
    """Else a pipeline beside them would be taken to have less time than it can get."""
    plans = cheapest_of_each(SEVERAL)
    among = beside(SEVERAL, plans, "dogs", kept=["cats"])
    cats = msgspec.structs.replace(plans["cats"], predictions={})
    request = SEVERAL.requests["cats"]
    run = simulate(cats, request.profile, draw_workload(request.trace, request.profile.predictions.indices(0), seed=0))
    busy = dict(zip(run.tables.device_ids, (run.busy_s / run.duration_s).tolist(), strict=True))
    share = request.trace.mean_qps / among.loads_qps["cats"]
    assert all(among.busy[device] * share < busy[device] for device in busy)
