import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gearshift.placement import Placement, Replica
from gearshift.planner.published.candidate_plans import balanced_shares, least_busy_s, minimum_queue_lengths
from tests.often import often

LITTLE = settings(max_examples=often(60), deadline=None, derandomize=True)


def placed(**device_ids: str) -> Placement:
    """Replicas such as m0_a="d0 d1": of model m0, on both devices."""
    return Placement(
        replicas=tuple(
            Replica(id=name, model=name.split("_")[0], device_ids=tuple(on.split()), tensor_parallel=len(on.split()))
            for name, on in device_ids.items()
        )
    )


def growing(alone_s: float, *, largest: int = 8) -> NDArray[np.float64]:
    """A batch of b takes 0.6 + 0.4 b times one."""
    table_s = alone_s * (0.6 + 0.4 * np.arange(largest + 1))
    table_s[0] = 0
    return table_s


# Load shares, Eq. 1 and 2 ---------------------------------------------------------------------------------------------


def test_replicas_on_like_devices_share_evenly() -> None:
    shares = balanced_shares(placed(m0_a="d0", m0_b="d1"), {"m0": 1.0}, {"m0_a": 0.1, "m0_b": 0.1})
    assert shares == pytest.approx({"m0_a": 0.5, "m0_b": 0.5})


def test_a_device_with_another_model_gets_less() -> None:
    """Evenly spread, d0 has 0.5 + 0.5 and d1 0.5 seconds; both have the average of 0.75 at shares of 1/4 and 3/4."""
    shares = balanced_shares(
        placed(m0_a="d0", m0_b="d1", m1_a="d0"), {"m0": 10.0, "m1": 5.0}, {"m0_a": 0.1, "m0_b": 0.1, "m1_a": 0.1}
    )
    assert shares == pytest.approx({"m0_a": 0.25, "m0_b": 0.75, "m1_a": 1.0})


def test_the_average_is_of_an_even_spread_also_where_devices_differ() -> None:
    """10/s at 1 and 3 s: the average of 5 and 15 is 10; |x - 10| + |3 (10 - x) - 10| is least at x = 20/3."""
    shares = balanced_shares(placed(m0_a="d0", m0_b="d1"), {"m0": 10.0}, {"m0_a": 1.0, "m0_b": 3.0})
    assert shares == pytest.approx({"m0_a": 2 / 3, "m0_b": 1 / 3})


def test_a_replica_loads_all_devices_that_it_spans() -> None:
    """m0 takes 0.2 s of d0 and of d1, m1 1 s in all: each device can have the average of 1.4 / 3."""
    placement = placed(m0_a="d0 d1", m1_a="d0", m1_b="d1", m1_c="d2")
    shares = balanced_shares(placement, {"m0": 1.0, "m1": 10.0}, {"m0_a": 0.2, "m1_a": 0.1, "m1_b": 0.1, "m1_c": 0.1})
    assert shares == pytest.approx({"m0_a": 1.0, "m1_a": 0.8 / 3, "m1_b": 0.8 / 3, "m1_c": 1.4 / 3})


def test_shares_do_not_depend_on_the_load() -> None:
    placement = placed(m0_a="d0", m0_b="d1", m1_a="d0")
    run_s = {"m0_a": 0.1, "m0_b": 0.3, "m1_a": 0.2}
    low, high = (balanced_shares(placement, {"m0": load, "m1": 0.3 * load}, run_s) for load in (1.0, 1e4))
    assert low == pytest.approx(high)


def test_replicas_of_models_outside_the_cascade_have_no_share() -> None:
    assert balanced_shares(placed(m0_a="d0", m1_a="d0"), {"m0": 1.0}, {"m0_a": 0.1, "m1_a": 0.1}) == {"m0_a": 1.0}


def test_the_solver_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    balanced_shares(placed(m0_a="d0", m0_b="d1"), {"m0": 1.0}, {"m0_a": 0.1, "m0_b": 0.2})
    assert capfd.readouterr() == ("", "")


@st.composite
def cascades(draw: st.DrawFn) -> tuple[Placement, dict[str, float], dict[str, float]]:
    """A placement of up to three models on up to five devices, requests per second by model, and run times."""
    replicas: dict[str, str] = {}
    for model in range(draw(st.integers(1, 3))):
        devices = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True))
        spans = draw(st.booleans()) and len(devices) >= 2
        first = {f"m{model}_s": f"d{devices[0]} d{devices[1]}"} if spans else {}
        replicas |= first | {f"m{model}_{d}": f"d{d}" for d in devices[2 if spans else 0 :]}
    run_s = {name: draw(st.floats(0.001, 2.0)) for name in replicas}
    rate_qps = {name.split("_")[0]: draw(st.floats(0.01, 1000.0)) for name in replicas}
    return placed(**replicas), rate_qps, run_s


