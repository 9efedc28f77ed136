import dataclasses
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import msgspec
import pytest

from gearshift.errors import InvalidInput
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.compare import (
    COCKTAIL,
    Run,
    accuracy_steps,
    cocktail_jobs,
    comparable,
    compared,
    count_interrupted,
    fewest,
    require_comparable,
    run_planner,
    worst_accuracy,
)
from gearshift.planner.side_by_side import interrupts_held, run_side_by_side
from gearshift.planner.space.request import PlanRequest
from gearshift.reporting.comparison import comparison_sections, runs_of
from gearshift.reporting.drawing.page import html_page
from gearshift.simulator.compared.cocktail import fewest_devices_cocktail
from tests.unit.planner.fake import result
from tests.unit.planner.little import PROFILE, little_request
from tests.unit.simulator.compared.test_cocktail import independent_profile

WORST = worst_accuracy(little_request())
IMPOSSIBLE = Objective(latency_s=1e-6)


def run(planner: str, devices: float, slo_ms: float, found: tuple[float, float] | None) -> Run:
    """A run whose plan has this p95 in milliseconds and accuracy, or one that failed."""
    predicted = None if found is None else result(found[0] / 1e3, found[1])
    error = {"kind": "infeasible", "message": "no"} if found is None else None
    return Run(
        planner=planner,
        devices=devices,
        latency_objective_s=slo_ms / 1e3,
        planning_s=1.0,
        predicted=predicted,
        error=error,
    )


RUNS = [
    run("ours", 1, 50, (40, 0.80)),
    run("ours", 1, 100, (90, 0.85)),
    run("ours", 2, 50, (45, 0.90)),
    run("ours", 2, 100, (60, 0.95)),
    run("ours", 4, 50, (45, 0.95)),
    run("ours", 4, 100, (60, 0.95)),
    run("single", 1, 50, None),
    run("single", 1, 100, (80, 0.70)),
    run("single", 2, 50, (50, 0.80)),
    run("single", 2, 100, (50, 0.80)),
    run("single", 4, 50, (50, 0.90)),
    run("single", 4, 100, (70, 0.90)),
]


def cells(**changed: Any) -> dict[tuple[str, float, int], tuple[float | None, float | None, bool]]:
    found = compared(RUNS, WORST, accuracies=[0.8, 0.9, 0.95, 0.99], **changed)
    return {
        (c.planner, c.accuracy, round(c.latency_s * 1e3)): (c.devices, c.saving, c.saving_at_least) for c in found.grid
    }


def test_a_cell_holds_the_fewest_devices_that_reach_accuracy_and_latency() -> None:
    assert [fewest(RUNS, "ours", accuracy, 0.05) for accuracy in (0.8, 0.9, 0.95, 0.96)] == [1, 2, 4, None]
    assert [fewest(RUNS, "ours", accuracy, 0.1) for accuracy in (0.8, 0.85, 0.9, 0.95)] == [1, 1, 2, 2]
    assert fewest(RUNS, "single", 0.8, 0.05) == 2


def test_savings_are_against_the_best_baseline_of_the_cell() -> None:
    grid = cells()
    assert grid["ours", 0.8, 50] == (1, 2.0, False)
    assert grid["ours", 0.9, 100] == (2, 2.0, False)
    assert grid["single", 0.8, 50] == (2, None, False)


def test_where_no_baseline_reaches_the_cell_the_saving_is_at_least_that_of_the_most_devices() -> None:
    grid = cells()
    assert grid["ours", 0.95, 100] == (2, 2.0, True)
    assert grid["ours", 0.95, 50] == (4, 1.0, True)
    assert grid["ours", 0.99, 50] == (None, None, False)


def test_without_baselines_there_are_no_savings() -> None:
    assert all(saving is None for _, saving, _ in cells(baselines=[]).values())


