"""Load shares: even where they can be, and never busier than the linear program's best."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from gearshift.placement import Placement, Replica
from gearshift.planner.evaluate.balance import balanced
from tests.often import often


def placed(*on: tuple[str, str]) -> Placement:
    return Placement(replicas=tuple(Replica(id=f"{m}@{d}", model=m, device_ids=tuple(d.split("+"))) for m, d in on))


def work(placement: Placement, seconds: dict[str, float]) -> dict[str, float]:
    return {r.id: seconds[r.model] for r in placement.replicas}


def test_a_model_moves_away_from_devices_that_others_keep_busy() -> None:
    placement = placed(("small", "0"), ("small", "1"), ("large", "1"))
    made = balanced(placement, work(placement, {"small": 0.004, "large": 0.010}), {"small": 1.0, "large": 0.2})
    assert made.shares == pytest.approx({"small@0": 0.75, "small@1": 0.25, "large@1": 1.0})
    assert made.utilisation_per_qps == pytest.approx(0.003)


def test_faster_devices_take_more() -> None:
    placement = placed(("m", "0"), ("m", "1"))
    made = balanced(placement, {"m@0": 0.001, "m@1": 0.003}, {"m": 1.0})
    assert made.shares == pytest.approx({"m@0": 0.75, "m@1": 0.25})


def test_a_replica_over_two_devices_keeps_both_busy() -> None:
    placement = placed(("wide", "0+1"), ("small", "0"), ("small", "2"))
    made = balanced(placement, work(placement, {"wide": 0.01, "small": 0.01}), {"wide": 0.5, "small": 1.0})
    assert made.shares == pytest.approx({"wide@0+1": 1.0, "small@0": 0.25, "small@2": 0.75})


@settings(max_examples=often(60), deadline=None)
@given(data=st.data())
def test_the_busiest_device_is_as_idle_as_the_linear_program_allows(data: st.DataObject) -> None:
    devices, models = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    on = []
    for m in range(models):
        where = data.draw(st.sets(st.integers(0, devices - 1), min_size=1))
        on += [(f"m{m}", str(d)) for d in sorted(where)]
    placement = placed(*on)
    seconds = {f"m{m}": data.draw(st.floats(0.001, 0.1)) for m in range(models)}
    reach = {f"m{m}": data.draw(st.floats(0.05, 1.0)) for m in range(models)}
    made = balanced(placement, work(placement, seconds), reach)
    n = len(on)
    rows = np.zeros((devices, n + 1))
    sums = np.zeros((models, n + 1))
    for i, (m, d) in enumerate(on):
        rows[int(d), i] = seconds[m] * reach[m]
        sums[int(m[1:]), i] = 1
    rows[:, -1] = -1
    best = linprog(np.eye(n + 1)[-1], A_ub=rows, b_ub=np.zeros(devices), A_eq=sums, b_eq=np.ones(models))
    assert made.utilisation_per_qps == pytest.approx(best.fun, rel=1e-3)
    for m in range(models):
        assert sum(made.shares[f"m{m}@{d}"] for model, d in on if model == f"m{m}") == pytest.approx(1)
