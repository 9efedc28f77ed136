"""The one table of planners."""

import pytest

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.planner import planners
from gearshift.planner.contract.planner import Planner, Search
from gearshift.planner.planners import PLANNERS, Kind, Shape
from gearshift.planner.several.request import SeveralRequest
from tests.unit.planner.joint.strips import strips
from tests.unit.planner.several.worlds import two_operators

ROWS: list[tuple[Kind, Shape]] = list(PLANNERS)


@pytest.mark.parametrize(("kind", "shape"), ROWS)
def test_every_planner_has_the_name_of_its_row(kind: Kind, shape: Shape) -> None:
    names = list(planners.for_(kind, shape))
    assert [planners.named(name, kind, shape).name for name in names] == names
    assert planners.default_for(kind, shape) in names


@pytest.mark.parametrize(("kind", "shape"), ROWS)
def test_a_name_that_is_not_in_the_row_is_refused_with_those_that_are(kind: Kind, shape: Shape) -> None:
    with pytest.raises(InvalidInput, match="planner 'best'") as caught:
        planners.named("best", kind, shape)
    assert all(name in str(caught.value) for name in planners.for_(kind, shape))


def _nothing(so_far: Search[SeveralRequest]) -> GearPlan:
    raise Infeasible("a toy plans nothing")


PLANNER = Planner(name="toy", best_within=_nothing)


def test_a_planner_is_added_by_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(planners.for_("rows", "several"), "toy", __name__)
    with pytest.raises(Infeasible, match="a toy plans nothing"):
        planners.plan("toy", two_operators())
    with pytest.raises(InvalidInput, match="plans no pipeline of several nodes"):
        planners.plan("toy", strips(latency_s=0.1))


def test_a_planner_without_a_frontier_says_so() -> None:
    with pytest.raises(InvalidInput, match="planner 'joint' finds no frontier"):
        planners.frontier("joint", strips(latency_s=0.1))