def test_hypervolumes_grow_with_better_plans() -> None:
    found = compared(RUNS, WORST)
    volumes = {(v.planner, v.devices): v.hypervolume for v in found.hypervolumes}
    assert volumes["ours", 1] < volumes["ours", 2] < volumes["ours", 4]
    assert volumes["single", 4] < volumes["ours", 4]
    assert found.reference[0] == 1.0


def test_using_all_of_an_objective_costs_a_planner_nothing() -> None:
    """Both promise 100 ms; that one needs 20 of them only is no merit where the other is more accurate."""
    tight, loose = run("tight", 1, 100, (99, 0.90)), run("loose", 1, 100, (20, 0.85))
    volumes = {v.planner: v.hypervolume for v in compared([tight, loose], WORST).hypervolumes}
    assert (tight.point, loose.point) == ((0.1, 0.90), (0.1, 0.85))
    assert volumes["tight"] > volumes["loose"]


def test_a_plan_that_is_late_on_the_trace_counts_at_the_latency_it_needs_there() -> None:
    late = run("a", 1, 50, (60, 0.90))
    assert late.predicted is not None
    late = msgspec.structs.replace(late, predicted=msgspec.structs.replace(late.predicted, share_late=0.08))
    assert late.point == (0.06, 0.90)
    assert msgspec.structs.replace(late, percentile=0.9).point == (0.05, 0.90)
    assert msgspec.structs.replace(late, percentile=0.98).point == (0.12, 0.90)  # its p99
    assert fewest([late], "a", 0.9, 0.05) is None
    assert fewest([late], "a", 0.9, 0.06) == 1


def test_cocktail_is_a_column_of_the_grid_but_no_planner() -> None:
    """It needs 1.5 devices on average where `single` needs 2."""
    found = compared([*RUNS, run(COCKTAIL, 1.5, 50, (45, 0.82))], WORST, accuracies=[0.8, 0.9])
    grid = {(c.planner, c.accuracy): c for c in found.grid if c.latency_s == 0.05}
    assert (found.planners, found.columns) == (("ours", "single"), ("ours", "single", COCKTAIL))
    assert (grid[COCKTAIL, 0.8].devices, grid["ours", 0.8].saving) == (1.5, 1.5)
    assert (grid[COCKTAIL, 0.9].devices, grid["ours", 0.9].saving) == (None, 2.0)
    assert found.device_counts == (1, 2, 4)
    assert {v.planner for v in found.hypervolumes} == {"ours", "single"}


def test_a_plan_that_the_budget_cut_short_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planners.plan("single", little_request())
    for unfinished in (False, True):
        given = msgspec.structs.replace(made, unfinished=unfinished)
        monkeypatch.setattr(planners, "plan", lambda planner, request, given=given: given)
        marked = run_planner("single", little_request())
        assert (marked.error, marked.unfinished) == (None, unfinished)
        found = compared([marked], WORST)
        assert (", unfinished" in html_page("", "", comparison_sections(found))) == unfinished
        assert runs_of(found.runs).csv.splitlines()[1].split(",")[-2] == str(unfinished)


def test_cocktail_is_simulated_with_the_fewest_devices() -> None:
    request = little_request(profile=independent_profile(), objective=Objective(latency_s=0.05, accuracy=0.85))
    found = run_planner(COCKTAIL, request)
    assert found.error is None
    assert found.predicted is not None
    assert found.devices == fewest_devices_cocktail(request.profile, request.trace, request.objective).mean_devices


def test_cocktail_that_cannot_meet_the_latency_is_a_run_that_says_so() -> None:
    found = run_planner(COCKTAIL, little_request(profile=independent_profile(), objective=IMPOSSIBLE))
    assert (found.devices, found.predicted) == (0, None)
    assert found.error is not None
    assert "no model answers 0.95 of requests within 0.001 ms" in found.error["message"]


def test_cocktail_can_be_compared_where_predictions_are_recorded() -> None:
    assert COCKTAIL in comparable(independent_profile())
    assert comparable(PROFILE) == tuple(planners.for_())
    require_comparable(["optimal", COCKTAIL], independent_profile())
    with pytest.raises(InvalidInput, match=r"Cocktail\+ needs recorded predictions .*; leave cocktail\+ out"):
        require_comparable(["optimal", COCKTAIL], PROFILE)


