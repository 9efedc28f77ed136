"""The constrained space, small enough to be searched whole: which of a few cascades in each of a few load ranges.

One replay gives the same result for all assignments that agree on the gears that were ever in force in it, for what
would be done at other loads is never read.  So each replay settles a block of the space:

    assignment (3, 1, 0, 5), in force: ranges 0 and 1      settles (3, 1, *, *)

and assignments already settled are not replayed.  This is exact.
"""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.judging import Point
from gearshift.gear import Gear, alone
from gearshift.placement import Placement
from gearshift.planner.evaluate.assemble import assemble
from gearshift.planner.evaluate.cells import Batching
from gearshift.planner.evaluate.confirm import workload_of
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.request import PlanRequest, equal_ranges, load_ranges
from gearshift.plans.plan_tables import PlanTables, plan_tables
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import front_end_of, run_times_ns
from gearshift.result import percentile
from gearshift.simulator.simulate import Simulation, simulate_tables

TRIED_IN_VAIN = 200
Assignment = tuple[int, ...]
Replayed = Callable[[Assignment], tuple[Point, set[int]]]
"""The point of an assignment, and which ranges' gears were in force."""


@dataclasses.dataclass(frozen=True, slots=True)
class Space:
    """Points (choices, .., choices, 2), an axis per range; and how many replays they took."""

    points: NDArray[np.float64]
    replays: int

    def flat(self) -> NDArray[np.float64]:
        """The points (assignments, 2)."""
        return self.points.reshape(-1, 2)

    def assignment(self, place: int) -> Assignment:
        """The assignment whose point is at this place of `flat`."""
        return tuple(int(i) for i in np.unravel_index(place, self.points.shape[:-1]))

    def front(self) -> list[Assignment]:
        """The assignments that no other beats, by rising latency."""
        return [self.assignment(place) for place in front_of(self.flat())]


def front_of(points: NDArray[np.float64]) -> list[int]:
    """`undominated` of many points (n, 2): first those that raise the best accuracy so far."""
    order = np.lexsort((-points[:, 1], points[:, 0]))
    accuracy = points[order, 1]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(accuracy)[:-1]])
    rising = order[accuracy > before].tolist()
    return [rising[i] for i in undominated([(float(a), float(b)) for a, b in points[rising]])]


def search_all(choices: Sequence[int], replayed: Replayed) -> Space:
    """Every assignment in which range k has one of the cascades 0 to `choices[k] - 1`."""
    points = np.full((*choices, 2), np.nan)
    replays = 0
    for assignment in product(*map(range, choices)):
        if np.isnan(points[assignment][0]):
            point, in_force = replayed(assignment)
            replays += 1
            points[tuple(a if k in in_force else slice(None) for k, a in enumerate(assignment))] = point
    return Space(points, replays)


def front_search(space: Space, replays: int, seed: int) -> list[Assignment]:
    """What a plain search looks at, in its order, in so many replays: a yardstick for what replays can find.

    It begins with the same cascade in all ranges, and then changes one range or two of an assignment that nothing
    seen so far beats, drawn at random; one anywhere, where its neighbours have all been seen.
    """
    choices = space.points.shape[:-1]
    generator = np.random.default_rng([seed, 9])
    same = [tuple(min(c, n - 1) for n in choices) for c in range(max(choices))]
    seen = list(dict.fromkeys(same))[:replays]
    known = set(seen)
    in_vain, front = 0, list(seen)
    while len(seen) < min(replays, len(space.flat())):
        if not in_vain:
            front = [front[i] for i in front_of(np.array([space.points[a] for a in front]))]
        changed = list(front[generator.integers(len(front))])
        for k in generator.integers(len(choices), size=generator.integers(1, 3)).tolist():
            changed[k] = int(np.clip(changed[k] + generator.choice((-2, -1, 1, 2)), 0, choices[k] - 1))
        if in_vain > TRIED_IN_VAIN:
            changed = [int(generator.integers(n)) for n in choices]
        in_vain = in_vain + 1 if tuple(changed) in known else 0
        if not in_vain:
            known.add(tuple(changed))
            seen.append(tuple(changed))
            front.append(tuple(changed))
    return seen


class Replays:
    """Replays of assignments on tables that are prepared once: a row per cascade, taken by each range's choice."""

    def __init__(
        self,
        request: PlanRequest,
        candidates: Sequence[CandidateCascade],
        placement: Placement,
        *,
        part: int,
        seed: int,
    ) -> None:
        self.profile, self.percentile = request.profile, request.objective.percentile
        steady = SteadyState(request.profile, request.hardware, placement, request.objective, seed=request.seed)
        gears = [
            Gear(
                load_range=load_range,
                cascades=alone("task", c.cascade),
                replicas=steady.settings(c.cascade, Batching(1)),
            )
            for load_range, c in zip(load_ranges(equal_ranges(1.0, len(candidates))), candidates, strict=True)
        ]
        made = assemble(request, placement, gears, planner="exhaustive")
        self._rows = plan_tables(made)
        self._starts = np.array([r.from_ for r in load_ranges(request.upper_ends())])
        self._run_ns = run_times_ns(made, self._rows, request.profile)
        records = request.profile.predictions
        self._certainty = np.ascontiguousarray(records.certainty[records.rows(self._rows.models)])
        self.workload = workload_of(request.trace, request.profile, part=part, seed=seed)

    def tables(self, assignment: Assignment) -> PlanTables:
        """The tables of the plan with these cascades."""
        rows, chosen = self._rows, list(assignment)
        gears = rows.pipeline.gears

        def taken(flat: NDArray[np.int64]) -> NDArray[np.int64]:
            return flat.reshape(gears, -1)[chosen].ravel()

        return dataclasses.replace(
            rows,
            stage_count=rows.stage_count[chosen],
            stage_models=taken(rows.stage_models),
            thresholds=rows.thresholds.reshape(gears, -1)[chosen].ravel(),
            stage_of=taken(rows.stage_of),
            shares=taken(rows.shares),
            minimum_queue_length=taken(rows.minimum_queue_length),
            largest_batch_size=taken(rows.largest_batch_size),
            longest_wait_ns=taken(rows.longest_wait_ns),
            choice_begin=np.arange(len(chosen) + 1),
            prefixes=taken(rows.prefixes),
            margin_ns=rows.margin_ns[chosen],
            pipelines=(dataclasses.replace(rows.pipeline, range_starts=self._starts),),
        )

    def replayed(self, assignment: Assignment) -> tuple[Point, set[int]]:
        """The point of an assignment, and the ranges in force; a run begins in range 0."""
        run = simulate_tables(
            self.tables(assignment),
            self._run_ns,
            self._certainty,
            self.workload,
            front_end=front_end_of(self.profile),
        )
        return point_of(run, self.profile, self.percentile), {0, *run.shifts[:, 1].tolist()}


def point_of(run: Simulation, profile: Profile, at: float) -> Point:
    """Seconds at a percentile, and accuracy."""
    return percentile(run.latency_s, at), float(run.quality(profile).mean())
