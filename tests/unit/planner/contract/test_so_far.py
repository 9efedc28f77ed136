"""Searches that are cut short: every planner keeps what it has, and soon ends."""

import re
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.contract import planner as contract
from gearshift.planner.contract.planner import BEST, SoFar, spread, with_best
from gearshift.planner.evaluate import confirm
from gearshift.planner.evaluate.confirm import replays_at_once
from gearshift.planner.space.request import PlanRequest, Progress
from tests.unit.planner.little import little_request, little_trace

OBJECTIVES = {
    "latency": Objective(latency_s=0.03),
    "accuracy": Objective(accuracy=0.7),
    "both": Objective(latency_s=0.03, accuracy=0.7),
}
PLANS = re.compile(r"[1-9]\d* plans? so far|best so far: ")


def asked(objective: Objective, **changed: Any) -> PlanRequest:
    trace = little_trace(low_qps=60, high_qps=360)
    return little_request(objective=objective, trace=trace, hardware=identical_devices(2), ranges=3, **changed)


def found(name: str, what: str, progress: Progress, **changed: Any) -> list[GearPlan]:
    """What a planner finds for an objective of `OBJECTIVES`, on the fewest devices, or as a frontier."""
    if what == "frontier":
        return planners.frontier(name, asked(Objective(), **changed), progress=progress)
    if what == "fewest":
        return [planners.fewest(name, asked(OBJECTIVES["both"], **changed), progress=progress)]
    return [planners.plan(name, asked(OBJECTIVES[what], **changed), progress=progress)]


class Interrupting:
    """Progress at which Ctrl-C comes with the `number`-th line that says that there is a plan."""

    def __init__(self, number: int, said: re.Pattern[str]) -> None:
        self.left, self.said = number, said

    def __call__(self, what: str, share: float) -> None:
        if share < 1.0 and self.said.search(what):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


# What each planner can be asked, where it has a plan before it is done.
CASES = [
    *((name, what) for name in planners.for_() for what in ("latency", "frontier")),
    *((name, "accuracy") for name in planners.for_() if name != "coordinate"),
    *((name, "fewest") for name in ("optimal", "single", "frontier", "static-cascade")),
]
SHORT = {("optimal", "latency"), ("optimal", "accuracy"), *((name, "frontier") for name in planners.for_())}
"""Cases that `make test` tries: each planner once, and the default one for a plan."""


def cases(shortest: int, *more: int) -> list[Any]:
    """Every case with each of these numbers; in `make test` a few, with the first."""
    return [
        pytest.param(*case, number, marks=[pytest.mark.long] * (case not in SHORT or number != shortest))
        for number in (shortest, *more)
        for case in CASES
    ]


@pytest.mark.parametrize(("name", "what", "number"), cases(1, 3))
def test_ctrl_c_keeps_a_plan_from_the_moment_on_at_which_progress_says_that_there_is_one(
    name: str, what: str, number: int
) -> None:
    told = Interrupting(number, PLANS if what == "frontier" else re.compile(BEST))
    plans = found(name, what, told)
    assert plans
    if number == 1:
        assert told.left == 0
    if told.left == 0:
        assert all(made.unfinished for made in plans)
    assert all(made.predictions["task"].requests == len(asked(Objective()).trace) for made in plans)


@pytest.mark.parametrize("name", ["coordinate", "frontier", "optimal", "placement-heuristic"])
def test_ctrl_c_before_there_is_a_plan_is_told_on(name: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        found(name, "latency", Interrupting(1, re.compile("searching cascades")))


# The budget -----------------------------------------------------------------------------------------------------------


class Spent:
    """A clock that stands still for so many looks, then leaps at each; and the replays that begin from then on."""

    def __init__(self, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self.late, self.lock = looks, 0, threading.Lock()
        monkeypatch.setattr(contract, "time", SimpleNamespace(monotonic=self.monotonic))
        monkeypatch.setattr(confirm, "workload_of", self.counting(confirm.workload_of))

    def monotonic(self) -> float:
        with self.lock:
            self.left -= 1
            return max(0.0, -1e6 * self.left)

    def counting(self, workload_of: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            with self.lock:
                self.late += self.left < 0
            return workload_of(*arguments, **named)

        return counted


@pytest.mark.parametrize(("name", "what", "looks"), cases(30, 3, 300))
def test_once_the_budget_is_spent_hardly_a_replay_of_the_trace_begins(
    name: str, what: str, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for the predictions; and one that was about to begin, per processor, or compares plans that are done."""
    clock = Spent(looks, monkeypatch)
    try:
        plans = found(name, what, contract.silent, budget_s=10.0)
    except Infeasible:  # none in time
        plans = []
    assert clock.left >= 0 or all(made.unfinished for made in plans)
    assert clock.late <= max(2, replays_at_once(len(asked(Objective()).trace)))


def test_what_is_left_of_the_time_is_handed_on() -> None:
    request = asked(Objective(latency_s=0.03), budget_s=100.0)
    left_s = SoFar(request).remaining(request).budget_s
    assert left_s is not None
    assert 99 < left_s <= 100
    ended = SoFar(request)
    ended.end()
    assert (ended.remaining(request).budget_s or 1) < 1e-6
    unlimited = asked(Objective(latency_s=0.03))
    assert SoFar(unlimited).remaining(unlimited).budget_s is None


def test_progress_names_the_best_plan_of_all_and_not_of_a_search_within() -> None:
    assert with_best("replaying", None) == "replaying"
    assert with_best("replaying", 0.8) == "replaying, best so far: accuracy 0.8000"
    assert with_best(with_best("replaying", 0.7), 0.8) == with_best("replaying", 0.8)


def test_the_first_few_of_many_are_spread_over_all() -> None:
    assert sorted(range(8), key=spread) == [0, 4, 2, 6, 1, 5, 3, 7]