def test_cocktail_is_asked_for_each_cell_of_the_grid() -> None:
    jobs = cocktail_jobs(little_request(), [0.8, 0.9], [0.05, 0.1])
    asked = [(name, r.objective.accuracy, r.objective.latency_s) for name, r in jobs]
    assert asked == [(COCKTAIL, a, s) for s in (0.05, 0.1) for a in (0.8, 0.9)]


def test_rows_of_the_grid_step_up_to_the_best_accuracy_and_not_past_it() -> None:
    steps = accuracy_steps(RUNS, 0.70)
    assert steps == (0.75, 0.8, 0.85, 0.9, 0.95)
    assert accuracy_steps([run("a", 1, 50, None)], 0.7) == (0.7,)


def test_a_bug_in_a_planner_is_an_error_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(planners.for_(), "broken", "tests.unit.planner.little")
    found = run_planner("broken", little_request())
    assert found.error is not None
    assert found.error["kind"] == "bug"


class Deadly:
    """What ends the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


def test_runs_side_by_side_come_in_order_and_none_ends_the_others() -> None:
    fine = little_request(latency_s=0.05, ranges=2)
    impossible = dataclasses.replace(fine, objective=Objective(latency_s=1e-5))
    deadly: PlanRequest = dataclasses.replace(fine, trace=Deadly())  # type: ignore[arg-type]
    told: list[str] = []
    jobs = [("single", request) for request in (fine, impossible, deadly)]
    runs = run_side_by_side(jobs, processes=2, progress=lambda what, _: told.append(what))
    assert runs[0].predicted is not None
    assert [None if r.error is None else r.error["kind"] for r in runs] == [None, "infeasible", "died"]
    assert runs[2].error == {"kind": "died", "message": "its process ended with status 3"}
    assert told[-1].startswith("3 of 3 runs")


@pytest.mark.long
def test_an_interrupt_keeps_the_runs_that_have_ended() -> None:
    jobs = [("single", little_request(latency_s=0.05, ranges=2))] * 3

    def interrupt(what: str, _: float) -> None:
        if what.startswith("1 of 3 runs"):
            raise KeyboardInterrupt

    runs = run_side_by_side(jobs, processes=1, progress=interrupt)
    assert [None if r.error is None else r.error["kind"] for r in runs] == [None, "interrupted", "interrupted"]
    assert count_interrupted(runs) == 2
    assert compared(runs, 0.5).device_counts == (len(jobs[0][1].hardware.devices),)


def test_an_interrupt_before_a_run_has_ended_is_raised() -> None:
    def interrupt(what: str, _: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_side_by_side([("single", little_request())], processes=1, progress=interrupt)


def test_an_interrupt_that_another_thread_takes_waits_as_well() -> None:
    """As one of native code may, which does not inherit the mask."""
    go = threading.Event()

    def interrupted() -> None:
        go.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    other = threading.Thread(target=interrupted)
    other.start()
    started: list[str] = []

    def start() -> None:
        with interrupts_held():
            go.set()
            other.join()
            started.append("a process")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert started


FIRST_PROCESS = """
import multiprocessing, signal
from gearshift.planner.side_by_side import interrupts_held

with interrupts_held():
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
process.join()
"""


def test_interrupts_are_held_for_the_first_process_too() -> None:
    """With which Python starts its resource tracker, and would lift the mask before the process inherits it."""
    done = subprocess.run([sys.executable, "-c", FIRST_PROCESS], capture_output=True, check=True, text=True)
    assert done.stdout == "True\n"


def test_each_run_says_what_it_was_asked() -> None:
    found = run_planner("nobody", little_request(latency_s=0.05, devices=2))
    assert (found.planner, found.devices, found.latency_objective_s) == ("nobody", 2, 0.05)
    assert found.error is not None
    assert "there is no planner 'nobody'" in found.error["message"]
