"""Cores that a constant rate takes: the best constant settings beside scalers that look at every request.

The model is Sponge's formula with run times 6.64 times as long, on up to 16 cores and in batches of up to 16.  A
constant setting is one worker of so many cores, or so many workers of one, with at most 0.3 % late.

python -m benchmarks.papers.constant_rate
"""

from collections.abc import Callable

import numpy as np

from benchmarks.papers.scalers import StaticScaler
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.tables import print_head
from gearshift.clock import NS_PER_S
from gearshift.simulator.compared.scalers import ExactScaler, ReplicasScaler
from gearshift.simulator.compared.vertical import Scaler, Setting, VerticalRun, simulate_vertical
from gearshift.traces.generate import arrivals_of_rates
from gearshift.workload import Workload

MOST, LARGEST, SECONDS, EFFECT_S, LATE = 16, 16, 120, 0.01, 0.003
FACTOR = 6.64
CASES = [("uniform", 60, 0.6), ("uniform", 60, 0.9), ("uniform", 30, 0.6), ("poisson", 60, 0.6), ("poisson", 60, 0.9)]


def main() -> None:
    parser_of(__doc__).parse_args()
    c, b = np.meshgrid(np.arange(1, MOST + 1), np.arange(1, LARGEST + 1), indexing="ij")
    table_ns = np.zeros((MOST + 1, LARGEST + 1), dtype=np.int64)
    table_ns[0, 1:] = 1 << 61
    table_ns[1:, 1:] = np.rint(NS_PER_S * FACTOR * (0.010 * b / c + 0.005 / c + 0.0008 * b + 0.004))
    columns = ("one worker", "workers of one core", "exact", "exact, margin 0", "replicas", "replicas, margin 0.1")
    print_head(f"| arrivals | {' | '.join(columns)} |")
    for kind, qps, slo_s in CASES:
        arrivals_ns = arrivals_of_rates(np.full(SECONDS, float(qps)), kind, 1)  # type: ignore[arg-type]
        workload = Workload(
            arrivals_ns=arrivals_ns,
            record=np.zeros(len(arrivals_ns), dtype=np.int32),
            duration_s=float(SECONDS),
            deadline_ns=arrivals_ns + round(slo_s * NS_PER_S),
        )

        def run(scaler: Scaler, first: Setting, workload: Workload = workload) -> VerticalRun:
            return simulate_vertical(
                workload, table_ns.tolist(), scaler, first=first, effect_s=EFFECT_S, gives_way=True
            )

        cells = [
            least(lambda n: run(StaticScaler(), Setting(n, LARGEST))),
            least(lambda n: run(StaticScaler(), Setting(1, LARGEST, n))),
        ]
        for scaler in (
            ExactScaler(table_ns, effect_s=EFFECT_S),
            ExactScaler(table_ns, effect_s=EFFECT_S, margin=0.0),
            ReplicasScaler(table_ns, effect_s=EFFECT_S),
            ReplicasScaler(table_ns, effect_s=EFFECT_S, margin=0.1),
        ):
            found = run(scaler, Setting(MOST, LARGEST))
            cells.append(f"{found.core_seconds / SECONDS:.2f}, {100 * found.violations.mean():.2f} %")
        print(f"| {kind} {qps}/s, {slo_s:g} s | {' | '.join(cells)} |")


def least(run: Callable[[int], VerticalRun]) -> str:
    """The fewest cores with few late."""
    return next((str(n) for n in range(1, MOST + 1) if run(n).violations.mean() <= LATE), "none")


if __name__ == "__main__":
    main()
