"""State that the submodules share: the request, the plan so far, and cached results."""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gearshift.errors import Infeasible
from gearshift.placement import Placement
from gearshift.planner.evaluate.assemble import rounded_up_s
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.steady_state import SteadyState, steady_of
from gearshift.planner.published.coordination.load_balance import DoesNotFit, Tuned, balance
from gearshift.planner.space.cascade_search import CandidateCascade, pareto_cascades
from gearshift.planner.space.hosts import Held, Host, hosts_of, placement_of, seconds_held
from gearshift.planner.space.metered import range_weights
from gearshift.planner.space.request import PlanRequest, Progress
from gearshift.support.numbers import plain

# Workload adaption: assign cascades to load ranges, and correct that as errors come back.
#
# CascadeServe, section 4.3.

CHEAPEST = 0
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class TooSlow:
    """Ranges whose load or latency the devices cannot hold, each with its bottleneck model."""

    bottlenecks: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Memory cannot hold these models together.

    `ranges` are those whose load does not allow fewer replicas.
    """

    models: tuple[str, ...]
    ranges: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NotAccurate:
    """The highest accuracy that the open cascades reach."""

    accuracy: float


Failure = TooSlow | NoRoom | NotAccurate


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The candidates still open in each range (ranges,), by number; they come by rising work.

    `weights` (ranges,) are the shares of time in each range. Without `least_accuracy` every range
    has its most accurate open candidate, and the cheapest stays open; with it, ranges rise from
    their cheapest.
    """

    candidates: Sequence[CandidateCascade]
    weights: Sequence[float]
    least_accuracy: float | None
    open: tuple[frozenset[int], ...]

    def assigned(self) -> tuple[CandidateCascade, ...] | NotAccurate:
        """A candidate per range: the best one that the objective allows (section 4.3)."""
        if self.least_accuracy is None:
            return tuple(self.candidates[max(numbers)] for numbers in self.open)
        return self._risen(self.least_accuracy)

    def best_accuracy(self) -> float:
        return self._accuracy([max(numbers) for numbers in self.open])

    def downgraded(self, failing: Collection[int]) -> "Choices | None":
        assigned = self.assigned()
        if isinstance(assigned, NotAccurate):
            return None
        work_s = [candidate.work_s for candidate in self.candidates]
        lower = {k for k in failing if any(work_s[c] < assigned[k].work_s for c in self.open[k])}
        return self._kept(lambda k, c: k not in lower or work_s[c] < assigned[k].work_s) if lower else None

    def without(self, model: str) -> "Choices | None":
        return self._kept(lambda k, c: model not in self.candidates[c].cascade.models or self._stays(c))

    def best_without_one(self, models: Collection[str], failing: Collection[int] = ()) -> "Choices | None":
        """Drop a model, or downgrade failing ranges, at the least loss of accuracy."""
        remedies = [self.without(model) for model in sorted(models)]
        if failing:
            remedies.append(self.downgraded(failing))
        changed = [remedy for remedy in remedies if remedy is not None and remedy.open != self.open]
        return max(changed, key=lambda remedy: remedy.best_accuracy(), default=None)

    def _stays(self, number: int) -> bool:
        return number == CHEAPEST and self.least_accuracy is None

    def _kept(self, keep: Callable[[int, int], bool]) -> "Choices | None":
        kept = tuple(frozenset(c for c in numbers if keep(k, c)) for k, numbers in enumerate(self.open))
        return dataclasses.replace(self, open=kept) if all(kept) else None

    def _accuracy(self, numbers: Sequence[int]) -> float:
        return float(np.dot(self.weights, [self.candidates[c].accuracy for c in numbers]))

    def _risen(self, least_accuracy: float) -> tuple[CandidateCascade, ...] | NotAccurate:
        """From the cheapest, raise the range that gains most weighted accuracy."""
        ladders = [sorted(numbers) for numbers in self.open]
        steps = [0] * len(ladders)
        while True:
            numbers = [ladder[step] for ladder, step in zip(ladders, steps, strict=True)]
            accuracy = self._accuracy(numbers)
            if accuracy >= least_accuracy - ROUNDING:
                return tuple(self.candidates[c] for c in numbers)
            rising = [k for k, ladder in enumerate(ladders) if steps[k] + 1 < len(ladder)]
            if not rising:
                return NotAccurate(accuracy)
            steps[max(rising, key=lambda k: self._gain(k, numbers[k], ladders[k][steps[k] + 1]))] += 1

    def _gain(self, k: int, number: int, higher: int) -> float:
        return self.weights[k] * (self.candidates[higher].accuracy - self.candidates[number].accuracy)


IDLE_SHARE = 0.1
"""Share of the lowest range's load: a gear that is too slow there is too slow at any load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The plan so far; fields that a submodule has not decided yet are empty."""

    placed: Held
    offered: tuple[CandidateCascade, ...] = ()
    choices: Choices | None = None
    assigned: tuple[CandidateCascade, ...] = ()
    at_least: Mapping[str, int] = dataclasses.field(default_factory=dict)
    gears: tuple[Tuned, ...] = ()


Outcome = tuple[Failure | None, Draft]


