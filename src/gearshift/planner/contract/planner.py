"""The contract of a planner, and what each search keeps: its request, time, progress, and the best plan so far.

A new planner is one file whose `PLANNER` is a `Planner`, and one line in `planners.PLANNERS`. A search is
cut short by Ctrl-C, or by `OutOfTime` once its budget is spent.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, NoReturn, TypeVar

import msgspec

from gearshift.errors import Infeasible, InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.space.request import LoadDistribution, PlanRequest, Progress, Request, silent
from gearshift.profiles.profile import PART_A, PART_B

BEST = ", best so far: accuracy "

R = TypeVar("R", bound=Request)
Q = TypeVar("Q", bound=Request)


class OutOfTime(Exception):
    """The budget is spent."""


CUT_SHORT = (KeyboardInterrupt, OutOfTime)


class Search(Generic[R]):
    """The time limit of a search for `request`, its progress, and the best plan that it has found.

    `report` tells progress as it is, `tell` with the accuracy of the best plan. Ctrl-C ends the search
    with that plan, unless `keeps_at_ctrl_c` is False.
    """

    plan: GearPlan | None = None
    share = 1.0
    """The share of the budget that `check` allows."""

    def __init__(self, request: R, progress: Progress = silent, *, keeps_at_ctrl_c: bool = True) -> None:
        self.request, self.report, self.keeps_at_ctrl_c = request, progress, keeps_at_ctrl_c
        self._told, self.accuracy = ("planning", 0.0), 0.0
        self._began_s = time.monotonic()
        self._budget_s = math.inf if request.budget_s is None else request.budget_s
        self.otherwise: Callable[[], GearPlan | None] = lambda: None
        """Gives a plan where the search is cut short before any is kept."""

    def check(self) -> None:
        if time.monotonic() - self._began_s > self.share * self._budget_s:
            raise OutOfTime

    def end(self) -> None:
        self._budget_s = -math.inf

    def remaining(self, request: Q) -> Q:
        if self._budget_s == math.inf:
            return request
        return replace(request, budget_s=max(1e-9, self._began_s + self._budget_s - time.monotonic()))

    def tell(self, what: str, share: float) -> None:
        self._told = what, share
        self.report(with_best(what, self.accuracy if self.plan else None), share)

    def keep(self, made: GearPlan, accuracy: float) -> None:
        self.plan, self.accuracy = made, accuracy
        self.tell(*self._told)

    def best(self) -> GearPlan:
        assert self.plan is not None
        return self.plan

    def end_with(self, made: GearPlan) -> NoReturn:
        """End with the unfinished plan of a search within this one, where there is no other."""
        self.plan = self.plan or made
        raise OutOfTime

    def part(self, request: Q, progress: Progress | None = None) -> "Search[Q]":
        """A search for another request within the time that is left, which tells progress only where it takes long."""
        tell = progress or (self.report if request.takes_long else silent)
        part = Search(self.remaining(request), tell, keeps_at_ctrl_c=self.keeps_at_ctrl_c)
        part._told = self._told
        return part

    def run(self, search: "Callable[[Search[R]], GearPlan]") -> GearPlan:
        """Run `search`; if it is cut short, return the best plan so far, marked unfinished.

        Without a plan, raises `Infeasible`, or `KeyboardInterrupt` at Ctrl-C.
        """
        try:
            return search(self)
        except CUT_SHORT as why:
            interrupted = isinstance(why, KeyboardInterrupt)
            made = None if interrupted and not self.keeps_at_ctrl_c else self.plan or self.otherwise()
            if made is None:
                raise why if interrupted else out_of_time(self.request.budget_s) from None
        self.report("planned", 1.0)
        return unfinished(made, self.request)


SoFar = Search[PlanRequest]


def offer(so_far: SoFar, made: GearPlan) -> None:
    """Keep a plan if it is more accurate on part A; raises `OutOfTime` if it is unfinished."""
    if so_far.plan is None:
        so_far.keep(made, made.predictions[so_far.request.profile.operator].accuracy)
    if made.unfinished:
        raise OutOfTime
    on_part_a = replay(made, so_far.request, part=PART_A, seeds=1, on_time=so_far.check).result.accuracy
    if so_far.plan is made or on_part_a > so_far.accuracy:
        so_far.keep(made, on_part_a)


def out_of_time(budget_s: float | None = None) -> Infeasible:
    within = "in time" if budget_s is None else f"within the budget of {budget_s:g} s"
    return Infeasible(f"no plan was found {within}; give a larger --budget-s", by_load=False)


def unfinished(made: GearPlan, request: Request) -> GearPlan:
    """Mark a plan unfinished; if it has no predictions, add those of one replay."""
    predictions = made.predictions
    if not predictions and isinstance(request, PlanRequest):
        name = request.profile.operator
        asked = replace(request, objective=made.pipelines[name].objective)
        predictions = {name: replay(made, asked, part=PART_B, seeds=1).result}
    return msgspec.structs.replace(made, unfinished=True, predictions=predictions)


def all_so_far(plans: Iterator[GearPlan]) -> list[GearPlan]:
    """Collect all plans; if that is cut short, return those found, marked unfinished.

    Without a plan, raises `Infeasible`, or `KeyboardInterrupt` at Ctrl-C.
    """
    found: list[GearPlan] = []
    try:
        for made in plans:
            found.append(made)  # noqa: PERF402  plans found before a cut stay
    except CUT_SHORT as why:
        if found:
            return [msgspec.structs.replace(made, unfinished=True) for made in found]
        if isinstance(why, KeyboardInterrupt):
            raise
        raise out_of_time() from None
    return found


def with_best(what: str, accuracy: float | None) -> str:
    return what if accuracy is None else f"{what.partition(BEST)[0]}{BEST}{accuracy:.4f}"


def spread(i: int) -> int:
    """Sort key with reversed bits: in this order, the first few of many are spread over all."""
    return int(f"{i:032b}"[::-1], 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner(Generic[R]):
    """A planner's two answers to `Search.request`; both raise `Infeasible`.

    A search calls `Search.check` before each long step, which may end it, and `Search.keep` with
    each better plan, which is the answer then. A planner that only finds the most accurate plan
    within a latency is made by `ladder.planner`.
    """

    name: str
    best_within: Callable[[Search[R]], GearPlan]
    """The best plan within the objective."""
    undominated: Callable[[Search[R]], list[GearPlan]] | None = None
    """Plans that no other beats, by rising latency, whatever the objective; None where it finds one plan alone."""
    load: LoadDistribution = "trace"
    """How often load ranges are visited where the request does not say it."""
    single_models: bool = False
    """Whether each gear has one model."""
    certifies: bool = False
    """Whether it takes a confidence."""
    counts_devices: bool = False
    """Whether a plan for a latency and an accuracy leaves devices idle that it does not need."""
    any_within: Callable[[Search[R]], GearPlan | None] | None = None
    """A plan within a latency, found sooner than the best; None where there is none."""

    finished: Callable[[GearPlan, R], GearPlan] = lambda made, _: made
    """The last step of each plan; may raise `Infeasible`."""

    def plan(self, request: R, *, progress: Progress = silent, keeps_at_ctrl_c: bool = True) -> GearPlan:
        self._require_objective(request.objective)
        made = Search(request, progress, keeps_at_ctrl_c=keeps_at_ctrl_c).run(self.best_within)
        return self._signed(made, request)

    def frontier(self, request: R, *, progress: Progress = silent) -> list[GearPlan]:
        if self.undominated is None:
            raise InvalidInput(
                f"planner {self.name!r} finds no frontier", remedy="plan for one objective after another"
            )
        try:
            return [self._signed(made, request) for made in self.undominated(Search(request, progress))]
        except OutOfTime:
            raise out_of_time(request.budget_s) from None

    def _require_objective(self, objective: Objective) -> None:
        require(
            objective.latency_s is not None or objective.accuracy is not None,
            "there is no objective",
            remedy="give a latency, an accuracy, or both",
        )
        require(
            objective.confidence is None or self.certifies,
            f"planner {self.name!r} takes no confidence",
            remedy="leave it out, or take the planner optimal",
        )
        require(
            objective.confidence is None or objective.accuracy is not None,
            "a confidence is given without an accuracy",
            remedy="give an accuracy, too",
        )

    def _signed(self, made: GearPlan, request: R) -> GearPlan:
        return self.finished(msgspec.structs.replace(made, planner=self.name), request)
