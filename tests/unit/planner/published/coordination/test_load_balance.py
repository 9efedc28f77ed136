import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from gearshift.planner.published.coordination.load_balance import FULL, balance, least_utilisation
from tests.often import often

MODELS = ("a", "b", "c")


def test_one_device_does_all() -> None:
    found = balance({"a": 50.0}, {"d": {"a": 0.01}})
    assert found is not None
    assert found.utilisation == pytest.approx(0.5)
    assert found.shares == {("a", "d"): 1.0}


def test_a_model_on_two_devices_makes_room_for_the_one_that_is_on_a_single_one() -> None:
    # a is 0.4 of a device and b 0.6; b is on d0 alone, so a goes to d1: 0.6 at most, and d1 has 0.4.
    found = balance({"a": 40.0, "b": 60.0}, {"d0": {"a": 0.01, "b": 0.01}, "d1": {"a": 0.01}})
    assert found is not None
    assert found.utilisation == pytest.approx(0.6)
    assert found.shares == pytest.approx({("a", "d0"): 0.0, ("b", "d0"): 1.0, ("a", "d1"): 1.0})


def test_a_faster_device_takes_more() -> None:
    # q0 x 10 ms = q1 x 30 ms and q0 + q1 = 80: q0 = 60.
    found = balance({"a": 80.0}, {"fast": {"a": 0.01}, "slow": {"a": 0.03}})
    assert found is not None
    assert found.utilisation == pytest.approx(0.6)
    assert found.shares == pytest.approx({("a", "fast"): 0.75, ("a", "slow"): 0.25})


def test_devices_that_are_alike_get_the_same() -> None:
    found = balance({"a": 90.0}, {f"d{i}": {"a": 0.01} for i in range(3)})
    assert found is not None
    assert found.shares == pytest.approx({("a", f"d{i}"): 1 / 3 for i in range(3)})


def test_full_utilisation_is_allowed_and_no_more() -> None:
    assert balance({"a": 100.0}, {"d": {"a": 0.01}}) is not None
    assert balance({"a": 101.0}, {"d": {"a": 0.01}}) is None


def test_a_model_without_replica_cannot_be_balanced() -> None:
    placed = {"d": {"a": 0.01}}
    assert balance({"a": 1.0, "b": 1.0}, placed, most_utilisation=math.inf) is None
    assert least_utilisation({"a": 1.0, "b": 1.0}, placed) == math.inf


def test_models_that_are_not_in_demand_do_not_matter() -> None:
    found = balance({"a": 50.0}, {"d0": {"a": 0.01, "b": 9.0}, "d1": {"b": 9.0}})
    assert found is not None
    assert found.shares == {("a", "d0"): 1.0}


def test_the_solver_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    balance({"a": 123.0, "b": 7.0}, {"d0": {"a": 0.002, "b": 0.01}, "d1": {"a": 0.004}})
    balance({"a": 1e9}, {"d0": {"a": 0.002}})
    assert capfd.readouterr() == ("", "")


SECONDS = st.floats(0.001, 0.05)
PLACED = st.lists(st.dictionaries(st.sampled_from(MODELS), SECONDS), min_size=1, max_size=5).map(
    lambda devices: {f"d{i}": held for i, held in enumerate(devices)}
)
DEMAND = st.dictionaries(st.sampled_from(MODELS), st.floats(0.1, 200.0), min_size=1)


@settings(deadline=None, derandomize=True)
@given(DEMAND, PLACED)
def test_load_shares_add_up_to_one_and_no_device_is_over_the_utilisation(demand: Any, placed: Any) -> None:
    found = balance(demand, placed, most_utilisation=math.inf)
    assert (found is None) == any(all(m not in held for held in placed.values()) for m in demand)
    if found is None:
        return
    for model in demand:
        shares = [share for (m, _), share in found.shares.items() if m == model]
        assert sum(shares) == pytest.approx(1, abs=1e-9)
        assert min(shares) >= 0
    for device in placed:
        busy = sum(s * demand[m] * placed[d][m] for (m, d), s in found.shares.items() if d == device)
        assert busy <= found.utilisation * (1 + 1e-9)


@settings(deadline=None, derandomize=True, max_examples=often(50))
@given(DEMAND, PLACED)
def test_the_least_utilisation_is_where_lowering_u_makes_the_program_of_the_paper_unsolvable(
    demand: Any, placed: Any
) -> None:
    found = balance(demand, placed, most_utilisation=math.inf)
    if found is not None:
        assert as_printed(demand, placed, u=found.utilisation * 1.0001)
        assert not as_printed(demand, placed, u=found.utilisation * 0.999)


def as_printed(demand: dict[str, float], placed: dict[str, dict[str, float]], *, u: float) -> bool:
    """Whether Eq. 1 to 3 have a solution, one variable per replica."""
    replicas = [(model, device) for device, held in placed.items() for model in held if model in demand]
    serve = np.array([[-float(model == m) for model, _ in replicas] for m in demand])
    busy = np.array([[placed[device][model] * (device == d) for model, device in replicas] for d in placed])
    limits = np.concatenate([-np.array(list(demand.values())), np.full(len(placed), u)])
    return bool(linprog(np.ones(len(replicas)), A_ub=np.vstack([serve, busy]), b_ub=limits).success)


@settings(deadline=None, derandomize=True)
@given(DEMAND, st.lists(st.sets(st.sampled_from(MODELS)), min_size=1, max_size=5), st.tuples(SECONDS, SECONDS, SECONDS))
def test_the_closed_form_for_equal_devices_agrees_with_the_program(demand: Any, held: Any, speeds: Any) -> None:
    seconds = dict(zip(MODELS, speeds, strict=True))
    placed = {f"d{i}": {m: seconds[m] for m in sorted(models)} for i, models in enumerate(held)}
    found = balance(demand, placed, most_utilisation=math.inf)
    assert least_utilisation(demand, placed) == pytest.approx(math.inf if found is None else found.utilisation)


def test_unequal_devices_are_left_to_the_program() -> None:
    assert least_utilisation({"a": 80.0}, {"f": {"a": 0.01}, "s": {"a": 0.03}}) == pytest.approx(0.6 * FULL)