class Problem:
    """A request with its hosts, loads and candidates, and the submodules' cached results.

    `loads_qps` (ranges,) are the planned loads, `weights` (ranges,) the shares of time in each
    range. `on_time` is called before slow steps, and may raise to end the search.
    """

    def __init__(self, request: PlanRequest, progress: Progress) -> None:
        self.request, self.progress = request, progress
        self.on_time: Callable[[], None] = lambda: None
        self.hosts = _hosts(request)
        self.loads_qps = (request.least_margin or 1.0) * request.upper_ends()
        self.idle_qps = IDLE_SHARE * float(self.loads_qps[0])
        self.weights = range_weights(request)
        self.initial = Draft(placed={host.name: list(host.seconds) for host in self.hosts})
        self.candidates = self.cascades(self.initial.placed)
        self.steady = functools.cache(self._steady_on)
        self.bottlenecks: dict[int, str] = {}
        self.tuned: dict[tuple[object, ...], Tuned] = {}
        self.pruned: dict[tuple[object, ...], Held | DoesNotFit] = {}

    def cascades(self, placed: Held) -> tuple[CandidateCascade, ...]:
        work_s = self.work_s(placed)
        return tuple(pareto_cascades(self.request.profile, work_s, most=self.request.most_candidates))

    def work_s(self, placed: Held) -> dict[str, float]:
        """Device-seconds per request of each placed model: the harmonic mean over its hosts."""
        held: dict[str, list[float]] = {}
        for host in self.hosts:
            for model in placed[host.name]:
                held.setdefault(model, []).append(len(host.device_ids) * host.seconds[model])
        return {model: len(times_s) / sum(1 / s for s in times_s) for model, times_s in sorted(held.items())}

    def demand(self, k: int, draft: Draft) -> dict[str, float]:
        candidate, load_qps = draft.assigned[k], float(self.loads_qps[k])
        return {m: reach * load_qps for m, reach in zip(candidate.cascade.models, candidate.reach, strict=True)}

    def utilisation(self, k: int, draft: Draft) -> float:
        found = balance(self.demand(k, draft), seconds_held(self.hosts, draft.placed), most_utilisation=math.inf)
        return math.inf if found is None else found.utilisation

    def too_slow(self, failing: Sequence[int], draft: Draft) -> TooSlow:
        bottlenecks = {k: self._bottleneck(k, draft) for k in failing}
        self.bottlenecks |= bottlenecks
        return TooSlow(bottlenecks)

    def _bottleneck(self, k: int, draft: Draft) -> str:
        seconds, demand = seconds_held(self.hosts, draft.placed).values(), self.demand(k, draft)
        carried_qps = {model: sum(1 / held[model] for held in seconds if model in held) for model in demand}
        return max(demand, key=lambda model: demand[model] / carried_qps[model])

    def _steady_on(self, placement: Placement) -> SteadyState:
        return steady_of(self.request, self.request.hardware, placement)


def _hosts(request: PlanRequest) -> list[Host]:
    """The hosts; pipelines beside the one that is planned leave it a share of their devices' time."""
    hosts, others = hosts_of(request.profile, request.hardware), request.beside
    if others is None:
        return hosts

    def slower(host: Host) -> Host:
        free = {model: min(map(others.free, replicas)) for model, replicas in host.replicas.items()}
        return dataclasses.replace(host, seconds={model: s / free[model] for model, s in host.seconds.items()})

    return [slower(host) for host in hosts]


# Errors that tell the user why there is no plan.

STABLE_UTILISATION = 0.9


def infeasible(problem: Problem, failure: Failure | None, draft: Draft) -> Infeasible:
    objective = problem.request.objective
    if draft.choices is not None or not isinstance(failure, TooSlow):
        asked = objective.accuracy or 0.0
        reached = draft.choices.best_accuracy() if draft.choices else problem.candidates[-1].accuracy
        known = f", the most accurate has about {reached:.4g}" if reached < asked else ""
        return _refusal(
            problem,
            f"no plan on {_devices(problem)} has a time-weighted accuracy of {asked:.4g}{known}",
            draft,
            *_worst_range(problem, draft),
            nearest_accuracy=reached if known else None,
        )
    k, model = max(failure.bottlenecks.items())
    if draft.gears and all(tuned.cell.stable for tuned in draft.gears):
        return _refusal(
            problem,
            f"no cascade keeps {objective.percentile:.4g} of requests within "
            f"{plain(problem.request.latency_s * 1e3)} ms on {_devices(problem)}",
            draft,
            k,
            model,
            nearest_latency_s=rounded_up_s(max(tuned.cell.latency_s for tuned in draft.gears), digits=3),
        )
    count = len(problem.request.hardware.devices)
    needed = math.ceil(problem.utilisation(k, draft) * count / STABLE_UTILISATION)
    return _refusal(
        problem,
        f"{_devices(problem)} cannot carry {plain(problem.loads_qps[k])} requests/s with the cheapest cascade, "
        f"about {max(needed, count + 1)} could",
        draft,
        k,
        model,
    )


def out_of_time(problem: Problem, draft: Draft | None = None) -> Infeasible:
    reason = f"no plan was found within {problem.request.budget_s:g} s"
    draft = draft or problem.initial
    return _refusal(problem, reason, draft, *_worst_range(problem, draft))


def _refusal(problem: Problem, reason: str, draft: Draft, k: int, model: str, **nearest: float | None) -> Infeasible:
    placement = placement_of(problem.hosts, draft.placed)
    cascade = draft.assigned[k].cascade if draft.assigned and model in draft.assigned[k].cascade.models else None
    return refusal(problem.request, reason, k=k, model=model, placement=placement, cascade=cascade, **nearest)


def _devices(problem: Problem) -> str:
    count = len(problem.request.hardware.devices)
    return f"{count} device{'s' * (count > 1)}"


def _worst_range(problem: Problem, draft: Draft) -> tuple[int, str]:
    top = problem.candidates[-1]
    lost = np.zeros(len(problem.weights))
    if draft.choices is not None:
        left = [draft.choices.candidates[max(numbers)].accuracy for numbers in draft.choices.open]
        lost = problem.weights * (top.accuracy - np.array(left))
    k = int(np.argmax(lost))
    return k, problem.bottlenecks.get(k, top.cascade.models[-1])
