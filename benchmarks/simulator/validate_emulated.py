"""Simulation against service on emulated devices: plans of two families of models for three traces each, all served.

The claim: p95 within 5 %, the share late within 1 point, over at least 15 plans.  BERTs answer FrugalML's yelp with
certainties as recorded, in batches, within tens of milliseconds; Llamas answer mt_bench's turns one at a time, within
seconds, the largest on two devices; as few as six requests a second do not keep a server busy, so three of the Llamas'
plans are served at once.  Servers have one core, load generators another.  A plan is served again, twice at most, where
the generator did not keep its time; every run is printed.
"""

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import gearshift
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.as_served_here import as_served_here
from benchmarks.shared.imported import DEVICE_KIND, azure_conversations, frugalml, mt_bench
from benchmarks.shared.machine import cores_apart, describe
from benchmarks.shared.tables import print_bar, print_head
from benchmarks.shared.worlds import twitter
from gearshift.errors import Infeasible
from gearshift.hardware import Hardware, identical_devices
from gearshift.objective import Scope
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import write_profile
from gearshift.traces.generate import bursty, steady
from gearshift.verbs.rows.validate import Validation
from gearshift.verbs.validate import validate
from gearshift.workload import Trace

WITHIN, WITHIN_POINTS = 0.05, 0.01
LEAST_PLANS, MOST_TRIES = 15, 3
COLUMNS = (
    *("family", "trace", "objective", "requests", "p95 predicted", "served", "error", "late predicted", "served"),
    *("error", "p50", "p99", "accuracy", "generator p99", "valid", "within"),
)


@dataclass(frozen=True, slots=True)
class Family:
    """Models, the devices they are served on, and the traces and latency objectives they are planned for.

    So many plans are served `at_once`.
    """

    profile: Profile
    hardware: Hardware
    scope: Scope
    traces: dict[str, Trace]
    latencies_s: tuple[float, ...]
    at_once: int


@dataclass(frozen=True, slots=True)
class Job:
    """A plan to serve."""

    name: str
    trace: Trace
    latency_s: float
    plan: Path


def families(data: Path, *, quick: bool) -> dict[str, Family]:
    bert_s, llama_s = (5, 10.0) if quick else (60, 600.0)
    return {
        "bert": Family(
            profile=as_served_here(frugalml(data, "yelp")),
            hardware=identical_devices(4, kind=DEVICE_KIND, memory_bytes=16 << 30),
            scope="every-range",
            traces={
                "twitter": twitter(data, peak_qps=1000, seconds=bert_s),
                "steady": steady(800, bert_s, seed=1),
                "bursty": bursty(200, 1000, bert_s, bursts=3, seed=2),
            },
            latencies_s=(0.05, 0.1, 0.4),
            at_once=1,
        ),
        "llama": Family(
            profile=as_served_here(mt_bench(data)),
            hardware=identical_devices(8, kind=DEVICE_KIND, memory_bytes=32 << 30),
            scope="trace",
            traces={
                "azure": azure_conversations(data, start_s=0.0, seconds=llama_s),
                "steady": steady(6, llama_s, seed=1),
                "bursty": bursty(2, 12, llama_s, bursts=3, seed=2),
            },
            latencies_s=(2.0, 5.0, 10.0),
            at_once=3,
        ),
    }


def planned(family: Family, folder: Path, *, most_plans: int) -> Iterator[Job]:
    """A plan in a folder of its own for each trace and objective; what has no plan is passed over."""
    for name, trace in family.traces.items():
        for latency_s in family.latencies_s[:most_plans]:
            path = folder / f"{name}-{latency_s:g}" / "plan.json"
            write_profile(family.profile, path.parent / "profile")
            try:
                gearshift.plan(
                    path.parent / "profile",
                    trace,
                    devices=family.hardware,
                    latency_s=latency_s,
                    scope=family.scope,
                    out=path,
                )
            except Infeasible as error:
                print(f"no plan for {name} within {latency_s:g} s: {error}", flush=True)
            else:
                yield Job(name, trace, latency_s, path)


def served(job: Job, processes: int) -> list[Validation]:
    """The plan on cores of its own, the generator on another; again where the generator did not keep its time."""
    runs: list[Validation] = []
    while len(runs) < MOST_TRIES and not (runs and runs[-1].replay.valid):
        runs.append(
            validate(
                job.plan,
                job.trace,
                backend="emulated",
                processes=processes,
                longest_s=60.0,
                **cores_apart(),
            )
        )
    return runs


def row(family: str, trace: str, latency_s: float, run: Validation) -> str:
    predicted, measured, errors = run.predicted, run.measured, run.errors
    return " | ".join(
        (
            f"| {family} | {trace}",
            f"{1e3 * latency_s:g} ms | {measured.requests}",
            f"{1e3 * predicted.latency_s.p95:.1f} ms | {1e3 * measured.latency_s.p95:.1f} ms | {errors.p95:+.1%}",
            f"{predicted.share_late:.2%} | {measured.share_late:.2%} | {100 * errors.share_late:+.2f}",
            f"{errors.p50:+.1%} | {errors.p99:+.1%} | {100 * errors.accuracy:+.2f}",
            f"{1e3 * run.replay.lateness.p99_s:.2f} ms | {run.replay.valid}",
            f"{not run.broken(within=WITHIN, within_points=WITHIN_POINTS)} |",
        )
    )


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="a plan for each trace of a few seconds: no measurement")
    parser.add_argument("--families", nargs="*", choices=("bert", "llama"), default=("bert", "llama"))
    parser.add_argument("--processes", type=int, default=1, help="of the load generator")
    arguments = parser.parse_args()
    print(describe())
    print_head(f"| {' | '.join(COLUMNS)} |")
    runs: list[Validation] = []
    known = families(data_of(arguments), quick=arguments.quick)
    for name in arguments.families:
        family = known[name]
        most_plans = 1 if arguments.quick else len(family.latencies_s)
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(family.at_once) as pool:
            jobs = list(planned(family, Path(folder), most_plans=most_plans))
            for job, tries in zip(jobs, pool.map(partial(served, processes=arguments.processes), jobs), strict=True):
                for run in tries:
                    runs.append(run)
                    print(row(name, job.name, job.latency_s, run), flush=True)
    valid = [run for run in runs if run.replay.valid]
    p95 = sum(abs(run.errors.p95) <= WITHIN for run in valid)
    late = sum(abs(run.errors.share_late) <= WITHIN_POINTS for run in valid)
    print(f"the generator kept its time in {len(valid)} of {len(runs)} runs; the others count for nothing:")
    for run in runs:
        if not run.replay.valid:
            print(f"- {run.replay.why_invalid}")
    print_bar(p95 == len(valid) >= LEAST_PLANS, f"p95 within {WITHIN:.0%} with every plan (it is with {p95})")
    bar = f"share late within {100 * WITHIN_POINTS:g} point with every plan (it is with {late})"
    print_bar(late == len(valid) >= LEAST_PLANS, bar)
    if len(valid) < LEAST_PLANS:
        print(f"not a measurement: {len(valid)} plans, fewer than {LEAST_PLANS}")


if __name__ == "__main__":
    main()
