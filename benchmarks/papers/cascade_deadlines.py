"""A cascade under dynamic deadlines: the largest model with Sponge, and a cascade that does or does not know deadlines.

python -m benchmarks.papers.cascade_deadlines [--data DIR] [--seconds 600] [--within-points 0.2] [--live]

Requests come over a network and count from when they were sent, so that each has another time left.  Three traces: the
4G log of a bus (500 KB, a second to be answered in), handovers between cells (200 KB, a second, of which a gap takes up
to 0.7), and flash crowds (200 KB, 0.3 s, four times the rate for a third of each minute).  The largest model has the
run times by batch size and cores that Sponge measured, six times as long; the small one the share of them that BERT
tiny takes of BERT base; predictions and certainties are those of FrugalML's speech commands.  Without data all three
are made up.  The threshold is chosen on part A of the samples, with an accuracy within 0.2 points of the largest
model's (`--within-points`); requests are drawn from part B.

Who: the largest model with our exact scaler, up to 16 cores, and on all 16; the cascade, both models on one worker,
without deadlines (first come first served, nothing dropped), and with them, on 16 cores and on the mean that the scaler
used, rounded down; and with them on the cores that the exact scaler gives both models together, which is compared with
nobody on as many.  In time is what was answered by its deadline; right, of all requests, what was right and in time.  A
late answer counts as none.  Out of reach is what had no time left for the small model alone on 16 cores.  Load is a
share of what the largest model bears on 16 cores.

With --live, real models are served on one processor of this machine, quotas standing for four core counts, and the
exact scaler gives all three their cores out of the same four, the cascade's two models theirs together; (b), which
tells no deadlines, is scaled for the plan's objective of a second.  The three take turns, round by round.  That needs
a control group that may be made.  What is simulated is the same on every machine.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.cascade_deadlines_live import Send, live
from benchmarks.papers.scalers import StaticScaler
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.imported import bert_curves, frugalml, sponge_latency
from benchmarks.shared.machine import describe
from benchmarks.shared.plan_by_hand import plan_by_hand
from benchmarks.shared.tables import print_head
from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.decisions import Ending
from gearshift.gear import Gear, GearPlan, LoadRange, ReplicaSettings, alone
from gearshift.hardware import identical_devices
from gearshift.placement import Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.policies.cores.demand import Scaling, SharedCores
from gearshift.profiles.performance_model import fit_performance_model, planned_ns
from gearshift.simulator.compared.scalers import ExactScaler
from gearshift.simulator.compared.vertical import Scaler, Setting, simulate_vertical
from gearshift.simulator.simulate import simulate_tables
from gearshift.traces.network import NetworkTrace, Uplink, read_network
from gearshift.workload import Workload

MOST_CORES, LARGEST_BATCH, SLOWER = 16, 16, 6
PART_A, PART_B = 0, 1
EFFECT_S = 0.01
LOADS, LIVE_LOAD = (0.5, 0.9, 1.4), 0.9
CLOSE = 0.0001
"""Shares that differ by less are called equal."""
MODELS = ("small", "large")


# The world -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Run times (models, cores + 1, sizes + 1) in nanoseconds, and of each record quality and certainty (2, n)."""

    source: str
    run_ns: NDArray[np.int64]
    quality: NDArray[np.float64]
    certainty: NDArray[np.float64]
    part: NDArray[np.int8]
    within: float
    """By how much accuracy the cascade may stay below the largest model, where it has time."""

    @property
    def most_qps(self) -> float:
        """What the largest model bears on all cores."""
        return LARGEST_BATCH * NS_PER_S / int(self.run_ns[1, MOST_CORES, LARGEST_BATCH])

    def threshold(self) -> tuple[float, float]:
        """The least that keeps accuracy on part A, and the share that is forwarded then."""
        own = self.part == PART_A
        (small, large), sure = self.quality[:, own], self.certainty[0, own]
        order = np.argsort(sure)
        gained = np.concatenate([[0.0], np.cumsum((large - small)[order])])
        forwarded = int(np.argmax(small.sum() + gained >= large.sum() - self.within * len(sure)))
        least = sure[order[forwarded]] if forwarded < len(sure) else 1.0
        return float(least), float((sure < least).mean())


