"""CascadeServe's planner (section 4, Algorithm 1): four submodules that correct each other.

    search cascades -> assign them to ranges -> place models, balance load -> raise queue lengths
         <- too slow, no room <-                     <- too slow <-

After success the next submodule runs, after a failure the one before. A plan that stays the same
for a whole cycle is final (appendix A).
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, require
from gearshift.gear import Gear, GearPlan, alone
from gearshift.objective import Objective
from gearshift.planner.contract.ladder import undominated_plans
from gearshift.planner.contract.planner import CUT_SHORT, OutOfTime, Planner, SoFar, all_so_far
from gearshift.planner.evaluate.assemble import assemble, rounded_up_s
from gearshift.planner.evaluate.confirm import with_predictions
from gearshift.planner.published.coordination.load_balance import DoesNotFit, Tuned, balance, prune, tune
from gearshift.planner.published.coordination.problem import (
    CHEAPEST,
    Choices,
    Draft,
    Failure,
    NoRoom,
    NotAccurate,
    Outcome,
    Problem,
    TooSlow,
    infeasible,
    out_of_time,
)
from gearshift.planner.space.cascade_search import CandidateCascade, evaluate_cascade
from gearshift.planner.space.hosts import count_of, placement_of, replica_shares, seconds_held
from gearshift.planner.space.metered import range_weights
from gearshift.planner.space.request import PlanRequest, load_ranges
from gearshift.profiles.profile import PART_A
from gearshift.support.numbers import plain


def search_cascades(problem: Problem, failure: Failure | None, draft: Draft) -> Outcome:
    """Section 4.2: the front of accuracy and work on the placement; an error here is final."""
    if failure is not None:
        return failure, draft
    return None, dataclasses.replace(draft, offered=problem.cascades(draft.placed))


def assign_cascades(problem: Problem, failure: Failure | None, draft: Draft) -> Outcome:
    """Section 4.3: the best assignment that the objective allows; downgraded after an error."""
    if failure is None and draft.choices is not None:
        return None, dataclasses.replace(draft, assigned=_swapped(problem, draft))
    choices: Choices | None = draft.choices or _all_choices(problem, draft.offered)
    if draft.choices is not None and failure is not None:
        choices = _corrected(draft.choices, failure, draft)
    if choices is None:
        return failure, draft
    assigned = choices.assigned()
    if isinstance(assigned, NotAccurate):
        return assigned, dataclasses.replace(draft, choices=choices)
    closed = 1 - sum(map(len, choices.open)) / (len(choices.open) * len(choices.candidates))
    problem.progress("assigning cascades", 0.9 * closed)
    return None, dataclasses.replace(draft, choices=choices, assigned=assigned)


def _all_choices(problem: Problem, candidates: Sequence[CandidateCascade]) -> Choices:
    """All open; but under a latency objective the last, endless range keeps the cheapest."""
    numbers = [frozenset(range(len(candidates)))] * len(problem.weights)
    least_accuracy = problem.request.objective.accuracy
    if least_accuracy is None and len(numbers) > 1:
        numbers[-1] = frozenset({CHEAPEST})
    return Choices(
        candidates=candidates, weights=problem.weights.tolist(), least_accuracy=least_accuracy, open=tuple(numbers)
    )


def _corrected(choices: Choices, failure: Failure, draft: Draft) -> Choices | None:
    match failure:
        case TooSlow(bottlenecks):
            used = {model for candidate in draft.assigned for model in candidate.cascade.models}
            others = used - {m for k in bottlenecks for m in draft.assigned[k].cascade.models}
            return choices.downgraded(bottlenecks) or choices.best_without_one(others)
        case NoRoom(models, ranges):
            return choices.best_without_one(models, ranges)
        case NotAccurate():
            return None


def _swapped(problem: Problem, draft: Draft) -> tuple[CandidateCascade, ...]:
    """Replace cascades where another is better in accuracy or work and no worse in either."""
    work_s = problem.work_s(draft.placed)

    def swapped(now: CandidateCascade) -> CandidateCascade:
        now = evaluate_cascade(now.cascade, problem.request.profile.predictions, work_s, part=PART_A)
        better = [
            new
            for new in draft.offered
            if (new.accuracy >= now.accuracy and new.work_s < now.work_s)
            or (new.accuracy > now.accuracy and new.work_s <= now.work_s)
        ]
        return max(better, key=lambda new: (new.accuracy, -new.work_s), default=now)

    return tuple(swapped(candidate) for candidate in draft.assigned)


def place_models(problem: Problem, failure: Failure | None, draft: Draft) -> Outcome:
    """Section 4.4: prune replicas until all fit; after an error, with one more replica of a bottleneck."""
    if isinstance(failure, TooSlow):
        return _with_one_more_replica(problem, failure, draft)
    outcome = placed(problem, draft, draft.at_least)
    if isinstance(outcome[0], NoRoom) and draft.at_least:
        outcome = placed(problem, draft, {})
    return outcome


def placed(problem: Problem, draft: Draft, at_least: Mapping[str, int]) -> Outcome:
    """Prune models to memory.

    Among ranges with the same cascade the highest stands for all, as loads are proportional.
    """
    demands = [problem.demand(k, draft) for k in range(len(draft.assigned))]
    everywhere = seconds_held(problem.hosts, problem.initial.placed)
    overloaded = [k for k, demand in enumerate(demands) if balance(demand, everywhere) is None]
    if overloaded:
        draft = dataclasses.replace(draft, placed=problem.initial.placed)
        return problem.too_slow(overloaded, draft), draft
    highest = sorted({candidate.cascade: k for k, candidate in enumerate(draft.assigned)}.values())
    key = (tuple(candidate.cascade for candidate in draft.assigned), tuple(sorted(at_least.items())))
    if key not in problem.pruned:
        problem.on_time()
        problem.pruned[key] = prune(problem.hosts, [demands[k] for k in highest], at_least=at_least)
    pruned = problem.pruned[key]
    if isinstance(pruned, DoesNotFit):
        return NoRoom(pruned.models, tuple(highest[d] for d in pruned.demands)), draft
    return None, dataclasses.replace(draft, placed=pruned, at_least=at_least)


def _with_one_more_replica(problem: Problem, failure: TooSlow, draft: Draft) -> Outcome:
    for k, model in failure.bottlenecks.items():
        now, possible = count_of(draft.placed, model), sum(model in host.seconds for host in problem.hosts)
        if now == possible:
            continue
        left, changed = placed(problem, draft, {**draft.at_least, model: now + 1})
        if left is None and problem.utilisation(k, changed) < problem.utilisation(k, draft) * (1 - 1e-6):
            return None, changed
    return failure, draft


def tune_queues(problem: Problem, failure: Failure | None, draft: Draft) -> Outcome:
    """Section 4.5: raise minimum queue lengths of the first model from 1 until each range holds.

    A cascade that fails in a range, or at almost no load, is not simulated in higher ranges.
    """
    gears: dict[int, Tuned] = {}
    failed: set[Cascade] = set()
    for k, candidate in enumerate(draft.assigned):
        if candidate.cascade not in failed and tuned_range(problem, k, draft, problem.idle_qps).holds:
            gears[k] = tuned_range(problem, k, draft)
        if k not in gears or not gears[k].holds:
            failed.add(candidate.cascade)
    failing = [k for k in range(len(draft.assigned)) if k not in gears or not gears[k].holds]
    if failing:
        return problem.too_slow(failing, draft), draft
    return None, dataclasses.replace(draft, gears=tuple(gears.values()))


def tuned_range(problem: Problem, k: int, draft: Draft, load_qps: float | None = None) -> Tuned:
    placement = placement_of(problem.hosts, draft.placed)
    cascade = draft.assigned[k].cascade
    load_qps = float(problem.loads_qps[k]) if load_qps is None else load_qps
    key = (placement, cascade, load_qps)
    if key not in problem.tuned:
        problem.on_time()
        found = balance(problem.demand(k, draft), seconds_held(problem.hosts, draft.placed), most_utilisation=math.inf)
        shares = {} if found is None else replica_shares(problem.hosts, found.shares)
        longest = 1 if load_qps == problem.idle_qps else None
        problem.tuned[key] = tune(problem.steady(placement), cascade, load_qps, shares, longest=longest)
    return problem.tuned[key]


SUBMODULES = (search_cascades, assign_cascades, place_models, tune_queues)
"""The order of Algorithm 1; each takes the problem, the error of the next one, and the plan so
far."""
ALPHA = 8.0
"""CascadeServe, section 5."""
MOST_CYCLES = 16
"""Cycles after a plan holds; one or two are usual."""
FRONTIER_STEPS = 8
ANY_LATENCY_S = 1e4


def _best_within(so_far: SoFar) -> GearPlan:
    """The most accurate plan within a latency objective, or the fastest that reaches an accuracy.

    Every range holds in steady state; unlike `optimal`'s, the plan is not confirmed on the trace.
    """
    request = _checked(so_far.request)
    made = with_predictions(Coordination(so_far).run(), request, on_time=so_far.check)
    so_far.report(f"time-weighted accuracy {time_weighted_accuracy(made, request):.4f}", 1.0)
    return made


def _undominated(so_far: SoFar) -> list[GearPlan]:
    """Undominated plans for a ladder of latency objectives, by rising latency on the trace.

    The request's latency and accuracy are ignored; each plan has its own latency objective.
    """
    found = all_so_far(_rungs(so_far))
    so_far.report("frontier found", 1.0)
    return undominated_plans(found, so_far.request)


PLANNER = Planner(name="coordinate", best_within=_best_within, undominated=_undominated, load="zipf")


def _rungs(so_far: SoFar) -> Iterator[GearPlan]:
    request, progress, made = so_far.request, so_far.report, 0
    progress("finding the fastest and the slowest plan", 0.0)
    any_latency = so_far.remaining(_for_latency(request, ANY_LATENCY_S))
    slowest = Coordination(SoFar(any_latency))
    fastest_s = slowest_s = slowest.fastest_s()
    try:
        progress("finding the slowest plan, 1 plan so far", 0.0)
        slowest_s = max(fastest_s, _slowest_s(slowest.run()))
    except CUT_SHORT:
        so_far.end()
    for latency_s in np.geomspace(fastest_s, slowest_s, FRONTIER_STEPS).tolist():
        if made:
            so_far.check()
            plans = f"{made} plan{'s' * (made != 1)} so far"
            progress(f"planning for {plain(latency_s * 1e3)} ms, {plans}", made / FRONTIER_STEPS)
        asked = _for_latency(request, rounded_up_s(latency_s, digits=3))
        try:
            found = PLANNER.plan(so_far.remaining(asked))
        except Infeasible:
            continue
        except KeyboardInterrupt:
            if made:
                raise
            so_far.end()
            found = PLANNER.plan(so_far.remaining(asked))
        yield found
        made += 1
        if found.unfinished:
            raise OutOfTime


class Coordination:
    def __init__(self, so_far: SoFar) -> None:
        self.problem, self.so_far = Problem(so_far.request, so_far.tell), so_far

    def run(self) -> GearPlan:
        """Cycle through the submodules until nothing changes.

        The fallback is the cheapest cascade's plan. Raises `OutOfTime` if there is a plan by then.
        """
        self.problem.progress("searching cascades", 0.0)
        failure, cheapest = self._cheapest_everywhere()
        if failure is not None:
            raise infeasible(self.problem, failure, cheapest)
        found = self._kept(cheapest) if self.problem.request.objective.accuracy is None else None
        draft, at, cycles = self.problem.initial, 0, 0
        self.problem.on_time = self.so_far.check
        while at >= 0 and cycles < MOST_CYCLES:
            try:
                self.so_far.check()
                failure, draft = SUBMODULES[at](self.problem, failure, draft)
            except OutOfTime:
                if found is None:
                    raise out_of_time(self.problem, draft) from None
                raise
            if failure is not None and cycles:
                break  # a plan that holds is only replaced by one that holds, too
            at += 1 if failure is None else -1
            if at == len(SUBMODULES):
                if draft == found:
                    break
                found, at, cycles = self._kept(draft), 0, cycles + 1
        if found is None:
            raise infeasible(self.problem, failure, draft)
        return self._plan_of(found)

    def fastest_s(self) -> float:
        failure, cheapest = self._cheapest_everywhere()
        if failure is not None:
            raise infeasible(self.problem, failure, cheapest)
        return max(tuned.cell.latency_s for tuned in cheapest.gears)

    def _cheapest_everywhere(self) -> Outcome:
        """The plan of the cheapest cascade alone: if it fails, no other holds (section 4.2)."""
        problem = self.problem
        assigned = (problem.candidates[CHEAPEST],) * len(problem.loads_qps)
        failure, draft = placed(problem, dataclasses.replace(problem.initial, assigned=assigned), {})
        if failure is not None:
            return failure, draft
        gears = tuple(tuned_range(problem, k, draft) for k in range(len(draft.assigned)))
        failing = [k for k, tuned in enumerate(gears) if not tuned.holds]
        return (problem.too_slow(failing, draft) if failing else None), dataclasses.replace(draft, gears=gears)

    def _kept(self, draft: Draft) -> Draft:
        accuracies = [candidate.accuracy for candidate in draft.assigned]
        self.so_far.keep(self._plan_of(draft), float(self.problem.weights @ np.array(accuracies)))
        return draft

    def _plan_of(self, draft: Draft) -> GearPlan:
        problem = self.problem
        placement = placement_of(problem.hosts, draft.placed)
        gears = []
        upper_ends = problem.request.upper_ends()
        for k, (load_range, candidate) in enumerate(zip(load_ranges(upper_ends), draft.assigned, strict=True)):
            replicas, load_qps = draft.gears[k].replicas, float(upper_ends[k])
            cell = draft.gears[k].cell
            if load_qps != problem.loads_qps[k]:
                cell = problem.steady(placement).simulate(candidate.cascade, load_qps, replicas)
            predicted = cell.prediction(load_qps, candidate.accuracy)
            gears.append(
                Gear(
                    load_range=load_range,
                    cascades=alone(problem.request.profile.operator, candidate.cascade),
                    replicas=replicas,
                    predicted=predicted,
                )
            )
        return assemble(problem.request, placement, gears, alpha=ALPHA, meter="alpha")


def _checked(request: PlanRequest) -> PlanRequest:
    objective = request.objective
    require(
        (objective.latency_s is None) != (objective.accuracy is None),
        "this planner takes a latency objective or an accuracy objective",
        remedy="give one of them",
    )
    return request


def _for_latency(request: PlanRequest, latency_s: float) -> PlanRequest:
    objective = Objective(percentile=request.objective.percentile, latency_s=latency_s, scope=request.objective.scope)
    return dataclasses.replace(request, objective=objective)


def time_weighted_accuracy(made: GearPlan, request: PlanRequest) -> float:
    """CascadeServe's objective (appendix C.2): accuracy of gears on part A, weighted by time."""
    gears = made.pipelines[request.profile.operator].gears
    return float(np.dot(range_weights(request), [g.predicted.accuracy if g.predicted else 0.0 for g in gears]))


def _slowest_s(made: GearPlan) -> float:
    gears = made.pipeline.gears
    return max(gear.predicted.latency_p95_s for gear in gears if gear.predicted)
