"""The contract of a planner: what it answers, and how it differs from others.

A new planner is one file whose `PLANNER` is of this type, and one line in `planners.PLANNERS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import msgspec

from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.contract.so_far import OutOfTime, R, Search, out_of_time
from gearshift.planner.space.request import LoadDistribution, Progress, silent


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
