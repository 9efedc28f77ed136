"""Plan a pipeline of several nodes: a tuple for each load range, confirmed by replaying the trace.

The front of tuples, by work, takes the place that cascades have for one operator. A range gets the
most accurate tuple that holds at its upper end, found by bisection: tuples with more work are
mostly slower, and a range never gets one with more work than the range below it. End-to-end percentiles
come from simulation, so no latency is split over nodes. The plan is then replayed on the whole
trace; where it misses the objective, all ranges are planned for more load. Last, gears are given
several implementations where choosing among them by the time left helps (`choices.py`); where no
tuple carries a load alone, all gears get them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import NamedTuple

import msgspec
import numpy as np

from gearshift.errors import Infeasible, require
from gearshift.gear import Gear, GearPlan, LoadRange
from gearshift.pipeline import Edge, Node
from gearshift.planner.contract.planner import Planner, Search
from gearshift.planner.joint.candidates import OffFront, tuples_of
from gearshift.planner.joint.replanning.choices import choosing_everywhere, keeps, on_trace, result_of, with_choices
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import Candidate, SteadyTuples, most_visits, place
from gearshift.planner.space.beside import without_idle_models
from gearshift.planner.space.bisection import last_that_holds
from gearshift.planner.space.request import Progress, load_ranges, silent
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.result import ServingResult
from gearshift.simulator.simulate import Simulation
from gearshift.support.numbers import plain

MARGIN_STEP = 1.15
MOST_REPAIRS = 8

Assignment = tuple[tuple[Candidate, int], ...]
"""The tuple and the largest batch of each range."""


class Confirmed(NamedTuple):
    """A plan that keeps the objective on both parts; `margin` is the multiple of its load that each range holds."""

    plan: GearPlan
    assignment: Assignment
    margin: float
    on_part_a: Simulation
    predicted: ServingResult


def _best_within(so_far: Search[PipelineRequest]) -> GearPlan:
    tuples = tuples_of(so_far.request)
    front = tuples.candidates(tuples.front().chosen)
    placed = {model for candidate in front for model in candidate.models}
    off_front = OffFront(tuples.of_models(placed))
    return plan_pipeline(so_far.request, front, off_front=off_front, progress=so_far.report)


PLANNER = Planner(name="joint", best_within=_best_within, certifies=True)


def plan_pipeline(
    request: PipelineRequest,
    front: Sequence[Candidate],
    *,
    off_front: OffFront | None = None,
    progress: Progress = silent,
) -> GearPlan:
    """The most accurate plan within the latency objective; `front` rises in work and in quality.

    Tuples `off_front` are looked at, too, if they are given.
    Where no tuple carries a load alone, gears that choose may. Ctrl-C ends the search for gears that
    choose, and the plan so far is the answer. Raises `Infeasible` where all miss the objective, or
    where the accuracy that was asked for is out of reach.
    """
    require(len(front) > 0, "there are no tuples of implementations to choose from")
    progress(f"choosing among {len(front)} tuples", 0.2)
    steady = SteadyTuples(request, place(request.profiles.values(), request.hardware, most_visits(front)))
    try:
        found = confirmed(steady, lambda margin: assigned(steady, front, margin, off_front))
    except Infeasible:
        by_choices = _by_choices_alone(steady, front) if request.may_choose else None
        if by_choices is None:
            raise
        return finished(by_choices, request)
    return finished(_choosing(found, steady, front, progress) if request.may_choose else found, request)


def _by_choices_alone(steady: SteadyTuples, front: Sequence[Candidate]) -> Confirmed | None:
    for margin in _margins(steady.request):
        made = choosing_everywhere(steady, front, margin)
        if made is None:
            return None
        found, _ = _confirmed(made, (), margin, steady.request)
        if found is not None:
            return found
    return None


def confirmed(steady: SteadyTuples, assign: Callable[[float], Assignment]) -> Confirmed:
    """The plan of `assign`, which gets the margin to plan for; raises `Infeasible` where none keeps the objective."""
    request, late = steady.request, 1.0
    for margin in _margins(request):
        assignment = assign(margin)
        found, on_part_a = _confirmed(_plan(steady, assignment), assignment, margin, request)
        if found is not None:
            return found
        late = min(late, on_part_a.share_late)
    raise Infeasible(
        f"every plan has {100 * late:.3g} % late or more on the trace, with {plain(request.latency_s * 1e3)} ms allowed"
        f" for {100 * request.objective.percentile:.4g} %",
        by_load=False,
    )


def _margins(request: PipelineRequest) -> Iterator[float]:
    margin = request.least_margin
    for _ in range(MOST_REPAIRS):
        yield margin
        margin *= MARGIN_STEP


def _confirmed(
    made: GearPlan, assignment: Assignment, margin: float, request: PipelineRequest
) -> tuple[Confirmed | None, ServingResult]:
    """The plan if it keeps the objective on part A and then on part B, and its result on part A."""
    run = on_trace(made, request, part=PART_A)
    on_part_a = result_of(run, request)
    if keeps(on_part_a, request) and keeps(predicted := replayed(made, request, part=PART_B), request):
        return Confirmed(made, assignment, margin, run, predicted), on_part_a
    return None, on_part_a


def assigned(
    steady: SteadyTuples, front: Sequence[Candidate], margin: float, off_front: OffFront | None = None
) -> Assignment:
    """The tuple of each range; raises `Infeasible` that names the range, model and device where none holds."""
    chosen: list[tuple[Candidate, int]] = []
    most, most_work_s = len(front), math.inf
    for load_range, end_qps in zip(_ranges(steady.request), steady.request.upper_ends(), strict=True):
        load_qps, allowed = margin * end_qps, front[:most]
        last = last_that_holds(lambda i: steady.holding(allowed[i], load_qps) is not None, len(allowed))  # noqa: B023
        if last < 0:
            raise too_slow(steady, front[0], load_range, load_qps)
        best, most = front[last], last + 1
        if off_front is not None:
            best = off_front.better(steady, best, load_qps, most_work_s)
        chosen.append((best, steady.holding(best, load_qps) or 1))
        most_work_s = best.work_s
    return tuple(chosen)


def replayed(made: GearPlan, request: PipelineRequest, *, part: int) -> ServingResult:
    return result_of(on_trace(made, request, part=part), request)


def _choosing(found: Confirmed, steady: SteadyTuples, front: Sequence[Candidate], progress: Progress) -> Confirmed:
    """The plan with choices by the time left; the plain one where it does not help."""
    request = steady.request
    places = [sum(each.work_s <= candidate.work_s for each in front) - 1 for candidate, _ in found.assignment]
    made = with_choices(found.plan, found.on_part_a, steady, front, places, found.margin, progress)
    found = found._replace(plan=msgspec.structs.replace(found.plan, unfinished=made.unfinished))
    if made == found.plan:
        return found
    predicted = replayed(made, request, part=PART_B)
    needed = min(request.objective.accuracy or 0.0, found.predicted.accuracy)
    helps = keeps(predicted, request) and predicted.accuracy >= needed
    return found._replace(plan=made, predicted=predicted) if helps else found


def _plan(steady: SteadyTuples, assignment: Assignment) -> GearPlan:
    request, gears = steady.request, list[Gear]()
    for load_range, end_qps, (candidate, largest) in zip(
        _ranges(request), request.upper_ends(), assignment, strict=True
    ):
        gear = request.gear(load_range, candidate.cascades, steady.settings(candidate, largest))
        cell = steady.cell(candidate, end_qps, largest)
        gears.append(msgspec.structs.replace(gear, predicted=cell.prediction(end_qps, candidate.quality)))
    return request.plan(steady.placement, gears)


def finished(found: Confirmed, request: PipelineRequest) -> GearPlan:
    """The plan without idle models; raises `Infeasible` where it has not the accuracy that was asked for."""
    asked, accuracy = request.objective.accuracy, found.predicted.accuracy
    if asked is not None and accuracy < asked:
        raise Infeasible(
            f"within {plain(request.latency_s * 1e3)} ms the accuracy is {accuracy:.4f}, not {asked:.4g}",
            nearest_accuracy=int(accuracy * 1e4) / 1e4,
            by_load=False,
        )
    return msgspec.structs.replace(without_idle_models(found.plan), predictions={request.name: found.predicted})


def too_slow(steady: SteadyTuples, cheapest: Candidate, load_range: LoadRange, load_qps: float) -> Infeasible:
    model, device = steady.bottleneck(cheapest)
    node = next(node for node, cascade in cheapest.cascades.items() if model in cascade.models)
    cells = [steady.cell(cheapest, load_qps, size) for size in steady.sizes()]
    stable_s = [cell.latency_s for cell in cells if cell.stable]
    request, at_each_s = steady.request, steady.run_s()
    of_node = {
        name: min(
            float(np.min(at_each_s[model])) for model in request.profiles[each.operator].models if model in at_each_s
        )
        for name, each in request.nodes.items()
    }
    path = fastest_path(request.nodes, request.edges, request.output, of_node)
    alone = f"; the fastest path, {' > '.join(path.nodes)}, takes {plain(path.run_s * 1e3)} ms without any load"
    return Infeasible(
        f"the tuple of least work misses {plain(request.latency_s * 1e3)} ms at {plain(load_qps)} requests/s; "
        f"node {node!r} binds{alone * (path.run_s > request.latency_s)}",
        load_range=str(load_range),
        bottleneck=model,
        device=device,
        nearest_latency_s=min(stable_s, default=None),
    )


def _ranges(request: PipelineRequest) -> list[LoadRange]:
    return load_ranges(np.array(request.upper_ends()))


class Path(NamedTuple):
    """Nodes from an entry to the output, and the seconds of one item at each of them together."""

    nodes: tuple[str, ...]
    run_s: float


def fastest_path(nodes: Mapping[str, Node], edges: Sequence[Edge], output: str, run_s: Mapping[str, float]) -> Path:
    """The longest of the ways to a node that every request takes, else the shortest of all.

    `run_s` has the seconds of one item at each node, with its fastest model. Each fan-out has a row.
    """
    paths, always = dict[str, Path](), set[str]()
    to = {name: [edge for edge in edges if edge.to == name] for name in nodes}
    for name in TopologicalSorter({name: [edge.from_ for edge in of] for name, of in to.items()}).static_order():
        before = to[name]
        sure = [edge for edge in before if edge.when is None and edge.from_ in always]
        if sure or not before:
            always.add(name)
        waits = bool(sure) and nodes[name].join == "all"
        ways = [paths[edge.from_] for edge in (sure if waits else before)] or [Path((), 0.0)]
        way = (max if waits else min)(ways, key=lambda path: path.run_s)
        paths[name] = Path((*way.nodes, name), way.run_s + run_s[name])
    return paths[output]
