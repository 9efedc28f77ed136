"""Two and three operators planned jointly: the joint front with bisection, beside other ways to choose.

The operators are FrugalML's tasks in a row, each with the recorded answers of its four models and synthetic run times;
samples are drawn together independently. Every model is on each of four devices, or six. Each load range gets the
most accurate tuple that keeps the latency of all nodes together, at the 95th percentile, in a simulation at its upper
end; a range never gets more work than a lower one.

- joint: the joint front, by bisection in each range, and a look at tuples off it
- exhaustive: all tuples, the most accurate first; those whose work alone exceeds the devices, or that did not hold in a
  lower range, are not simulated
- greedy: Ken's steps (section 4.3.1): from the tuple before, the next cheaper cascade of one operator, the one with
  the highest accuracy / latency of them, until it holds
- apart: each operator alone with its share of devices and of the latency
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.imported import frugalml
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_table
from benchmarks.shared.worlds import twitter
from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.pipeline import Edge, Node
from gearshift.placement import Placement, Replica
from gearshift.planner.baselines.of_graphs import greedy_steps
from gearshift.planner.evaluate.cells import Measured, measured_in
from gearshift.planner.joint.candidates import (
    LEAST_GAIN,
    LEAST_SEEN,
    MOST_TRIED,
    NEARBY,
    SLACK,
    likely,
    tails_s,
    two_changed,
)
from gearshift.planner.joint.composed import Answers, answers, composed_query
from gearshift.planner.joint.front import joint_front, judged
from gearshift.planner.joint.replay import ACCURACY
from gearshift.planner.space.bisection import last_that_holds
from gearshift.planner.space.cascade_search import pareto_cascades, work_per_request_s
from gearshift.planner.space.request import UNKNOWN_SOURCE
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import PART_A, Profile, RunTimeCurve
from gearshift.profiles.run_times import run_times_ns
from gearshift.profiles.several import as_one
from gearshift.profiles.tuples import JointRecords, independent
from gearshift.simulator.kernel.recorded_rows import RecordedRows, recorded_rows
from gearshift.simulator.simulate import Simulation, simulate_tables
from gearshift.workload import Trace, Workload

Tuple_ = tuple[int, ...]

OPERATORS = ("imdb", "command", "yelp")
CASCADES = 24
RANGES = 12
SAMPLES = 6000
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
ONE_S = (0.002, 0.006, 0.015, 0.04)
"""The run time of each of an operator's models with one sample, from cheap to dear."""
LATENCY_S = 0.3
SHARE_OF_TOP = 0.5
"""The top of the ranges, as a share of the highest load that the cheapest tuple holds."""
MOST_SIMULATIONS = 150


def slower(profile: Profile) -> Profile:
    """Its models under names that no other operator has, with run times that grow with the batch."""
    names = tuple(f"{profile.operator}-{model}" for model in profile.models)
    curves = tuple(
        RunTimeCurve(
            model=name,
            device_kind="v100",
            batch_sizes=BATCH_SIZES,
            median_s=(times := tuple(one_s * (0.6 + 0.4 * size) for size in BATCH_SIZES)),
            p95_s=times,
        )
        for name, one_s in zip(names, ONE_S, strict=True)
    )
    return replace(profile, curves=curves, predictions=replace(profile.predictions, models=names))


