"""Simulated requests per second on one core: 16 devices and 1,024, 3 stages, gear shifts; and memory for 9 million.

Each row is one load and one cap on batches.  The load swings by a quarter around its mean every ten seconds, so that
gears shift.  The claim, for 16 devices: at least 10 million requests/s at a mean batch of 4 or more, 5 million
at batch 1.
"""

import resource

import numpy as np

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe, pin_to_last_core, seconds_of
from benchmarks.shared.plan_by_hand import plan_by_hand
from benchmarks.shared.tables import print_head
from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, ReplicaSettings, alone
from gearshift.hardware import identical_devices
from gearshift.placement import Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.simulator.simulate import Simulation, simulate_tables
from gearshift.workload import Workload

MODELS = ("small", "medium", "large")
BATCH_S = ((0.0010, 0.00005), (0.0015, 0.0002), (0.0020, 0.0006))
"""Seconds of a batch of b: first + b x second."""
GEARS = 8
RECORDS = 16_000


def plan_for(devices: int, qps: float, largest_batch: int) -> GearPlan:
    replicas = tuple(
        Replica(id=f"{m}@{d:04d}", model=m, device_ids=(f"cpu-{d}",)) for m in MODELS for d in range(devices)
    )
    starts = [0.0, *np.linspace(0.8 * qps, 1.25 * qps, GEARS - 1)]
    gears = []
    for g in range(GEARS):
        forward = 0.45 - 0.03 * g
        gears.append(
            Gear(
                load_range=LoadRange(from_=starts[g], to=starts[g + 1] if g + 1 < GEARS else None),
                cascades=alone("task", Cascade(models=MODELS, thresholds=(forward, forward))),
                replicas=tuple(
                    ReplicaSettings(replica=r.id, load_share=1 / devices, largest_batch_size=largest_batch)
                    for r in replicas
                ),
            )
        )
    return plan_by_hand("task", tuple(gears), replicas, identical_devices(devices))


def workload_of(qps: float, requests: int) -> Workload:
    generator = np.random.default_rng(0)
    seconds = np.arange(int(requests / qps) + 1)
    rate = qps * (1 + 0.25 * np.sin(seconds * 2 * np.pi / 10))
    times = np.concatenate([s + generator.random(generator.poisson(r)) for s, r in zip(seconds, rate, strict=True)])
    arrivals_ns = np.sort((times * 1e9).astype(np.int64))
    return Workload(
        arrivals_ns=arrivals_ns,
        record=generator.integers(0, RECORDS, len(arrivals_ns)).astype(np.int32),
        duration_s=float(len(seconds)),
    )


def run(devices: int, per_device: int, largest_batch: int, requests: int) -> tuple[list[float], Simulation]:
    qps = per_device * devices
    tables = plan_tables(plan_for(devices, qps, largest_batch))
    sizes = np.arange(largest_batch + 1)
    run_ns = np.repeat([np.rint((a + b * sizes) * 1e9).astype(np.int64) for a, b in BATCH_S], devices, axis=0)
    ordered = [MODELS.index(model) for model in tables.models]
    run_ns = np.concatenate([run_ns[m * devices : (m + 1) * devices] for m in ordered])
    certainty = np.random.default_rng(1).random((len(MODELS), RECORDS))
    workload = workload_of(qps, requests)
    last: list[Simulation] = []

    def once() -> None:
        last[:] = [simulate_tables(tables, run_ns, certainty, workload)]

    once()
    return seconds_of(once, repeats=5), last[0]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--requests", type=int, default=3_000_000)
    arguments = parser.parse_args()
    pin_to_last_core()
    print(describe())
    print_head(
        "| devices | requests/s each | largest batch | mean batch | visits | shifts | busy | million/s (min..max) |"
    )
    rows = [
        (16, 300, 64),
        (16, 700, 64),
        (16, 1000, 64),
        (16, 1400, 64),
        (16, 2000, 64),
        (16, 300, 1),
        (1024, 1400, 64),
    ]
    for devices, per_device, largest_batch in rows:
        times, simulation = run(devices, per_device, largest_batch, arguments.requests)
        requests = len(simulation.workload)
        batches = simulation.batches
        visits = float((batches * np.arange(batches.shape[1])).sum())
        speeds = sorted(requests / t / 1e6 for t in times)
        busy = float(simulation.busy_s.mean()) / simulation.duration_s
        print(
            f"| {devices} | {per_device} | {largest_batch} | {visits / batches.sum():.2f} | {visits / requests:.2f} "
            f"| {len(simulation.shifts)} | {busy:.0%} | {speeds[2]:.1f} ({speeds[0]:.1f}..{speeds[-1]:.1f}) |"
        )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, simulation = run(16, 1000, 64, 9_000_000)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"9 million requests: peak memory {after / 2**20:.2f} GiB (it was {before / 2**20:.2f} GiB before)")


if __name__ == "__main__":
    main()
