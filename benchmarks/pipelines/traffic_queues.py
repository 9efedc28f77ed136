"""Gati's traffic example with queues: choosing by the time left and waits, beside the best static plan of each cell.

Each model of Table 5 has a device of its own; images come at a constant rate (Poisson).  A cell is a rate and a latency
objective; its figure is the share of images that are answered right and in time, by the simulator.  The static plan is
the best of all 48 combinations for just that cell, ours the best of four margins; both are chosen on the
images that score them.  Learned caches of detection as in `traffic`.

python -m benchmarks.pipelines.traffic_queues
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from benchmarks.pipelines.traffic import HITS, MODELS, SHARES, SPEED_OF_HIT, query
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.tables import print_head
from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, TimedQuality
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.pipeline import Edge, Node, When
from gearshift.placement import Placement, Replica
from gearshift.planner.joint.replanning.timed_quality import Outcomes, Query, timed_quality
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve, split_parts
from gearshift.profiles.tuples import Items, JointRecords
from gearshift.simulator.simulate import prepare
from gearshift.traces.generate import arrivals_of_rates
from gearshift.workload import Trace, Workload, draw_workload

RATES = (1, 5, 10, 20, 35, 50)
SLOS_MS = (80, 100, 120, 150, 175, 200)
MARGINS_MS = (0, 8, 16, 32)
RECORDED, ANSWER_MS = 4000, 0.01
NODES = {name: Node(operator=name) for name in ("detect", "face", "vehicle", "answer")}
EDGES = (
    Edge(from_="detect", to="face", when=When(output="label", one_of=("face",))),
    Edge(from_="detect", to="vehicle", when=When(output="label", one_of=("vehicle",))),
    Edge(from_="detect", to="answer"),
    Edge(from_="face", to="answer"),
    Edge(from_="vehicle", to="answer"),
)

Choices = Mapping[str, Sequence[int]]


class World:
    """Profiles and joint records of drawn images."""

    def __init__(self, *, caches: bool, seed: int = 0) -> None:
        generator = np.random.default_rng([seed, caches])
        part = split_parts(np.arange(RECORDED), seed)
        self.kinds = generator.choice(list(SHARES), RECORDED, p=list(SHARES.values()))
        models = {**MODELS, "answer": [(ANSWER_MS, 1.0)]}
        self.profiles = {}
        for node, of_node in models.items():
            cached = caches and node == "detect"
            exits = (generator.random(RECORDED) >= HITS).astype(np.int64)
            self.profiles[node] = Profile(
                operator=node,
                curves=tuple(
                    curve for m, (ms, _) in enumerate(of_node) for curve in _curves(f"{node}-{m}", ms, cached=cached)
                ),
                predictions=PredictionRecords(
                    models=tuple(f"{node}-{m}" for m in range(len(of_node))),
                    quality=np.array(
                        [(generator.random(RECORDED) < accuracy).astype(float) for _, accuracy in of_node]
                    ),
                    certainty=np.ones((len(of_node), RECORDED)),
                    part=part,
                    prediction=np.tile(self.kinds, (len(of_node), 1)) if node == "detect" else None,
                    exit_segment=np.tile(exits, (len(of_node), 1)) if cached else None,
                ),
            )
        of_tuple = np.arange(RECORDED)
        items = Items(
            of_tuple=np.tile(of_tuple, 4), node=np.repeat(np.arange(4), RECORDED),
            row=np.tile(of_tuple, 4), around=np.full(4 * RECORDED, -1),
        )  # fmt: skip
        self.joint: JointRecords = items.joint_records(NODES, EDGES, names=[str(t) for t in range(RECORDED)], part=part)

    def plan(
        self, choices: Choices, slo_s: float, timed: Mapping[str, Sequence[TimedQuality]], margin_s: float
    ) -> GearPlan:
        names = [f"{node}-{m}" for node, of_node in choices.items() for m in of_node]
        devices = identical_devices(len(names))
        placed = zip(names, devices.devices, strict=True)
        gear = Gear(
            load_range=LoadRange(from_=0.0),
            cascades={
                node: tuple(Cascade(models=(f"{node}-{m}",)) for m in of_node) for node, of_node in choices.items()
            },
            replicas=tuple(ReplicaSettings(replica=name, load_share=1.0) for name in names),
            **({"timed": {n: tuple(tables) for n, tables in timed.items()}, "margin_s": margin_s} if timed else {}),
        )
        source = SourceFile(path="", sha256="")
        return GearPlan(
            planner="by hand",
            hardware=devices,
            placement=Placement(replicas=tuple(Replica(id=n, model=n, device_ids=(d.id,)) for n, d in placed)),
            pipelines={
                "traffic": PipelinePlan(
                    nodes=NODES, edges=EDGES, output="answer", objective=Objective(latency_s=slo_s), gears=(gear,)
                )
            },
            profiles=dict.fromkeys(NODES, source),
            traces={"traffic": source},
        )

    def right_in_time(self, plan: GearPlan, workload: Workload, slo_s: float) -> tuple[float, float]:
        """The share of images that are right and in time, and of those that are late."""
        run = prepare(plan, self.profiles, {"traffic": self.joint}).run(workload)
        in_time = run.latency_s <= slo_s
        return float((run.quality(self.profiles) * in_time).mean()), float(1 - in_time.mean())


def _curves(model: str, ms: float, *, cached: bool) -> list[RunTimeCurve]:
    parts_ms = (ms / SPEED_OF_HIT, ms - ms / SPEED_OF_HIT) if cached else (ms,)
    return [
        RunTimeCurve(model=model, segment=s, batch_sizes=(1,), median_s=(part / 1e3,), p95_s=(part / 1e3,))
        for s, part in enumerate(parts_ms)
    ]


def tables_of(*, caches: bool) -> dict[str, Sequence[TimedQuality]]:
    """The tables of all implementations, with the node that answers, which takes no time."""
    of_branches = query(caches=caches)
    none = Outcomes(np.zeros(1, dtype=np.int64), np.ones(1), np.ones(1))
    known = Query(
        nodes=NODES,
        edges=EDGES,
        outcomes={**of_branches.outcomes, "answer": [none]},
        branches={
            "detect": {frozenset({kind, "answer"} - {""}): share for kind, share in SHARES.items()},
        },
    )
    return dict(timed_quality(known))


def workload_at(rate: float, images: int, seed: int, records: NDArray[np.int32]) -> Workload:
    seconds = max(4, round(images / rate))
    arrivals_ns = arrivals_of_rates(np.full(seconds, float(rate)), "poisson", seed)
    trace = Trace(arrivals_ns=arrivals_ns, duration_s=float(max(seconds, arrivals_ns[-1] / NS_PER_S)))
    return draw_workload(trace, records, seed=seed)


def main() -> None:
    options = parser_of(__doc__)
    options.add_argument("--images", type=int, default=2000)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    every: Choices = {**{node: range(len(of_node)) for node, of_node in MODELS.items()}, "answer": range(1)}
    for caches in (False, True):
        world, tables = World(caches=caches, seed=given.seed), tables_of(caches=caches)
        print(f"\n{'With' if caches else 'Without'} learned caches: static, by time left (late), with the margin in ms")
        print_head(f"| images/s | {' | '.join(f'{slo} ms' for slo in SLOS_MS)} |")
        totals = np.zeros((len(RATES), len(SLOS_MS), 2))
        for i, rate in enumerate(RATES):
            workload = workload_at(rate, given.images, given.seed, np.arange(RECORDED, dtype=np.int32))
            cells = []
            for j, slo_ms in enumerate(SLOS_MS):
                slo_s = slo_ms / 1e3
                static = max(
                    world.right_in_time(
                        world.plan({n: [m] for n, m in zip(every, combination, strict=True)}, slo_s, {}, 0.0),
                        workload,
                        slo_s,
                    )[0]
                    for combination in product(*every.values())
                )
                chosen = [
                    (*world.right_in_time(world.plan(every, slo_s, tables, margin / 1e3), workload, slo_s), margin)
                    for margin in MARGINS_MS
                ]
                best, late, margin = max(chosen)
                totals[i, j] = static, best
                cells.append(f"{100 * static:.1f}, {100 * best:.1f} ({100 * late:.1f}), {margin}")
            print(f"| {rate} | {' | '.join(cells)} |")
        static, best = 100 * totals.reshape(-1, 2).mean(axis=0)
        worse = int((totals[..., 1] < totals[..., 0]).sum())
        print(f"\nmean: static {static:.1f}, by time left {best:.1f}; cells in which static is better: {worse}")


if __name__ == "__main__":
    main()
