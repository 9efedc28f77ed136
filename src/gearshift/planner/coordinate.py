"""CascadeServe's planner (section 4, Algorithm 1): four submodules, each of which mends what the next cannot solve.

    search cascades  ->  assign them to ranges  ->  place models, balance load  ->  raise minimum queue lengths
          <-  too slow, no room  <-                        <-  too slow  <-

A submodule that succeeds hands on to the next, one that fails to the one before.  A plan that stays the same for a
whole cycle is final (appendix A).
"""

import dataclasses
import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, require
from gearshift.gear import Gear, GearPlan, GearPrediction
from gearshift.objective import Objective
from gearshift.placement import Placement
from gearshift.planner.assemble import assemble, replay, with_predictions
from gearshift.planner.cascade_search import CandidateCascade, evaluate_cascade, pareto_cascades
from gearshift.planner.downgrading import CHEAPEST, Choices, Failure, NoRoom, NotAccurate, TooSlow
from gearshift.planner.hosts import Held, count_of, hosts_of, placement_of, replica_shares, seconds_held
from gearshift.planner.load_balance import balance
from gearshift.planner.pareto import undominated
from gearshift.planner.pruning import DoesNotFit, prune
from gearshift.planner.queue_lengths import Tuned, tune
from gearshift.planner.range_weights import range_weights, time_weighted_accuracy
from gearshift.planner.request import PlanRequest, Progress, load_ranges, silent
from gearshift.planner.steady_state import SteadyState
from gearshift.profiles.profile import PART_A, PART_B

ALPHA = 8.0
"""CascadeServe section 5."""
MOST_CYCLES = 16
"""Through all submodules once a plan holds; one or two are usual."""
FRONTIER_STEPS = 8
ANY_LATENCY_S = 1e4
STABLE_UTILISATION = 0.9
IDLE_SHARE = 0.1
"""Of the lowest range's load: what is too slow there is too slow at any load."""


