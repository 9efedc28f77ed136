"""Gati's traffic example with queues: planned gears that choose by the time left, beside static plans and budgets.

Each model of Table 5 has a device of its own; images come at a constant rate (Poisson).  A cell is a rate and a latency
objective; its figure is the expected share of images that are answered right and in time, by the simulator: an answer
in time counts with the product of the accuracies of the models that it passed.  In three worlds: without learned
caches; with caches of detection as in `traffic`; with caches, and run times that vary by a log-normal factor per batch.

- static: the best of all 48 combinations of models for just that cell, chosen by the cell's rate on images of part A
- equal, proportional: Gati's budgets with replanning, which know no queues; and the same with waits taken off
- time alone: our tables by the time left, without waits
- time and waits: the same with waits
- planned: one plan for each objective, from `plan_pipeline` on part A and a trace of all rates, as `gearshift plan`
  makes it: its gears, implementations and margins.  `late` is its share of late images

All are scored on images of part B, that no choice was made on.

python -m benchmarks.pipelines.traffic_queues
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from benchmarks.pipelines.traffic import HITS, MODELS, SHARES, SPEED_OF_HIT, query
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.tables import print_head
from gearshift.cascade import Cascade, TimedQuality
from gearshift.clock import NS_PER_S
from gearshift.errors import Infeasible
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Edge, Node, When
from gearshift.placement import Placement, Replica
from gearshift.planner.joint.candidates import candidates_of
from gearshift.planner.joint.replanning.choices import budget_tables
from gearshift.planner.joint.replanning.search import plan_pipeline
from gearshift.planner.joint.replanning.timed_quality import Outcomes, Query, timed_quality
from gearshift.planner.joint.request import PipelineRequest
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords, Profile, RunTimeCurve, split_parts
from gearshift.profiles.tuples import Items, JointRecords
from gearshift.simulator.simulate import prepare
from gearshift.traces.generate import arrivals_of_rates
from gearshift.workload import Trace, Workload, draw_workload, varying_run_factors

RATES = (1, 5, 10, 20, 35, 50)
SLOS_MS = (80, 100, 120, 150, 175, 200)
WORLDS = (("no caches", False, 0.0), ("caches", True, 0.0), ("caches, noise", True, 0.1))
COLUMNS = ("static", "equal", "equal, waits", "proportional", "proportional, waits", "time alone", "time and waits")
RECORDED, ANSWER_MS = 20_000, 0.01
PERCENTILES = 0.99, 0.95, 0.9, 0.8
RAMP_S, RANGES, LEAST_MARGIN = 60, 10, 1.0
MEAN, LATE, LATE_FROM_MS = 87.5, 0.01, 150
NODES = {name: Node(operator=name) for name in ("detect", "face", "vehicle", "answer")}
EDGES = (
    Edge(from_="detect", to="face", when=When(output="label", one_of=("face",))),
    Edge(from_="detect", to="vehicle", when=When(output="label", one_of=("vehicle",))),
    Edge(from_="detect", to="answer"),
    Edge(from_="face", to="answer"),
    Edge(from_="vehicle", to="answer"),
)
ALL = {**MODELS, "answer": [(ANSWER_MS, 1.0)]}
HARDWARE = Hardware(
    devices=tuple(
        Device(id=f"{node}-{m}", kind=f"{node}-{m}") for node, of_node in ALL.items() for m in range(len(of_node))
    )
)
EVERY: Mapping[str, Sequence[int]] = {node: range(len(of_node)) for node, of_node in ALL.items()}
SOURCE = SourceFile(path="", sha256="")


class World:
    """Profiles and joint records of drawn images, and how they are served."""

    def __init__(self, *, caches: bool, deviation: float, images: int, seed: int) -> None:
        self.deviation, self.seed, self._images = deviation, seed, images
        generator = np.random.default_rng([seed, caches])
        part = split_parts(np.arange(RECORDED), seed)
        kinds = generator.choice(list(SHARES), RECORDED, p=list(SHARES.values()))
        exits = (generator.random(RECORDED) >= HITS).astype(np.int64)
        self.profiles = {
            node: Profile(
                operator=node,
                curves=tuple(
                    curve
                    for m, (ms, _) in enumerate(of_node)
                    for curve in _curves(f"{node}-{m}", ms, cached=caches and node == "detect")
                ),
                predictions=PredictionRecords(
                    models=tuple(f"{node}-{m}" for m in range(len(of_node))),
                    quality=np.repeat([[accuracy] for _, accuracy in of_node], RECORDED, axis=1),
                    certainty=np.ones((len(of_node), RECORDED)),
                    part=part,
                    prediction=np.tile(kinds, (len(of_node), 1)) if node == "detect" else None,
                    exit_segment=np.tile(exits, (len(of_node), 1)) if caches and node == "detect" else None,
                ),
            )
            for node, of_node in ALL.items()
        }
        of_tuple = np.arange(RECORDED)
        items = Items(
            of_tuple=np.tile(of_tuple, 4), node=np.repeat(np.arange(4), RECORDED),
            row=np.tile(of_tuple, 4), around=np.full(4 * RECORDED, -1),
        )  # fmt: skip
        self.joint: JointRecords = items.joint_records(NODES, EDGES, names=[str(t) for t in range(RECORDED)], part=part)

    def workload(self, rate: float, part: int) -> Workload:
        seed = self.seed + (part == PART_A)
        made = draw_workload(poisson([(rate, self._images / rate)], seed), self.joint.indices(part), seed=seed)
        return replace(made, run_factors=varying_run_factors(self.deviation, seed=seed)) if self.deviation else made

    def right_in_time(
        self, plan: GearPlan, workload: Workload, slo_s: float, *, knows_waits: bool = True
    ) -> tuple[float, float]:
        """The expected share of images that are right and in time, and the share that is late."""
        run = prepare(plan, self.profiles, {"traffic": self.joint}).run(workload, knows_waits=knows_waits)
        in_time = run.latency_s <= slo_s
        return float((run.quality(self.profiles) * in_time).mean()), float(1 - in_time.mean())

    def planned(self, slo_s: float) -> tuple[GearPlan, float]:
        """The planner's plan, and the percentile that it keeps: the highest of `PERCENTILES` that is feasible."""
        for percentile in PERCENTILES:
            request = PipelineRequest(
                name="traffic",
                nodes=NODES,
                edges=EDGES,
                output="answer",
                profiles=self.profiles,
                records=self.joint,
                trace=poisson([(rate, RAMP_S) for rate in RATES], self.seed + 2),
                hardware=HARDWARE,
                objective=Objective(latency_s=slo_s, percentile=percentile),
                ranges=RANGES,
                max_qps=float(max(RATES)),
                least_margin=LEAST_MARGIN,
                run_deviation=self.deviation,
                seed=self.seed,
            )
            try:
                return plan_pipeline(request, candidates_of(request)), percentile
            except Infeasible:
                continue
        raise Infeasible(f"no plan keeps {1e3 * slo_s:g} ms", by_load=False)


