"""Tuples: one candidate for each operator, of which no other is better in accuracy and work."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.planner.several.layouts import tuples_of
from gearshift.planner.space.cascade_search import CandidateCascade
from tests.often import often
from tests.unit.planner.several.worlds import two_operators

SEVERAL = two_operators()


def candidate(name: str, work: int, accuracy: int) -> CandidateCascade:
    return CandidateCascade(
        cascade=Cascade(models=(f"{name}-m0",)), accuracy=accuracy / 16, work_s=work / 16, reach=(1.0,)
    )


points = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), min_size=1, max_size=5)


@settings(max_examples=often(100))
@given(points, points)
def test_tuples_are_those_that_no_other_tuple_beats(cats: list[tuple[int, int]], dogs: list[tuple[int, int]]) -> None:
    offered = {name: [candidate(name, *p) for p in each] for name, each in (("cats", cats), ("dogs", dogs))}
    requests, qps = SEVERAL.share_of_requests, SEVERAL.busy_qps
    total_qps = sum(qps.values())

    def point(members: tuple[CandidateCascade, ...]) -> tuple[float, float]:
        named = dict(zip(offered, members, strict=True))
        work_s = sum(qps[name] * one.work_s for name, one in named.items()) / total_qps
        return work_s, sum(requests[name] * one.accuracy for name, one in named.items())

    every = [point(members) for members in product(*offered.values())]
    found = tuples_of(SEVERAL, offered)
    for one in found:
        assert point(tuple(one.members.values())) == pytest.approx((one.work_s, one.accuracy))
        assert not any(w <= one.work_s - 1e-9 and a >= one.accuracy - 1e-9 for w, a in every)
        assert not any(w <= one.work_s + 1e-9 and a >= one.accuracy + 1e-9 for w, a in every)
    for work_s, accuracy in every:
        assert any(one.work_s <= work_s + 1e-9 and one.accuracy >= accuracy - 1e-9 for one in found)


def test_a_preferred_operator_gets_the_more_accurate_candidate() -> None:
    offered = {name: [candidate(name, 1, 8), candidate(name, 4, 10)] for name in ("cats", "dogs")}
    half = sorted(tuples_of(SEVERAL, offered, {"dogs": 50.0}), key=lambda one: one.work_s)[1]
    assert half.members["dogs"].accuracy > half.members["cats"].accuracy
