"""How long the scaler's solver takes: the bar is 1 ms for 1,000 requests in sight.

The last rows are what a server asks of it, in its event loop: with 1,000 requests in a queue and a second's more
expected, and where there are too few cores, how many would miss their deadlines on any number of them.

python -m benchmarks.papers.scaler_solver
"""

import numpy as np

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe, pin_to_last_core, seconds_of
from benchmarks.shared.tables import print_head
from gearshift.policies.cores.demand import Scaling, SharedCores, WorkerDemand
from gearshift.policies.cores.look_ahead import Sight, cores_ahead
from gearshift.policies.cores.scaling import fewest_cores, share_cores

CORES, BATCH, NS = 16, 16, 1_000_000_000


def table() -> list[int]:
    """Run times of a model of 2 ms a sample on one core and 1 ms a batch."""
    c, b = np.meshgrid(np.arange(CORES + 1), np.arange(BATCH + 1), indexing="ij")
    return np.rint(1e6 * (2 * b / np.maximum(c, 1) + 1)).astype(np.int64).ravel().tolist()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=300)
    repeats = parser.parse_args().repeats
    pin_to_last_core()
    print_head(f"{describe()}\n\n| what | median ms | p99 ms |")
    run_ns = table()
    sent = np.arange(500, dtype=np.int64) * NS // 500
    came, spread = sent.tolist(), (NS - sent // 3).tolist()
    deadlines = [due + a for due, a in zip(spread, came, strict=True)]
    for name, slo_ns in (("choice found", 4 * NS), ("no choice", NS // 100)):
        queue = sorted(slo_ns + i * 1_000_003 % 97_000_000 for i in range(1000))
        report(
            f"Eq. 3, 1,000 queued, {name}",
            lambda q=queue: fewest_cores(q, 1000, 0, 100.0, NS, run_ns, CORES, BATCH),
            repeats,
        )
    queue = [4 * NS + i * 100_000 for i in range(500)]
    seen = Sight(NS, NS, NS, queue, came, deadlines)
    report(
        "with look-ahead, 500 queued and 500 expected",
        lambda: cores_ahead(seen, NS, run_ns, CORES, BATCH),
        repeats,
    )
    for rate in (50, 1000):
        served = WorkerDemand(SharedCores(Scaling(), CORES, [run_ns], [CORES], BATCH), [0])
        for i in range(10 * rate):
            served.arrived(0, i * NS // rate, i * NS // rate + NS)
        waiting = [(i, 11 * NS + i * 100_000) for i in range(1000)]
        what = f"as served, 1,000 queued and {rate}/s"
        report(what, lambda d=served, w=waiting: d.wanted(10 * NS, [w], 10 * NS, 1), repeats)
        what = f"as served, 1,000 queued and {rate}/s, who misses"
        report(what, lambda d=served, w=waiting: d.misses(10 * NS, [w], 10 * NS, CORES), repeats)
        late = [(i, 10 * NS + i * 100_000) for i in range(1000)]
        report(f"{what}, overload", lambda d=served, w=late: d.misses(10 * NS, [w], 10 * NS, CORES), repeats)
    misses = [[100] + [max(0, 60 - (5 + r) * c) for c in range(1, CORES + 1)] for r in range(8)]
    report("16 cores shared by 8 replicas", lambda: share_cores(misses, CORES, [1] * len(misses)), repeats)


def report(name: str, work: object, repeats: int) -> None:
    times = np.sort(seconds_of(work, repeats=repeats))  # type: ignore[arg-type]
    print(f"| {name} | {1e3 * np.median(times):.3f} | {1e3 * times[int(0.99 * (len(times) - 1))]:.3f} |")


if __name__ == "__main__":
    main()