def _curves(model: str, ms: float, *, cached: bool) -> list[RunTimeCurve]:
    parts_ms = (ms / SPEED_OF_HIT, ms - ms / SPEED_OF_HIT) if cached else (ms,)
    return [
        RunTimeCurve(
            model=model, device_kind=model, segment=s, batch_sizes=(1,), median_s=(part / 1e3,), p95_s=(part / 1e3,)
        )
        for s, part in enumerate(parts_ms)
    ]


def by_hand(
    choices: Mapping[str, Sequence[int]], slo_s: float, timed: Mapping[str, Sequence[TimedQuality]] | None = None
) -> GearPlan:
    """A plan of one gear: of one model for each node, or of several with their tables."""
    names = [f"{node}-{m}" for node, of_node in choices.items() for m in of_node]
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades={n: tuple(Cascade(models=(f"{n}-{m}",)) for m in of_node) for n, of_node in choices.items()},
        replicas=tuple(ReplicaSettings(replica=name, load_share=1.0) for name in names),
        **({"timed": {n: tuple(tables) for n, tables in timed.items()}, "margin_s": 0.0} if timed else {}),
    )
    return GearPlan(
        planner="by hand",
        hardware=HARDWARE,
        placement=Placement(replicas=tuple(Replica(id=name, model=name, device_ids=(name,)) for name in names)),
        pipelines={
            "traffic": PipelinePlan(
                nodes=NODES, edges=EDGES, output="answer", objective=Objective(latency_s=slo_s), gears=(gear,)
            )
        },
        profiles=dict.fromkeys(NODES, SOURCE),
        traces={"traffic": SOURCE},
    )


