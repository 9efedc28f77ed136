"""The contract of a planner: what it answers, and how it differs from others.

A new planner is one file whose `PLANNER` is of this type, and one line in `planners.MODULES`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gearshift.gear import GearPlan
from gearshift.planner.contract.so_far import OutOfTime, SoFar, out_of_time
from gearshift.planner.space.request import LoadDistribution, PlanRequest, Progress, silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """A planner's two answers to `SoFar.request`; both raise `Infeasible`.

    A search calls `SoFar.check` before each long step, which may end it, and `SoFar.keep` with
    each better plan, which is the answer then. A planner that only finds the most accurate plan
    within a latency is made by `ladder.planner`.
    """

    name: str
    best_within: Callable[[SoFar], GearPlan]
    """The best plan within the objective."""
    undominated: Callable[[SoFar], list[GearPlan]]
    """Plans that no other beats, by rising latency, whatever the objective."""
    load: LoadDistribution = "trace"
    """How often load ranges are visited where the request does not say it."""
    single_models: bool = False
    """Whether each gear has one model."""
    counts_devices: bool = False
    """Whether a plan for a latency and an accuracy leaves devices idle that it does not need."""
    any_within: Callable[[SoFar], GearPlan | None] | None = None
    """A plan within a latency, found sooner than the best; None where there is none."""

    def plan(self, request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
        return self._signed(SoFar(request, progress).run(self.best_within))

    def frontier(self, request: PlanRequest, *, progress: Progress = silent) -> list[GearPlan]:
        try:
            return [self._signed(made) for made in self.undominated(SoFar(request, progress))]
        except OutOfTime:
            raise out_of_time(request.budget_s) from None

    def _signed(self, made: GearPlan) -> GearPlan:
        return msgspec.structs.replace(made, planner=self.name)
