"""How far a simulated p95 moves with where the windows of the load meter begin, which nobody knows beforehand.

The plans and traces are those of `validate_emulated.py`.  Each trace is simulated with its arrivals moved by parts of
a window of 100 ms; what changes is in which window, and so in which gear, some requests arrive.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_head
from benchmarks.simulator.validate_emulated import WITHIN, Job, families, planned
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.result import percentile
from gearshift.simulator.simulate import prepare
from gearshift.verbs.common.inputs import plan_and_profiles, workload_of

STEPS = 20
COLUMNS = "family", "trace", "objective", "requests", "p95 unmoved", "least", "median", "most", f"within {WITHIN:.0%}"


def moved_p95_s(job: Job) -> tuple[int, NDArray[np.float64]]:
    """How many requests there are, and p95 (steps,) with arrivals moved by more and more of a window."""
    made, profiles = plan_and_profiles(job.plan)
    (measured,) = profiles.values()
    prepared, workload = prepare(made, measured), workload_of(measured, job.trace, seed=0)

    def p95_s(by_ns: int) -> float:
        moved = replace(workload, arrivals_ns=workload.arrivals_ns + by_ns)
        return percentile(prepared.run(moved).latency_s, 0.95)

    return len(workload), np.array([p95_s(k * METER_WINDOW_NS // STEPS) for k in range(STEPS)])


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="traces of a few seconds")
    arguments = parser.parse_args()
    print(describe())
    print_head(f"| {' | '.join(COLUMNS)} |")
    for name, family in families(data_of(arguments), quick=arguments.quick).items():
        with tempfile.TemporaryDirectory() as folder:
            for job in planned(family, Path(folder), most_plans=len(family.latencies_s)):
                requests, p95_s = moved_p95_s(job)
                told = " | ".join(f"{1e3 * s:.1f} ms" for s in (p95_s[0], p95_s.min(), np.median(p95_s), p95_s.max()))
                near = np.mean(np.abs(p95_s[1:] / p95_s[0] - 1) <= WITHIN)
                what = f"{name} | {job.name} | {1e3 * job.latency_s:g} ms | {requests}"
                print(f"| {what} | {told} | {near:.0%} |", flush=True)


if __name__ == "__main__":
    main()