def recorded(data: Path, within: float) -> World:
    batch_sizes, cores, seconds = sponge_latency(data)
    model = fit_performance_model(batch_sizes, cores, seconds, model="sponge-resnet")
    large = SLOWER * model.table_ns(most_cores=MOST_CORES, largest_batch_size=LARGEST_BATCH)
    times = bert_curves(data)
    predictions = frugalml(data, "command").predictions
    rows = predictions.rows(("tiny", "base"))
    return World(
        "Sponge's run times, FrugalML's speech commands",
        with_small(large, times["tiny"].median_s[0] / times["base"].median_s[0]),
        predictions.quality[rows],
        predictions.certainty[rows],
        predictions.part,
        within,
    )


def made_up(within: float, samples: int = 20_000) -> World:
    """A model whose time is a constant plus a part that cores divide; certainty tells half of what is hard."""
    generator = np.random.default_rng(0)
    b, c = np.arange(LARGEST_BATCH + 1), np.arange(1, MOST_CORES + 1)[:, None]
    seconds = SLOWER * (0.004 + 0.0045 * b + 0.035 * b / c)
    large = np.vstack([np.zeros_like(b), np.rint(seconds * NS_PER_S)]).astype(np.int64)
    hard = generator.random(samples)
    quality = np.array([hard < 0.8, hard < 0.945], dtype=np.float64)
    sure = np.clip(1 - 0.6 * hard + generator.normal(0, 0.1, samples), 0, 1)
    part = (generator.random(samples) < 0.5).astype(np.int8)
    return World(
        "made-up run times and predictions", with_small(large, 0.2), quality, np.array([sure, sure]), part, within
    )


