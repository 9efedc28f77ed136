from benchmarks.shared.judging import counting, judged
from gearshift.planner.evaluate.steady_state import Batching, SteadyState
from gearshift.profiles.profile import PART_A
from tests.unit.planner.little import little_request, single_plan


def test_replays_and_cells_of_steady_state_are_counted_in_requests() -> None:
    request, made = little_request(), single_plan("m0")
    steady = SteadyState(request.profile, request.hardware, made.placement, request.objective, seed=0)
    with counting(keep_runs=True) as counted:
        points = judged([made], request, part=PART_A, seeds=2)
        assert counted.requests == 2 * len(request.trace)
        steady.cell(made.pipelines["task"].gears[0].cascade, 100.0, Batching(1))
    assert counted.requests == 2 * len(request.trace) + steady.samples
    assert len(counted.runs) == 2
    assert points[0][0] < 0.03
    judged([made], request, part=PART_A, seeds=1)
    assert len(counted.runs) == 2
