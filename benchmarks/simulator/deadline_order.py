"""Earliest deadline first against first come first served, both with drops, at several loads; by class of deadline.

One device runs batches of up to 16 that take 4 ms and 1 ms for each sample, so its capacity is 800 samples/s and its
service time, that of a whole batch, 20 ms.  Deadlines are drawn evenly, on a logarithmic scale, from five to fifty
service times after arrival; a class is a third of that scale.  Arrivals are Poisson.

The claims: at 0.9 and 1.0 of capacity earliest deadline first misses at most half as many; at twice capacity it answers
at least 95 % of capacity in time.  Drops are refusals and count as misses.  All times are simulated: any machine gives
the same.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.plan_by_hand import plan_by_hand
from benchmarks.shared.tables import print_head
from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, ReplicaSettings, alone
from gearshift.hardware import identical_devices
from gearshift.placement import Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.simulator.simulate import Simulation, simulate_tables
from gearshift.workload import Workload

LARGEST_BATCH = 16
FIRST_MS, EACH_MS = 4, 1
SERVICE_MS = FIRST_MS + EACH_MS * LARGEST_BATCH
CAPACITY_QPS = 1000 * LARGEST_BATCH / SERVICE_MS
TIGHTEST, SPREAD = 5, 10
LOADS = (0.5, 0.9, 1.0, 1.5, 2.0)
CLASSES = ("tight", "middle", "loose")
MS = 1_000_000
Orders = dict[str, Simulation]


def plan() -> GearPlan:
    hardware = identical_devices(1)
    settings = ReplicaSettings(replica="m", load_share=1.0, largest_batch_size=LARGEST_BATCH)
    gear = Gear(load_range=LoadRange(from_=0.0), cascades=alone("task", Cascade(models=("m",))), replicas=(settings,))
    return plan_by_hand("task", (gear,), (Replica(id="m", model="m", device_ids=(hardware.devices[0].id,)),), hardware)


def workload_at(load: float, samples: int, seed: int) -> tuple[Workload, NDArray[np.int64]]:
    """Arrivals at `load` times capacity, and the class of each sample's deadline."""
    generator = np.random.default_rng([seed, round(100 * load)])
    arrivals_ns = np.cumsum(generator.exponential(1e9 / (load * CAPACITY_QPS), samples)).astype(np.int64)
    on_scale = generator.random(samples)
    deadline_ns = arrivals_ns + (TIGHTEST * SERVICE_MS * SPREAD**on_scale * MS).astype(np.int64)
    workload = Workload(
        arrivals_ns=arrivals_ns,
        record=np.zeros(samples, dtype=np.int32),
        duration_s=float(arrivals_ns[-1]) / 1e9,
        deadline_ns=deadline_ns,
    )
    return workload, (on_scale * len(CLASSES)).astype(np.int64)


def both_orders(workload: Workload) -> Orders:
    """The workload served in order of deadlines and of arrival."""
    run_ns = np.array([[0, *(FIRST_MS + EACH_MS * np.arange(1, LARGEST_BATCH + 1))]]) * MS
    tables, certainty = plan_tables(plan()), np.ones((1, 1))
    return {
        name: simulate_tables(tables, run_ns, certainty, workload, by_arrival=by_arrival)
        for name, by_arrival in (("EDF", False), ("FCFS", True))
    }


def missed(run: Simulation) -> NDArray[np.bool_]:
    """Which samples (n,) were not answered by their deadlines."""
    assert run.workload.deadline_ns is not None
    late: NDArray[np.bool_] = (run.finished_ns < 0) | (run.finished_ns > run.workload.deadline_ns)
    return late


def goodput(run: Simulation) -> float:
    """Samples answered in time while load came, as a share of capacity."""
    in_time = np.count_nonzero(~missed(run))
    return float(in_time / (run.duration_s * CAPACITY_QPS))


def shares(run: Simulation, classes: NDArray[np.int64]) -> list[float]:
    """The share missed, of all and by class."""
    misses = missed(run)
    return [float(misses.mean()), *(float(misses[classes == c].mean()) for c in range(len(CLASSES)))]


def row(load: float, name: str, run: Simulation, classes: NDArray[np.int64]) -> Sequence[str]:
    sizes = run.batches[0] @ np.arange(LARGEST_BATCH + 1) / run.batches.sum()
    return (
        f"{load:g}",
        name,
        *(f"{100 * share:.2f} %" for share in shares(run, classes)),
        f"{goodput(run):.3f}",
        f"{sizes:.1f}",
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--samples", type=int, default=2_000_000, help="per load")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    titles = ("load", "order", "missed", *CLASSES, "goodput", "mean batch")
    print_head(f"| {' | '.join(titles)} |")
    bars = []
    for load in LOADS:
        workload, classes = workload_at(load, arguments.samples, arguments.seed)
        runs = both_orders(workload)
        for name, run in runs.items():
            print(f"| {' | '.join(row(load, name, run, classes))} |", flush=True)
        edf, fcfs = (shares(runs[name], classes)[0] for name in ("EDF", "FCFS"))
        if load in (0.9, 1.0):
            bars.append((f"at {load:g} EDF misses {100 * edf:.3f} %, FCFS {100 * fcfs:.3f} %", edf <= fcfs / 2))
        if load == 2.0:
            bars.append(
                (f"at twice capacity goodput is {goodput(runs['EDF']):.3f} of it", goodput(runs["EDF"]) >= 0.95)
            )
    for what, met in bars:
        print(f"{'met' if met else 'NOT MET'}: {what}")


if __name__ == "__main__":
    main()