def with_small(large: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    return np.array([np.rint(share * large), large]).astype(np.int64)


# Traces --------------------------------------------------------------------------------------------------------------


def network_of(seconds: Sequence[float], bytes_per_s: Sequence[float]) -> NetworkTrace:
    """So many bytes a second for so long, one after the other."""
    times_s = np.concatenate([[0.0], np.cumsum(seconds)])
    carried = np.concatenate([[0.0], np.cumsum(np.multiply(seconds, bytes_per_s))])
    return NetworkTrace(np.rint(times_s * NS_PER_S).astype(np.int64), carried)


def bus(data: Path | None) -> NetworkTrace:
    """The 4G log; without data, bandwidth that wanders between 0.2 and 8 MB/s."""
    if data is not None:
        return read_network(data / "traces" / "lte_bus_0001.log")
    steps = np.cumsum(np.random.default_rng(1).normal(0, 0.4, 600))
    return network_of([1.0] * 600, np.exp(np.log(2e6) + 1.4 * np.sin(steps)).clip(2e5, 8e6).tolist())


def handovers() -> NetworkTrace:
    """Ten good seconds, a gap of 0.7 s, then half a second at a fifth of the bandwidth."""
    return network_of([10.0, 0.7, 0.5], [4e6, 0.0, 8e5])


def steady(rate_qps: float, seconds: float) -> NDArray[np.int64]:
    """Instants of sending, evenly spaced."""
    count = round(rate_qps * seconds)
    return np.asarray(np.arange(count, dtype=np.int64) * round(seconds * NS_PER_S) // count)


def crowds(rate_qps: float, seconds: float) -> NDArray[np.int64]:
    """At `rate_qps` in the mean: a minute has twenty seconds at four times the rate of the others."""
    fine = np.arange(0, seconds, 0.01)
    weight = np.where(fine % 60 < 20, 4.0, 1.0)
    upto = np.cumsum(weight) / weight.sum()
    count = round(rate_qps * seconds)
    return np.asarray(np.rint(np.interp((np.arange(count) + 0.5) / count, upto, fine) * NS_PER_S).astype(np.int64))


@dataclass(frozen=True)
class Case:
    """A trace at a load: requests as they arrive, each with its deadline."""

    name: str
    load: float
    workload: Workload


def traces(data: Path | None) -> dict[str, tuple[Send, Uplink]]:
    """When requests are sent, and over what."""
    return {
        "4G bus": (steady, Uplink(bus(data), 500e3, 1.0)),
        "handovers": (steady, Uplink(handovers(), 200e3, 1.0)),
        "flash crowds": (crowds, Uplink(network_of([1.0], [5e6]), 200e3, 0.3)),
    }


def make_case(name: str, world: World, trace: tuple[Send, Uplink], load: float, seconds: float) -> Case:
    send, uplink = trace
    sent_ns = send(load * world.most_qps, seconds)
    own = np.flatnonzero(world.part == PART_B)
    record = np.random.default_rng(2).choice(own, len(sent_ns)).astype(np.int32)
    sent = Workload(arrivals_ns=sent_ns, record=record, duration_s=seconds)
    return Case(name, load, uplink.carry(sent).workload)


# Who serves ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Mean cores; of all requests the shares in time, right and in time, and degraded and in time."""

    cores: float
    in_time: float
    right: float
    degraded: float = 0.0

    @property
    def accuracy(self) -> float:
        return self.right / self.in_time if self.in_time else 0.0


def largest(world: World, case: Case, scaler: Scaler) -> Outcome:
    """The largest model alone, its cores those that `scaler` gives it."""
    run = simulate_vertical(
        case.workload,
        world.run_ns[1].tolist(),
        scaler,
        first=Setting(MOST_CORES, LARGEST_BATCH),
        effect_s=EFFECT_S,
        gives_way=True,
    )
    in_time = ~run.violations
    right = in_time * world.quality[1, case.workload.record]
    return Outcome(run.core_seconds / run.duration_s, float(in_time.mean()), float(right.mean()))


def the_plan(threshold: float) -> GearPlan:
    """Both models on one worker, which runs a batch at a time."""
    hardware = identical_devices(1)
    (device,) = hardware.devices
    settings = tuple(ReplicaSettings(replica=m, load_share=1.0, largest_batch_size=LARGEST_BATCH) for m in MODELS)
    cascade = Cascade(models=MODELS, thresholds=(threshold,))
    return plan_by_hand(
        "task",
        (Gear(load_range=LoadRange(from_=0), cascades=alone("task", cascade), replicas=settings),),
        tuple(Replica(id=m, model=m, device_ids=(device.id,)) for m in MODELS),
        hardware,
    )


def cascade(world: World, case: Case, cores: int, *, aware: bool, scaled: bool = False) -> Outcome:
    """The cascade on so many cores all the time, or `scaled`, by our exact scaler out of so many."""
    tables = plan_tables(the_plan(world.threshold()[0]))
    rows = [MODELS.index(model) for model in tables.models]
    arriving, deadline_ns = case.workload, case.workload.deadline_ns
    assert deadline_ns is not None
    if not aware:
        arriving = Workload(arrivals_ns=arriving.arrivals_ns, record=arriving.record, duration_s=arriving.duration_s)
    by_cores = world.run_ns[[MODELS.index(name) for name in tables.replica_ids], : cores + 1]
    how: dict[str, Any] = {}
    if scaled:
        scaling = Scaling(effect_s=EFFECT_S)
        planned = [planned_ns(table, scaling.margin) for table in by_cores]
        shared = SharedCores(scaling, cores, planned, [cores] * 2, LARGEST_BATCH, workers=[[0, 1]], first=[cores] * 2)
        how = {"core_run_ns": by_cores, "effect_s": EFFECT_S, "shared": shared}
    run = simulate_tables(tables, by_cores[:, cores], np.ascontiguousarray(world.certainty[rows]), arriving, **how)
    in_time = (run.finished_ns >= 0) & (run.finished_ns <= deadline_ns)
    quality = world.quality[rows][run.model, arriving.record]
    degraded = in_time & (run.ended == Ending.DEGRADED)
    held = cores if run.core_s is None else run.core_s / run.duration_s
    return Outcome(held, float(in_time.mean()), float((in_time * quality).mean()), float(degraded.mean()))


SPONGE, ALL_CORES = "(a) largest, Sponge", "(a) largest, all cores"
UNAWARE, AWARE, SCALED = "(b) cascade", "(c) cascade, deadlines", "(c) cascade, deadlines, scaled"


def outcomes(world: World, case: Case) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
    """By who served: at the cores that Sponge used in the mean, and on all cores."""
    sponge = largest(world, case, ExactScaler(world.run_ns[1], effect_s=EFFECT_S))
    few = {SPONGE: sponge}
    many = {ALL_CORES: largest(world, case, StaticScaler())}
    for found, cores in ((few, max(1, int(sponge.cores))), (many, MOST_CORES)):
        found[UNAWARE] = cascade(world, case, cores, aware=False)
        found[AWARE] = cascade(world, case, cores, aware=True)
    few[SCALED] = cascade(world, case, MOST_CORES, aware=True, scaled=True)
    return few, many


def out_of_reach(world: World, case: Case) -> float:
    """The share of requests that nobody here could answer in time."""
    assert case.workload.deadline_ns is not None
    left_ns = case.workload.deadline_ns - case.workload.arrivals_ns
    return float((left_ns < world.run_ns[0, MOST_CORES, 1]).mean())


def not_dominated(found: dict[str, Outcome]) -> list[str]:
    """Where the aware cascade is worse than another on as many cores, in words."""
    ours = found[AWARE]
    return [
        f"{what}: {getattr(other, field):.2%} of {name} against {getattr(ours, field):.2%}"
        for name, other in found.items()
        if name != SCALED
        for field, what in (("in_time", "in time"), ("right", "right"))
        if getattr(other, field) > getattr(ours, field) + CLOSE
    ]


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--seconds", type=float, default=600.0, help="of each trace")
    parser.add_argument("--within-points", type=float, default=0.2, help="of the largest model's accuracy")
    parser.add_argument("--live", action="store_true", help="serve real models on this machine too")
    parser.add_argument("--live-seconds", type=float, default=30.0, help="of each trace")
    parser.add_argument("--live-rounds", type=int, default=5, help="all three in turn, so often")
    given = parser.parse_args()
    data = given.data
    world = made_up(given.within_points / 100) if data is None else recorded(data, given.within_points / 100)
    threshold, forwarded = world.threshold()
    print(
        f"command    `python {' '.join(sys.argv)}`\nmachine    {describe()}"
        f"\nworld      {world.source}; threshold {threshold:.3f}, at which {forwarded:.1%} are forwarded"
    )
    print(f"the largest model bears {world.most_qps:.1f} requests/s on {MOST_CORES} cores\n")
    print_head(
        "| trace | load | out of reach | who | cores | in time | right | accuracy of what is in time | degraded |"
    )
    short = []
    for name, trace in traces(data).items():
        for load in LOADS:
            case = make_case(name, world, trace, load, given.seconds)
            head = f"{name} | {load:g} | {out_of_reach(world, case):.2%}"
            for found in outcomes(world, case):
                for who, one in found.items():
                    print(
                        f"| {head} | {who} | {one.cores:.1f} | {one.in_time:.2%} | {one.right:.2%} |"
                        f" {one.accuracy:.2%} | {one.degraded:.2%} |",
                        flush=True,
                    )
                    head = " | | "
                short += [
                    f"{name} at {load:g}, {found[AWARE].cores:.0f} cores, {what}" for what in not_dominated(found)
                ]
    print("\n(c) is at least as good in both, but for:" if short else "\n(c) is at least as good in both everywhere")
    for what in short:
        print(f"- {what}")
    if given.live:
        own = world.part == PART_B
        quality, certainty = world.quality[:, own], world.certainty[:, own]
        live(quality, certainty, threshold, traces(data), LIVE_LOAD, given.live_seconds, given.live_rounds)


if __name__ == "__main__":
    main()
