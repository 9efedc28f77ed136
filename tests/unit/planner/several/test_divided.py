"""Devices divided among pipelines that are planned alone."""

from hypothesis import given
from hypothesis import strategies as st

from gearshift.planner.contract.planner import SoFar
from gearshift.planner.several.plan import plans_on_own_devices, shares
from tests.unit.planner.several.worlds import two_operators


@given(work=st.lists(st.floats(0.001, 1e3), min_size=1, max_size=5), more=st.integers(0, 20))
def test_all_devices_are_given_and_one_more_or_less_is_no_better(work: list[float], more: int) -> None:
    named = {str(i): each for i, each in enumerate(work)}
    counts = shares(named, len(work) + more)
    assert sum(counts.values()) == len(work) + more
    assert min(counts.values()) >= 1
    most = max(named[name] / count for name, count in counts.items())
    for name, count in counts.items():
        assert count == 1 or named[name] / (count - 1) >= most


def test_two_operators_share_three_devices_by_their_work() -> None:
    assert shares({"a": 1.0, "b": 1.9}, 3) == {"a": 1, "b": 2}
    assert shares({"a": 9.0, "b": 1.0}, 5) == {"a": 4, "b": 1}


def test_each_pipeline_is_planned_on_devices_that_no_other_uses() -> None:
    several = two_operators()
    plans = plans_on_own_devices(several, SoFar(several.requests["cats"]))
    used = {
        name: {id_ for replica in made.placement.replicas for id_ in replica.device_ids} for name, made in plans.items()
    }
    assert used == {"cats": {"cpu-0"}, "dogs": {"cpu-1"}}
    assert all(made.hardware == several.hardware for made in plans.values())