@LITTLE
@given(cascades())
def test_the_shares_of_each_model_add_up_to_1_and_beat_an_even_spread(
    cascade: tuple[Placement, dict[str, float], dict[str, float]],
) -> None:
    placement, rate_qps, run_s = cascade
    shares = balanced_shares(placement, rate_qps, run_s)
    count = {m: sum(r.model == m for r in placement.replicas) for m in rate_qps}
    even = {r.id: 1 / count[r.model] for r in placement.replicas}
    for model in rate_qps:
        assert sum(shares[r.id] for r in placement.replicas if r.model == model) == pytest.approx(1, abs=1e-12)

    def loads(of: dict[str, float]) -> NDArray[np.float64]:
        load = {d: 0.0 for r in placement.replicas for d in r.device_ids}
        for r in placement.replicas:
            for d in r.device_ids:
                load[d] += of[r.id] * rate_qps[r.model] * run_s[r.id]
        return np.array(list(load.values()))

    average = loads(even).mean()
    assert min(shares.values()) >= 0
    assert np.abs(loads(shares) - average).sum() <= np.abs(loads(even) - average).sum() + 1e-6 * average


# Minimum queue lengths ------------------------------------------------------------------------------------------------


def test_one_waiting_request_starts_a_batch_where_the_work_fits_a_second() -> None:
    found = minimum_queue_lengths(placed(m0_a="d0"), {"m0_a": 9.9}, {"m0_a": growing(0.1)})
    assert found == {"m0_a": 1}


def test_the_queue_length_is_raised_until_the_work_fits() -> None:
    """12/s at 0.1 s is 1.2 s; in pairs at 0.07 s each it is 0.84 s."""
    found = minimum_queue_lengths(placed(m0_a="d0"), {"m0_a": 12.0}, {"m0_a": growing(0.1)})
    assert found == {"m0_a": 2}


@pytest.mark.parametrize(("rate_qps", "lengths"), [(5.5, (2, 1)), (6.0, (2, 2)), (7.5, (3, 2))])
def test_replicas_of_a_device_are_raised_in_turn(rate_qps: float, lengths: tuple[int, int]) -> None:
    """By 1, 2 and 3: 0.1, 0.07 and 0.06 s per request."""
    run_s = {"m0_a": growing(0.1), "m1_a": growing(0.1)}
    found = minimum_queue_lengths(placed(m0_a="d0", m1_a="d0"), dict.fromkeys(run_s, rate_qps), run_s)
    assert tuple(found.values()) == lengths


def test_replicas_of_other_devices_are_left_alone() -> None:
    run_s = {"m0_a": growing(0.1), "m0_b": growing(0.1)}
    found = minimum_queue_lengths(placed(m0_a="d0", m0_b="d1"), {"m0_a": 12.0, "m0_b": 9.0}, run_s)
    assert found == {"m0_a": 2, "m0_b": 1}


def test_where_work_fits_at_no_batch_size_all_lengths_stay_at_1() -> None:
    """20/s in pairs is 1.4 s."""
    run_s = {"m0_a": growing(0.1, largest=2)}
    assert minimum_queue_lengths(placed(m0_a="d0"), {"m0_a": 20.0}, run_s) == {"m0_a": 1}
    assert least_busy_s(placed(m0_a="d0"), {"m0_a": 20.0}, run_s) == pytest.approx(1.4)


def test_no_length_is_raised_past_the_size_where_a_request_takes_least() -> None:
    run_s = {"m0_a": np.array([0.0, 0.1, 0.12, 0.4])}
    assert minimum_queue_lengths(placed(m0_a="d0"), {"m0_a": 16.0}, run_s) == {"m0_a": 2}
    assert least_busy_s(placed(m0_a="d0"), {"m0_a": 17.0}, run_s) == pytest.approx(1.02)


def test_a_replica_without_load_is_not_raised() -> None:
    run_s = {"m0_a": growing(0.1), "m1_a": growing(0.1)}
    found = minimum_queue_lengths(placed(m0_a="d0", m1_a="d0"), {"m0_a": 12.0, "m1_a": 0.0}, run_s)
    assert found == {"m0_a": 2}


@LITTLE
@given(cascades(), st.integers(1, 16))
def test_either_every_device_fits_its_second_or_all_lengths_stay_at_1(
    cascade: tuple[Placement, dict[str, float], dict[str, float]], largest: int
) -> None:
    placement, rate_of_model, alone_s = cascade
    rate_qps = {r.id: rate_of_model[r.model] for r in placement.replicas}
    run_s = {r.id: growing(alone_s[r.id], largest=largest) for r in placement.replicas}
    found = minimum_queue_lengths(placement, rate_qps, run_s)
    busy_s: dict[str, float] = {}
    for r in placement.replicas:
        length = found[r.id]
        assert 1 <= length <= largest
        for device in r.device_ids:
            busy_s[device] = busy_s.get(device, 0.0) + rate_qps[r.id] * run_s[r.id][length] / length
    if least_busy_s(placement, rate_qps, run_s) > 1 + 1e-8:
        assert set(found.values()) == {1}
    else:
        assert max(busy_s.values()) <= 1 + 1e-8
