import pytest

from gearshift.gear import GearPlan
from gearshift.planner.evaluate.beyond import predicted_at_their_ends
from gearshift.planner.search.optimal import PLANNER
from tests.unit.planner.little import little_request

plan = PLANNER.plan

REQUEST = little_request(latency_s=0.01)


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> GearPlan:
    """A plan of which some gears lie beyond the top of the ranges."""
    monkeypatch.setattr(
        "gearshift.planner.search.plan_search.MOST_CELLS", 0
    )  # published planners have ranges of their own
    return plan(REQUEST)


def test_gears_beyond_the_top_are_predicted_at_their_own_upper_ends(tight: GearPlan) -> None:
    (told,) = predicted_at_their_ends([tight], REQUEST)
    before, after = tight.pipelines["task"].gears, told.pipelines["task"].gears
    top_qps = float(REQUEST.upper_ends()[-1])
    beyond = [k for k, gear in enumerate(before) if gear.load_range.from_ >= top_qps and gear.load_range.to]
    assert beyond
    for k, (was, now) in enumerate(zip(before, after, strict=True)):
        assert was.predicted is not None
        assert now.predicted is not None
        if k not in beyond:
            assert now == was
            continue
        assert (was.predicted.load_qps, now.predicted.load_qps) == (top_qps, now.load_range.to)
        assert now.predicted.accuracy == was.predicted.accuracy
        assert now.predicted.utilisation > was.predicted.utilisation