def known(*, caches: bool) -> Query:
    """The parts of tables, with the node that answers, which takes no time."""
    of_branches = query(caches=caches)
    none = Outcomes(np.zeros(1, dtype=np.int64), np.ones(1), np.ones(1))
    return Query(
        nodes=NODES,
        edges=EDGES,
        outcomes={**of_branches.outcomes, "answer": [none]},
        branches={"detect": {frozenset({kind, "answer"} - {""}): share for kind, share in SHARES.items()}},
    )


def poisson(steps: Sequence[tuple[float, float]], seed: int) -> Trace:
    """Arrivals at rates for so many seconds each."""
    rates = np.concatenate([np.full(max(1, round(seconds)), float(rate)) for rate, seconds in steps])
    arrivals_ns = arrivals_of_rates(rates, "poisson", seed)
    return Trace(arrivals_ns=arrivals_ns, duration_s=float(max(len(rates), arrivals_ns[-1] / NS_PER_S)))


def best_static(world: World, workload: Workload, slo_s: float) -> GearPlan:
    made = (
        by_hand({n: [m] for n, m in zip(EVERY, combination, strict=True)}, slo_s)
        for combination in product(*EVERY.values())
    )
    return max(made, key=lambda plan: world.right_in_time(plan, workload, slo_s)[0])


def cells(world: World, *, caches: bool) -> Iterator[tuple[int, int, NDArray[np.float64], float]]:
    """For each objective and rate: what the columns and the planner get, and the share that is late with the latter."""
    tables = known(caches=caches)
    budgets = [budget_tables(tables, split) for split in ("equal", "proportional")]
    for slo_ms in SLOS_MS:
        slo_s = slo_ms / 1e3
        planned, percentile = world.planned(slo_s)
        chosen = [by_hand(EVERY, slo_s, timed) for timed in (*budgets, timed_quality(tables))]
        margins = [0.0 if gear.margin_s is UNSET else 1e3 * gear.margin_s for gear in planned.pipeline.gears]
        print(
            f"planned for {slo_ms} ms in {100 * percentile:g} %: margins in ms by gear "
            f"{', '.join(f'{margin:g}' for margin in margins)}",
            flush=True,
        )
        for rate in RATES:
            workload = world.workload(rate, PART_B)
            static = best_static(world, world.workload(rate, PART_A), slo_s)
            got = [world.right_in_time(static, workload, slo_s)[0]]
            for plan in chosen:
                got += [world.right_in_time(plan, workload, slo_s, knows_waits=knows)[0] for knows in (False, True)]
            ours, late = world.right_in_time(planned, workload, slo_s)
            yield slo_ms, rate, np.array([*got, ours]), late


def main() -> None:
    options = parser_of(__doc__)
    options.add_argument("--images", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    bars, means = Bars(), []
    for name, caches, deviation in WORLDS:
        print(f"\n{name}")
        world = World(caches=caches, deviation=deviation, images=given.images, seed=given.seed)
        got = list(cells(world, caches=caches))
        print_head(f"| images/s | {' | '.join(f'{slo} ms' for slo in SLOS_MS)} |")
        for rate in RATES:
            row = [(scores, late) for _, at, scores, late in got if at == rate]
            shown = [f"{100 * scores[0]:.1f}, {100 * scores[-1]:.1f} ({100 * late:.1f})" for scores, late in row]
            print(f"| {rate} | {' | '.join(shown)} |")
        means.append(np.mean([scores for _, _, scores, _ in got], axis=0))
        least = min(float(scores[-1] - scores[0]) for _, _, scores, _ in got)
        late = max(late for slo_ms, _, _, late in got if slo_ms >= LATE_FROM_MS)
        bars.at_least(f"{name}: least gain over static in a cell, points", 100 * least, 0.0)
        bars.at_most(f"{name}: most late from {LATE_FROM_MS} ms on, %", 100 * late, 100 * LATE)
        if deviation:
            bars.at_least(f"{name}: mean of the cells, %", 100 * float(means[-1][-1]), MEAN)
    print("\nMeans of the cells, %")
    print_head(f"| world | {' | '.join((*COLUMNS, 'planned'))} |")
    for (name, _, _), mean in zip(WORLDS, means, strict=True):
        print(f"| {name} | {' | '.join(f'{100 * each:.1f}' for each in mean)} |")
    print(f"\n{bars}")


if __name__ == "__main__":
    main()