def plan(request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """The most accurate plan within a latency objective, or the fastest that reaches an accuracy objective.

    Every range holds in steady state; unlike `optimal`'s, the plan is not confirmed on the trace.  Raises `Infeasible`.
    `progress` is told the time-weighted accuracy at the end.
    """
    made = with_predictions(Coordination(_checked(request), progress).run(), request)
    progress(f"time-weighted accuracy {time_weighted_accuracy(made, request):.4f}", 1.0)
    return made


def frontier(request: PlanRequest, *, progress: Progress = silent) -> list[GearPlan]:
    """Plans for a ladder of latency objectives from the fastest to the slowest that changes anything, undominated.

    By rising latency at the objective's percentile, on the trace.  Of the request's objective, latency and accuracy are
    not looked at; each plan's objective is the one that it was made for.
    """
    began_s = time.monotonic()
    progress("finding the fastest and the slowest plan", 0.0)
    slowest = Coordination(_for_latency(request, ANY_LATENCY_S, began_s), silent)
    fastest_s, slowest_s = slowest.fastest_s(), _slowest_s(slowest.run())
    plans: list[GearPlan] = []
    points: list[tuple[float, float]] = []
    for i, latency_s in enumerate(np.geomspace(fastest_s, max(fastest_s, slowest_s), FRONTIER_STEPS).tolist()):
        progress(f"planning for {latency_s * 1e3:.4g} ms", i / FRONTIER_STEPS)
        asked = _for_latency(request, _rounded_up_s(latency_s), began_s)
        try:
            made = Coordination(asked, silent).run()
        except Infeasible:
            continue
        replayed = replay(made, asked, part=PART_B)
        plans.append(msgspec.structs.replace(made, predictions={request.profile.operator: replayed.result}))
        points.append((float(replayed.latency_s.mean()), replayed.result.accuracy))
    progress("frontier found", 1.0)
    if not plans:
        raise slowest.out_of_time()
    return [plans[i] for i in undominated(points)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The plan so far; what a submodule has not yet decided is empty."""

    placed: Held
    offered: tuple[CandidateCascade, ...] = ()
    choices: Choices | None = None
    assigned: tuple[CandidateCascade, ...] = ()
    at_least: Mapping[str, int] = dataclasses.field(default_factory=dict)
    gears: tuple[Tuned, ...] = ()


_Outcome = tuple[Failure | None, Draft]


class Coordination:
    """One run of Algorithm 1."""

    def __init__(self, request: PlanRequest, progress: Progress) -> None:
        self.request, self.progress = request, progress
        self.hosts = hosts_of(request.profile, request.hardware)
        self.loads_qps = (request.least_margin or 1.0) * request.upper_ends()
        self.idle_qps = IDLE_SHARE * float(self.loads_qps[0])
        self.weights = range_weights(request)
        self.deadline_s = time.monotonic() + (request.budget_s or math.inf)
        self.initial = Draft(placed={host.name: list(host.seconds) for host in self.hosts})
        self.candidates = self._cascades(self.initial.placed)
        self.modules = (self.search_cascades, self.assign_cascades, self.place_models, self.tune_queues)
        self.bottlenecks: dict[int, str] = {}
        self._steady = functools.cache(self._steady_on)
        self._tuned: dict[tuple[object, ...], Tuned] = {}
        self._pruned: dict[tuple[object, ...], Held | DoesNotFit] = {}

    def run(self) -> GearPlan:
        """Cycle through the submodules until nothing changes; the cheapest cascade's plan is what is fallen back to."""
        self.progress("searching cascades", 0.0)
        failure, cheapest = self._cheapest_everywhere()
        if failure is not None:
            raise self._infeasible(failure, cheapest)
        found = cheapest if self.request.objective.accuracy is None else None
        draft, at, cycles = self.initial, 0, 0
        while at >= 0 and cycles < MOST_CYCLES:
            if time.monotonic() >= self.deadline_s:
                if found is None:
                    raise self.out_of_time(draft)
                return self._plan_of(found, unfinished=True)
            failure, draft = self.modules[at](failure, draft)
            if failure is not None and cycles:
                break  # a plan that holds is only changed for one that holds, too
            at += 1 if failure is None else -1
            if at == len(self.modules):
                if draft == found:
                    break
                found, at, cycles = draft, 0, cycles + 1
        if found is None:
            raise self._infeasible(failure, draft)
        return self._plan_of(found)

    # The submodules, in the order of Algorithm 1 ----------------------------------------------------------------------

    def search_cascades(self, failure: Failure | None, draft: Draft) -> _Outcome:
        """Section 4.2: the front by accuracy and work on the present placement; an error here is final."""
        if failure is not None:
            return failure, draft
        return None, dataclasses.replace(draft, offered=self._cascades(draft.placed))

    def assign_cascades(self, failure: Failure | None, draft: Draft) -> _Outcome:
        """Section 4.3: the best by what the objective leaves free; then downgraded where an error says so."""
        if failure is None and draft.choices is not None:
            return None, dataclasses.replace(draft, assigned=self._swapped(draft))
        choices: Choices | None = draft.choices or self._all_choices(draft.offered)
        if draft.choices is not None and failure is not None:
            choices = self._corrected(draft.choices, failure, draft)
        if choices is None:
            return failure, draft
        assigned = choices.assigned()
        if isinstance(assigned, NotAccurate):
            return assigned, dataclasses.replace(draft, choices=choices)
        closed = 1 - sum(map(len, choices.open)) / (len(choices.open) * len(choices.candidates))
        self.progress("assigning cascades", 0.9 * closed)
        return None, dataclasses.replace(draft, choices=choices, assigned=assigned)

    def place_models(self, failure: Failure | None, draft: Draft) -> _Outcome:
        """Section 4.4: prune replicas until memory holds; on an error, with one more replica of a bottleneck."""
        if isinstance(failure, TooSlow):
            return self._with_one_more_replica(failure, draft)
        outcome = self._placed(draft, draft.at_least)
        if isinstance(outcome[0], NoRoom) and draft.at_least:
            outcome = self._placed(draft, {})
        return outcome

    def tune_queues(self, failure: Failure | None, draft: Draft) -> _Outcome:
        """Section 4.5: raise minimum queue lengths of the first model from 1 until each range holds.

        A cascade that fails in a range, or on devices with next to nothing to do, is not simulated in higher ones.
        """
        gears: dict[int, Tuned] = {}
        failed: set[Cascade] = set()
        for k, candidate in enumerate(draft.assigned):
            if candidate.cascade not in failed and self._tune(k, draft, self.idle_qps).holds:
                gears[k] = self._tune(k, draft)
            if k not in gears or not gears[k].holds:
                failed.add(candidate.cascade)
        failing = [k for k in range(len(draft.assigned)) if k not in gears or not gears[k].holds]
        if failing:
            return self._too_slow(failing, draft), draft
        return None, dataclasses.replace(draft, gears=tuple(gears.values()))

    # Workload adaption ------------------------------------------------------------------------------------------------

    def _cascades(self, placed: Held) -> tuple[CandidateCascade, ...]:
        """By rising work and accuracy."""
        work_s = self._work_s(placed)
        return tuple(pareto_cascades(self.request.profile, work_s, most=self.request.most_candidates))

    def _work_s(self, placed: Held) -> dict[str, float]:
        """Device-seconds per request of each model that is placed: the harmonic mean over its hosts."""
        held: dict[str, list[float]] = {}
        for host in self.hosts:
            for model in placed[host.name]:
                held.setdefault(model, []).append(len(host.device_ids) * host.seconds[model])
        return {model: len(times_s) / sum(1 / s for s in times_s) for model, times_s in sorted(held.items())}

    def _all_choices(self, candidates: Sequence[CandidateCascade]) -> Choices:
        """Everything open; but the last range, which has no upper end, keeps the cheapest under a latency objective."""
        numbers = [frozenset(range(len(candidates)))] * len(self.weights)
        least_accuracy = self.request.objective.accuracy
        if least_accuracy is None and len(numbers) > 1:
            numbers[-1] = frozenset({CHEAPEST})
        return Choices(
            candidates=candidates, weights=self.weights.tolist(), least_accuracy=least_accuracy, open=tuple(numbers)
        )

    def _corrected(self, choices: Choices, failure: Failure, draft: Draft) -> Choices | None:
        match failure:
            case TooSlow(bottlenecks):
                used = {model for candidate in draft.assigned for model in candidate.cascade.models}
                others = used - {m for k in bottlenecks for m in draft.assigned[k].cascade.models}
                return choices.downgraded(bottlenecks) or choices.best_without_one(others)
            case NoRoom(models, ranges):
                return choices.best_without_one(models, ranges)
            case NotAccurate():
                return None

    def _swapped(self, draft: Draft) -> tuple[CandidateCascade, ...]:
        """Each range's cascade, or a new one that is no worse in accuracy and work and better in one."""
        work_s = self._work_s(draft.placed)

        def swapped(now: CandidateCascade) -> CandidateCascade:
            now = evaluate_cascade(now.cascade, self.request.profile.predictions, work_s, part=PART_A)
            better = [
                new
                for new in draft.offered
                if (new.accuracy >= now.accuracy and new.work_s < now.work_s)
                or (new.accuracy > now.accuracy and new.work_s <= now.work_s)
            ]
            return max(better, key=lambda new: (new.accuracy, -new.work_s), default=now)

        return tuple(swapped(candidate) for candidate in draft.assigned)

    # Hardware mapping -------------------------------------------------------------------------------------------------

    def _demand(self, k: int, draft: Draft) -> dict[str, float]:
        """Requests per second that reach each model of range k's cascade."""
        candidate, load_qps = draft.assigned[k], float(self.loads_qps[k])
        return {m: reach * load_qps for m, reach in zip(candidate.cascade.models, candidate.reach, strict=True)}

    def _placed(self, draft: Draft, at_least: Mapping[str, int]) -> _Outcome:
        """Pruned to memory; of ranges with the same cascade the highest stands for all, as loads are proportional."""
        demands = [self._demand(k, draft) for k in range(len(draft.assigned))]
        everywhere = seconds_held(self.hosts, self.initial.placed)
        overloaded = [k for k, demand in enumerate(demands) if balance(demand, everywhere) is None]
        if overloaded:
            draft = dataclasses.replace(draft, placed=self.initial.placed)
            return self._too_slow(overloaded, draft), draft
        highest = sorted({candidate.cascade: k for k, candidate in enumerate(draft.assigned)}.values())
        key = (tuple(candidate.cascade for candidate in draft.assigned), tuple(sorted(at_least.items())))
        if key not in self._pruned:
            self._pruned[key] = prune(self.hosts, [demands[k] for k in highest], at_least=at_least)
        placed = self._pruned[key]
        if isinstance(placed, DoesNotFit):
            return NoRoom(placed.models, tuple(highest[d] for d in placed.demands)), draft
        return None, dataclasses.replace(draft, placed=placed, at_least=at_least)

    def _with_one_more_replica(self, failure: TooSlow, draft: Draft) -> _Outcome:
        """A placement with one more replica of a bottleneck, where that lowers its range's utilisation."""
        for k, model in failure.bottlenecks.items():
            now, possible = count_of(draft.placed, model), sum(model in host.seconds for host in self.hosts)
            if now == possible:
                continue
            problem, changed = self._placed(draft, {**draft.at_least, model: now + 1})
            if problem is None and self._utilisation(k, changed) < self._utilisation(k, draft) * (1 - 1e-6):
                return None, changed
        return failure, draft

    def _utilisation(self, k: int, draft: Draft) -> float:
        found = balance(self._demand(k, draft), seconds_held(self.hosts, draft.placed), most_utilisation=math.inf)
        return math.inf if found is None else found.utilisation

    def _bottleneck(self, k: int, draft: Draft) -> str:
        """The model of range k's cascade with the most work per replica; of equal ones the first."""
        seconds, demand = seconds_held(self.hosts, draft.placed).values(), self._demand(k, draft)
        carried_qps = {model: sum(1 / held[model] for held in seconds if model in held) for model in demand}
        return max(demand, key=lambda model: demand[model] / carried_qps[model])

    def _too_slow(self, failing: Sequence[int], draft: Draft) -> TooSlow:
        bottlenecks = {k: self._bottleneck(k, draft) for k in failing}
        self.bottlenecks |= bottlenecks
        return TooSlow(bottlenecks)

    # Minimum queue lengths --------------------------------------------------------------------------------------------

    def _tune(self, k: int, draft: Draft, load_qps: float | None = None) -> Tuned:
        placement = placement_of(self.hosts, draft.placed)
        cascade = draft.assigned[k].cascade
        load_qps = float(self.loads_qps[k]) if load_qps is None else load_qps
        key = (placement, cascade, load_qps)
        if key not in self._tuned:
            found = balance(self._demand(k, draft), seconds_held(self.hosts, draft.placed), most_utilisation=math.inf)
            shares = {} if found is None else replica_shares(self.hosts, found.shares)
            longest = 1 if load_qps == self.idle_qps else None
            self._tuned[key] = tune(self._steady(placement), cascade, load_qps, shares, longest=longest)
        return self._tuned[key]

    def _steady_on(self, placement: Placement) -> SteadyState:
        request = self.request
        return SteadyState(request.profile, request.hardware, placement, request.objective, seed=request.seed)

    # The plan, and why there is none ----------------------------------------------------------------------------------

    def _cheapest_everywhere(self) -> _Outcome:
        """The plan of the cheapest cascade alone: where this fails no other holds (section 4.2)."""
        draft = dataclasses.replace(self.initial, assigned=(self.candidates[CHEAPEST],) * len(self.loads_qps))
        failure, draft = self._placed(draft, {})
        if failure is not None:
            return failure, draft
        gears = tuple(self._tune(k, draft) for k in range(len(draft.assigned)))
        failing = [k for k, tuned in enumerate(gears) if not tuned.holds]
        return (self._too_slow(failing, draft) if failing else None), dataclasses.replace(draft, gears=gears)

    def fastest_s(self) -> float:
        """The tightest latency objective that the cheapest cascade holds in all ranges; raises `Infeasible`."""
        failure, cheapest = self._cheapest_everywhere()
        if failure is not None:
            raise self._infeasible(failure, cheapest)
        return max(tuned.cell.latency_s for tuned in cheapest.gears)

    def _plan_of(self, draft: Draft, *, unfinished: bool = False) -> GearPlan:
        placement = placement_of(self.hosts, draft.placed)
        gears = []
        upper_ends = self.request.upper_ends()
        for k, (load_range, candidate) in enumerate(zip(load_ranges(upper_ends), draft.assigned, strict=True)):
            replicas, load_qps = draft.gears[k].replicas, float(upper_ends[k])
            cell = draft.gears[k].cell
            if load_qps != self.loads_qps[k]:
                cell = self._steady(placement).simulate(candidate.cascade, load_qps, replicas)
            predicted = GearPrediction(
                load_qps=load_qps,
                accuracy=candidate.accuracy,
                latency_p95_s=cell.latency_s,
                share_late=cell.share_late,
                utilisation=cell.utilisation,
            )
            gears.append(Gear(load_range=load_range, cascade=candidate.cascade, replicas=replicas, predicted=predicted))
        made = assemble(self.request, placement, gears, planner="coordinate", alpha=ALPHA, meter="alpha")
        return msgspec.structs.replace(made, unfinished=unfinished)

    def _infeasible(self, failure: Failure | None, draft: Draft) -> Infeasible:
        """Why there is no plan, for the user."""
        if draft.choices is not None or not isinstance(failure, TooSlow):
            asked = self.request.objective.accuracy or 0.0
            reached = draft.choices.best_accuracy() if draft.choices else self.candidates[-1].accuracy
            known = f", the most accurate has about {reached:.4g}" if reached < asked else ""
            return self._refusal(
                f"no plan on {self._devices} has a time-weighted accuracy of {asked:.4g}{known}",
                *self._worst_range(draft),
            )
        k, model = max(failure.bottlenecks.items())
        if draft.gears and all(tuned.cell.stable for tuned in draft.gears):
            return self._refusal(
                f"no cascade keeps {self.request.objective.percentile:.4g} of requests within "
                f"{self.request.latency_s * 1e3:.4g} ms on {self._devices}",
                k,
                model,
                nearest_s=_rounded_up_s(max(tuned.cell.latency_s for tuned in draft.gears)),
            )
        count = len(self.request.hardware.devices)
        needed = math.ceil(self._utilisation(k, draft) * count / STABLE_UTILISATION)
        return self._refusal(
            f"{self._devices} cannot carry {self.loads_qps[k]:.4g} requests/s with the cheapest cascade, "
            f"about {max(needed, count + 1)} could",
            k,
            model,
        )

    def out_of_time(self, draft: Draft | None = None) -> Infeasible:
        """That the budget was too small."""
        reason = f"no plan was found within {self.request.budget_s:g} s"
        return self._refusal(reason, *self._worst_range(draft or self.initial))

    @property
    def _devices(self) -> str:
        count = len(self.request.hardware.devices)
        return f"{count} device{'s' * (count > 1)}"

    def _refusal(self, reason: str, k: int, model: str, nearest_s: float | None = None) -> Infeasible:
        load_range = load_ranges(self.request.upper_ends())[k]
        return Infeasible(reason, load_range=str(load_range), bottleneck=model, nearest_latency_s=nearest_s)

    def _worst_range(self, draft: Draft) -> tuple[int, str]:
        """The range that lost most weighted accuracy to errors, and its bottleneck."""
        top = self.candidates[-1]
        lost = np.zeros(len(self.weights))
        if draft.choices is not None:
            left = [draft.choices.candidates[max(numbers)].accuracy for numbers in draft.choices.open]
            lost = self.weights * (top.accuracy - np.array(left))
        k = int(np.argmax(lost))
        return k, self.bottlenecks.get(k, top.cascade.models[-1])


def _checked(request: PlanRequest) -> PlanRequest:
    objective = request.objective
    require(
        (objective.latency_s is None) != (objective.accuracy is None),
        "this planner takes a latency objective or an accuracy objective",
        remedy="give one of --p95-ms and --accuracy",
    )
    require(objective.confidence is None, "this planner takes no confidence", remedy="give an accuracy alone")
    return request


def _for_latency(request: PlanRequest, latency_s: float, began_s: float) -> PlanRequest:
    """The request with this latency objective alone, and with what is left of its time."""
    objective = Objective(percentile=request.objective.percentile, latency_s=latency_s, scope=request.objective.scope)
    left_s = None if request.budget_s is None else max(1e-9, began_s + request.budget_s - time.monotonic())
    return dataclasses.replace(request, objective=objective, budget_s=left_s)


def _slowest_s(made: GearPlan) -> float:
    gears = next(iter(made.operators.values())).gears
    return max(gear.predicted.latency_p95_s for gear in gears if gear.predicted)


def _rounded_up_s(seconds: float) -> float:
    """Up to three significant digits of milliseconds."""
    unit = 10.0 ** (math.floor(math.log10(seconds * 1e3)) - 2)
    return math.ceil(seconds * 1e3 / unit) * unit / 1e3
