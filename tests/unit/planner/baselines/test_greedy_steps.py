import pytest

from gearshift.errors import Infeasible
from gearshift.planner.baselines.of_graphs import GREEDY, greedy_steps
from gearshift.planner.joint.candidates import candidates_of
from gearshift.planner.joint.replanning.search import plan_pipeline
from tests.unit.planner.joint.strips import strips


def test_each_step_takes_the_cheaper_cascade_that_is_worth_most_until_the_load_is_held() -> None:
    gain = {(2, 1): 0.0, (1, 1): 3.0, (2, 0): 2.0, (0, 1): 1.0, (1, 0): 5.0, (0, 0): 0.0}
    chosen = greedy_steps(
        (2, 1),
        [1.0, 2.0, 3.0, 9.0],
        holds=lambda numbers, load: sum(numbers) <= 4 - load,
        worth=lambda numbers, _: gain[numbers],
    )
    assert chosen == [(2, 1), (1, 1), (1, 0), (0, 0)]


def test_a_step_is_not_taken_back_at_a_higher_load() -> None:
    held = {(1, 0), (0, 1)}
    chosen = greedy_steps(
        (1, 1), [1.0, 2.0], holds=lambda numbers, _: numbers in held, worth=lambda numbers, _: numbers[0]
    )
    assert chosen == [(1, 0), (1, 0)]


def test_a_greedy_plan_keeps_the_objective_and_is_no_more_accurate_than_a_joint_one() -> None:
    request = strips(latency_s=0.03, qps=90.0)
    made = GREEDY.plan(request)
    assert made.planner == "greedy"
    predicted = made.predictions["strips"]
    assert predicted.share_late <= 0.05
    gears = made.pipeline.gears
    assert len(gears) == request.ranges
    assert all(len(cascades) == 1 for gear in gears for cascades in gear.cascades.values())
    jointly = plan_pipeline(request, candidates_of(request)).predictions["strips"]
    assert predicted.accuracy <= jointly.accuracy + 0.01


def test_a_latency_that_no_tuple_keeps_is_refused_with_the_node_that_binds() -> None:
    with pytest.raises(Infeasible, match="tuple of least work misses") as refused:
        GREEDY.plan(strips(latency_s=0.001))
    assert refused.value.bottleneck
