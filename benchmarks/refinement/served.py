"""Simulation against service on emulated devices, of six plans that refine.

The claim: p50 within 10 %, the share answered by time within 3 points, accuracy within 0.3 points.  BERTs answer
FrugalML's samples; the front end is measured here.  The server has one core, the load generator another.  A plan is
served again, twice at most, where the generator did not keep its time; every run is printed.
"""

import argparse
import tempfile
from pathlib import Path

from msgspec import UNSET

import gearshift
from benchmarks.refinement.cells import MEMORY_BYTES
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.as_served_here import as_served_here
from benchmarks.shared.imported import DEVICE_KIND, LARGEST_BATCH, PAIRINGS, frugalml
from benchmarks.shared.machine import cores_apart, describe
from benchmarks.shared.tables import print_bar, print_head
from benchmarks.shared.worlds import twitter
from gearshift.hardware import identical_devices
from gearshift.profiles.store import write_profile
from gearshift.verbs.rows.validate import Validation
from gearshift.verbs.validate import validate
from gearshift.workload import Trace

WITHIN, WITHIN_BY_TIME, WITHIN_ACCURACY = 0.1, 0.03, 0.003
LATENCIES_MS, MOST_TRIES = (50.0, 100.0), 3
COLUMNS = ("set", "p95 asked", "p50 predicted", "served", "error", "by time", "served", "accuracy", "served", "valid")


def planned(asked: argparse.Namespace, dataset: str, latency_ms: float, trace: Trace, folder: Path) -> Path:
    """The plan's path, in a folder with its profile."""
    sizes = tuple(range(1, LARGEST_BATCH + 1))
    write_profile(as_served_here(frugalml(data_of(asked), dataset, sizes=sizes)), folder / "profile")
    gearshift.plan(
        folder / "profile",
        trace,
        planner="refine",
        devices=identical_devices(1, kind=DEVICE_KIND, memory_bytes=MEMORY_BYTES),
        latency_s=latency_ms / 1e3,
        out=folder / "plan.json",
    )
    return folder / "plan.json"


def by_time(share: object) -> float:
    return float(share) if isinstance(share, float) and share is not UNSET else 0.0


def holds(run: Validation) -> bool:
    """Whether all three are within their bounds."""
    errors = run.errors
    return (
        abs(errors.p50) <= WITHIN
        and abs(by_time(errors.share_by_time)) <= WITHIN_BY_TIME
        and abs(errors.accuracy) <= WITHIN_ACCURACY
    )


def print_row(dataset: str, latency_ms: float, run: Validation) -> None:
    predicted, measured = run.predicted, run.measured
    print(
        f"| {dataset} | {latency_ms:g} ms | {1e3 * predicted.latency_s.p50:.1f} | {1e3 * measured.latency_s.p50:.1f} "
        f"| {run.errors.p50:+.1%} | {by_time(predicted.share_by_time):.1%} | {by_time(measured.share_by_time):.1%} "
        f"| {predicted.accuracy:.2%} | {measured.accuracy:.2%} | {run.replay.valid} |",
        flush=True,
    )


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="one plan, for a trace of 5 s: no measurement")
    parser.add_argument("--datasets", nargs="*", default=list(PAIRINGS))
    parser.add_argument("--peak", type=float, default=1000.0, help="requests in the busiest second")
    parser.add_argument("--seconds", type=int, default=60)
    asked = parser.parse_args()
    datasets, latencies_ms, seconds = asked.datasets, LATENCIES_MS, asked.seconds
    if asked.quick:
        datasets, latencies_ms, seconds = datasets[:1], latencies_ms[:1], 5
    trace = twitter(data_of(asked), peak_qps=asked.peak, seconds=seconds)
    print(describe())
    print_head(f"| {' | '.join(COLUMNS)} |")
    held, plans = 0, len(datasets) * len(latencies_ms)
    for dataset in datasets:
        for latency_ms in latencies_ms:
            with tempfile.TemporaryDirectory() as folder:
                plan = planned(asked, dataset, latency_ms, trace, Path(folder))
                for _ in range(MOST_TRIES):
                    run = validate(plan, trace, backend="emulated", longest_s=60.0, **cores_apart())
                    print_row(dataset, latency_ms, run)
                    if run.replay.valid:
                        held += holds(run)
                        break
    print_bar(held == plans, f"p50, share by time and accuracy as simulated, with all of {plans} plans (with {held})")


if __name__ == "__main__":
    main()