@dataclass(slots=True)
class World:
    """Operators in a row on devices that each hold all models.

    `simulated` counts the cells that were simulated; each is simulated once.
    """

    profiles: Mapping[str, Profile]
    cascades: Mapping[str, Sequence[Cascade]]
    devices: int
    latency_s: float
    simulated: int = 0
    _cells: dict[tuple[Tuple_, float], Measured] = field(default_factory=dict)
    _recorded: RecordedRows | None = None
    joint: JointRecords = field(init=False)
    _whole: Profile = field(init=False)
    nodes: dict[str, Node] = field(init=False)
    edges: tuple[Edge, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = list(self.profiles)
        self._whole = as_one(self.profiles)
        self.nodes = {name: Node(operator=name) for name in names}
        self.edges = tuple(Edge(from_=a, to=b) for a, b in pairwise(names))
        predictions = {name: profile.predictions for name, profile in self.profiles.items()}
        self.joint = independent(self.nodes, self.edges, predictions, tuples=20_000)

    @property
    def name(self) -> str:
        return "query" if self.edges else next(iter(self.nodes))

    def again(self) -> "World":
        """The same, with nothing simulated yet."""
        return World(self.profiles, self.cascades, self.devices, self.latency_s)

    def plan(self, gears: Sequence[tuple[LoadRange, Tuple_]]) -> GearPlan:
        hardware = identical_devices(self.devices, kind="v100", memory_bytes=1 << 40)
        replicas = tuple(
            Replica(id=f"{model}@{device.id}", model=model, device_ids=(device.id,))
            for profile in self.profiles.values()
            for model in profile.models
            for device in hardware.devices
        )
        pipeline = PipelinePlan(
            nodes=self.nodes,
            edges=self.edges,
            output=list(self.nodes)[-1],
            objective=Objective(latency_s=self.latency_s),
            gears=tuple(self._gear(load_range, chosen, replicas) for load_range, chosen in gears),
        )
        return GearPlan(
            planner="benchmark",
            hardware=hardware,
            placement=Placement(replicas=replicas),
            pipelines={self.name: pipeline},
            profiles=dict.fromkeys(self.profiles, UNKNOWN_SOURCE),
            traces={self.name: UNKNOWN_SOURCE},
        )

    def _gear(self, load_range: LoadRange, chosen: Tuple_, replicas: Sequence[Replica]) -> Gear:
        cascades: dict[str, tuple[Cascade, ...]] = {
            name: (self.cascades[name][k],) for name, k in zip(self.nodes, chosen, strict=True)
        }
        used = {model for (cascade,) in cascades.values() for model in cascade.models}
        settings = tuple(
            ReplicaSettings(
                replica=replica.id,
                load_share=1 / self.devices if replica.model in used else 0.0,
                largest_batch_size=BATCH_SIZES[-1],
            )
            for replica in replicas
        )
        return Gear(load_range=load_range, cascades=cascades, replicas=settings)

    def run(self, gears: Sequence[tuple[LoadRange, Tuple_]], workload: Workload) -> Simulation:
        made, profile = self.plan(gears), self._whole
        tables = plan_tables(made)
        certainty = np.ascontiguousarray(profile.predictions.certainty[profile.predictions.rows(tables.models)])
        if self.edges and self._recorded is None:  # the same for all tuples: every model has the same replicas
            self._recorded = recorded_rows(made, tables, {self.name: self.joint}, self.profiles)
        elif not self.edges:
            workload = replace(workload, record=self.joint.row[workload.record])
        return simulate_tables(
            tables, run_times_ns(made, tables, profile), certainty, workload, recorded=self._recorded
        )

    def cell(self, chosen: Tuple_, load_qps: float) -> Measured:
        key = chosen, load_qps
        if key not in self._cells:
            gaps_s = np.random.default_rng([1, 7]).exponential(1 / load_qps, SAMPLES)
            arrivals_ns = np.cumsum(np.rint(gaps_s * NS_PER_S)).astype(np.int64)
            record = np.random.default_rng([2, 7]).choice(self.joint.indices(PART_A), SAMPLES).astype(np.int32)
            workload = Workload(arrivals_ns=arrivals_ns, record=record, duration_s=float(arrivals_ns[-1]) / NS_PER_S)
            self._cells[key] = measured_in(self.run([(LoadRange(from_=0.0), chosen)], workload), 0.95)
            self.simulated += 1
        return self._cells[key]

    def holds(self, chosen: Tuple_, load_qps: float) -> bool:
        return self.cell(chosen, load_qps).meets(self.latency_s)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Accuracy and work in device-seconds, on part A, of every tuple: an axis for each operator."""

    accuracy: NDArray[np.float64]
    work_s: NDArray[np.float64]
    front: tuple[Tuple_, ...]
    tails_s: Callable[[NDArray[np.int64]], NDArray[np.float64]]
    """The 95th percentile (n,) of the run times of tuples (n, operators), each item alone."""


def scores_of(world: World) -> Scores:
    predictions = {name: profile.predictions for name, profile in world.profiles.items()}
    output = list(world.nodes)[-1]
    query = composed_query(world.nodes, world.edges, output, world.joint, predictions, part=PART_A)
    work_s = work_of(world.profiles)
    candidates: dict[str, Answers] = {
        name: answers(query, name, world.cascades[name], work_s) for name in world.profiles
    }
    sizes = [len(each) for each in world.cascades.values()]
    every = np.array(list(product(*(range(size) for size in sizes))))
    work, accuracy = judged(query, candidates, every, ACCURACY)
    front = joint_front(query, candidates)
    alone_s = {curve.model: curve.median_s[0] for profile in world.profiles.values() for curve in profile.curves}
    alone = {name: answers(query, name, world.cascades[name], alone_s) for name in world.profiles}
    chosen = tuple(tuple(row) for row in front.chosen.tolist())
    return Scores(accuracy.reshape(sizes), work.reshape(sizes), chosen, lambda some: tails_s(query, alone, some, 0.95))


def work_of(profiles: Mapping[str, Profile]) -> dict[str, float]:
    device = identical_devices(1, kind="v100", memory_bytes=1 << 40).devices[0]
    return {m: s for profile in profiles.values() for m, s in work_per_request_s(profile, device).items()}


def jointly(world: World, scores: Scores, ends: Sequence[float]) -> list[Tuple_]:
    """The most accurate that holds in each range, by bisection over the front, or beside it."""
    most, most_s, chosen = len(scores.front), np.inf, []
    for end in ends:
        allowed = scores.front[:most]
        most = max(1, 1 + last_that_holds(lambda i: world.holds(allowed[i], end), len(allowed)))  # noqa: B023
        tried = off_front(world, scores, scores.front[most - 1], end, most_s)
        best = next((each for each in tried if world.holds(each, end)), scores.front[most - 1])
        most_s = scores.work_s[best]
        chosen.append(best)
    return chosen


def off_front(world: World, scores: Scores, chosen: Tuple_, end: float, most_s: float) -> list[Tuple_]:
    """The tuples that `planner.joint.off_front` would try for a range."""
    seen = [
        (each, qps, cell.latency_s)
        for (each, qps), cell in world._cells.items()
        if abs(qps - end) <= NEARBY * end and np.isfinite(cell.latency_s)
    ]
    near = two_changed(chosen, scores.accuracy.shape)
    accuracy, work_s = scores.accuracy[tuple(near.T)], scores.work_s[tuple(near.T)]
    fits = np.flatnonzero((accuracy > scores.accuracy[chosen] + LEAST_GAIN) & (work_s <= most_s))
    if len(seen) < LEAST_SEEN or not len(fits):
        return []
    tuples, loads_qps, latency_s = zip(*seen, strict=True)
    known = np.array(tuples)
    hold = likely(
        np.column_stack([work_s[fits] * end, scores.tails_s(near[fits])]),
        np.column_stack([scores.work_s[tuple(known.T)] * np.array(loads_qps), scores.tails_s(known)]),
        np.array(latency_s),
        SLACK * world.latency_s,
    )
    by_accuracy = fits[hold][np.argsort(-accuracy[fits[hold]], kind="stable")]
    found = [tuple(row) for row in near[by_accuracy].tolist()]
    return [each for each in found if (each, end) not in world._cells][:MOST_TRIED]


def exhaustively(world: World, scores: Scores, ends: Sequence[float]) -> list[Tuple_]:
    """The most accurate of all tuples that holds in each range, with no more work than the range below."""
    order = np.argsort(-scores.accuracy.ravel(), kind="stable")
    tuples = [tuple(int(i) for i in np.unravel_index(place, scores.accuracy.shape)) for place in order]
    most_s, chosen, failed = np.inf, [], set[Tuple_]()
    for end in ends:
        best = scores.front[0]
        for each in tuples:
            work_s = scores.work_s[each]
            if each in failed or work_s > most_s or work_s * end > world.devices:
                continue
            if world.holds(each, end):
                best = each
                break
            failed.add(each)
        most_s = scores.work_s[best]
        chosen.append(best)
    return chosen


def greedily(world: World, scores: Scores, ends: Sequence[float]) -> list[Tuple_]:
    dearest: Tuple_ = tuple(size - 1 for size in scores.accuracy.shape)

    def worth(each: Tuple_, end: float) -> float:
        return float(scores.accuracy[each] / world.cell(each, end).latency_s)

    return greedy_steps(dearest, ends, holds=world.holds, worth=worth)


def apart(world: World, ends: Sequence[float]) -> tuple[list[Tuple_], int]:
    """Each operator with its own devices and its part of the latency; and how many simulations they took."""
    of_each, simulated = [], 0
    share = len(world.profiles)
    for name, profile in world.profiles.items():
        alone = World({name: profile}, {name: world.cascades[name]}, world.devices // share, world.latency_s / share)
        most, chosen = len(alone.cascades[name]), []
        for end in ends:
            while most > 1 and not alone.holds((most - 1,), end):
                most -= 1
            chosen.append(most - 1)
        of_each.append(chosen)
        simulated += alone.simulated
    return list(zip(*of_each, strict=True)), simulated


def traced(world: World, scores: Scores, ends: Sequence[float], chosen: Sequence[Tuple_], trace: Trace) -> Simulation:
    """The plan's replay of the trace, with tuples of part A."""
    bounds = [0.0, *ends[:-1]]
    ranges = [LoadRange(from_=a, to=b) for a, b in zip(bounds, [*bounds[1:], None], strict=True)]
    record = np.random.default_rng(3).choice(world.joint.indices(PART_A), len(trace)).astype(np.int32)
    workload = Workload(arrivals_ns=trace.arrivals_ns, record=record, duration_s=trace.duration_s)
    return world.run(list(zip(ranges, chosen, strict=True)), workload)


def top_load_qps(world: World) -> float:
    """The highest load that the cheapest tuple holds, to a twentieth."""
    cheapest = (0,) * len(world.profiles)
    load = 100.0
    while world.holds(cheapest, 1.05 * load):
        load *= 1.05
    return load


def compared(data: Path, operators: int, cascades_each: int, bars: Bars, seconds: int) -> None:
    profiles = {name: slower(frugalml(data, name)) for name in OPERATORS[:operators]}
    cascades = {
        name: [each.cascade for each in pareto_cascades(profile, work_of({name: profile}), most=cascades_each)]
        for name, profile in profiles.items()
    }
    world = World(profiles, cascades, devices=2 * operators, latency_s=LATENCY_S)
    scores = scores_of(world)
    ends = np.linspace(0, SHARE_OF_TOP * top_load_qps(world), RANGES + 1)[1:].tolist()
    trace = twitter(data, peak_qps=ends[-1] / 1.2, seconds=seconds)
    print(
        f"{operators} operators, {world.devices} devices, {' x '.join(map(str, scores.accuracy.shape))} tuples, "
        f"{len(scores.front)} on the joint front, up to {ends[-1]:.0f}/s, {LATENCY_S * 1e3:g} ms"
    )
    worst, on_traces, table = {}, {}, []
    for name, way in (("joint", jointly), ("exhaustive", exhaustively), ("greedy", greedily), ("apart", None)):
        own = world.again()
        chosen, simulated = apart(own, ends) if way is None else (way(own, scores, ends), own.simulated)
        accuracy = np.array([scores.accuracy[each] for each in chosen])
        run = traced(world, scores, ends, chosen, trace)
        on_trace = float(accuracy @ run.arrived_in_gear / run.arrived_in_gear.sum())
        late = float((run.latency_s > LATENCY_S).mean())
        worst[name], on_traces[name] = float(accuracy.min()), on_trace
        held = sum(world.holds(each, end) for each, end in zip(chosen, ends, strict=True))
        table.append(
            (name, f"{on_trace:.2%}", f"{accuracy.min():.2%}", f"{late:.2%}", simulated, f"{held} of {RANGES}")
        )
        if name == "joint":
            bars.at_most(f"{operators} operators: simulations", simulated, MOST_SIMULATIONS)
    print_table(("planned", "accuracy on the trace", "worst range", "late", "simulations", "ranges held"), table)
    for what, found in (("on the trace", on_traces), ("worst range", worst)):
        bars.at_least(f"{operators} operators: {what} against exhaustive", found["joint"] - found["exhaustive"], -5e-4)
    bars.at_least(f"{operators} operators: worst range over greedy", worst["joint"] - worst["greedy"], 0.01)


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="two operators and a short trace")
    parser.add_argument("--operators", type=int, nargs="+", choices=(2, 3), help="how many [default: 2 3, quick: 2]")
    parser.add_argument("--cascades", type=int, default=CASCADES, help="the most of each operator [default: 24]")
    options = parser.parse_args()
    data = data_of(options)
    print(describe())
    bars = Bars()
    for operators in options.operators or ((2,) if options.quick else (2, 3)):
        compared(data, operators, options.cascades, bars, 60 if options.quick else 300)
    print(bars)


if __name__ == "__main__":
    main()
