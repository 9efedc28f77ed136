"""The router at the scale of 16 devices: 7,600 requests a second, load generator and server on the same two cores.

BERTs on 16 emulated V100s answer FrugalML's yelp: 60 s of steady Poisson arrivals at 7,600/s, and seconds 254 to 314
of CascadeServe's trace times 95, whose peak is 7,600/s.  One plan, made for the latter trace's 1,200 seconds, serves
both.  The claim: p95 within 5 % of simulation.
"""

import tempfile
from pathlib import Path

import numpy as np

import gearshift
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.as_served_here import as_served_here
from benchmarks.shared.imported import DEVICE_KIND, frugalml
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_head
from gearshift.hardware import identical_devices
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.store import read_profile, write_profile
from gearshift.traces.generate import poisson_arrivals, steady
from gearshift.verbs.rows.validate import Validation
from gearshift.verbs.validate import validate
from gearshift.workload import Trace

WITHIN = 0.05
DEVICES, MEMORY_BYTES = 16, 16 << 30
SCALE, PEAK_QPS = 95, 7_600.0
WINDOW, SECONDS = slice(254, 314), 60.0


def spiky(data: Path, window: slice, *, scale: float) -> Trace:
    """Seconds of CascadeServe's trace, Poisson within each."""
    counts = np.loadtxt(data / "traces" / "twitter_20min_qps.txt")[window] * scale
    return Trace(arrivals_ns=poisson_arrivals(counts, 0), duration_s=float(len(counts)))


def show(name: str, run: Validation) -> None:
    measured, errors, late = run.measured, run.errors, run.replay.lateness
    microseconds = 1e6 * run.replay.effort.processor_s / measured.requests
    print(
        f"| {name} | {measured.requests} | {1e3 * run.predicted.latency_s.p95:.1f} ms "
        f"| {1e3 * measured.latency_s.p95:.1f} ms | {errors.p95:+.1%} | {100 * errors.share_late:+.2f} "
        f"| {measured.share_refused:.2%} | {1e3 * late.p50_s:.2f}, {1e3 * late.p99_s:.2f} ms | {microseconds:.0f} us "
        f"| {run.replay.valid} |",
        flush=True,
    )


def judge(runs: dict[str, Validation], *, whole: bool) -> None:
    """The bar for each trace, and what makes a run no measurement."""
    for name, run in runs.items():
        bar = f"{name}: p95 within {WITHIN:.0%} of simulation (off by {run.errors.p95:+.1%})"
        print_bar(run.replay.valid and not run.broken(within=WITHIN, within_points=None), bar)
        if not run.replay.valid:
            print(f"not a measurement: {run.replay.why_invalid}")
    if not whole:
        print("not a measurement: less than the whole load, or shorter")


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--load", type=float, default=1.0, help="this part of the load; less than 1 to try it out")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each trace")
    parser.add_argument("--p95-ms", type=float, default=100.0, help="the plan's latency objective")
    parser.add_argument("--processes", type=int, default=1, help="of the load generator")
    parser.add_argument("--plan", type=Path, help="keep the plan in this folder, and take it from there next time")
    arguments = parser.parse_args()
    data, load = data_of(arguments), arguments.load
    print(describe())
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.plan or Path(temporary)
        path = folder / "plan.json"
        if not path.exists():
            write_profile(as_served_here(frugalml(data, "yelp")), folder / "profile")
            hardware = identical_devices(DEVICES, kind=DEVICE_KIND, memory_bytes=MEMORY_BYTES)
            whole = spiky(data, slice(None), scale=SCALE)
            gearshift.plan(folder / "profile", whole, devices=hardware, latency_s=arguments.p95_ms / 1e3, out=path)
        accuracy = next(iter(read_plan(path).predictions.values())).accuracy
        print(f"the plan: accuracy {accuracy:.4f}, p95 within {arguments.p95_ms:g} ms")
        profile = read_profile(folder / "profile")
        router_us, lone_us = 1e6 * profile.router_s, 1e6 * profile.front_end_s
        print(f"a request takes the router {router_us:.0f} us while many come, and a lone client {lone_us:.0f} us")
        print_head(
            "| trace | requests | p95 predicted | served | error | late, points | refused "
            "| generator p50, p99 | generator per request | valid |"
        )
        window = slice(WINDOW.start, min(WINDOW.stop, WINDOW.start + round(arguments.seconds)))
        traces = {
            "steady": steady(PEAK_QPS * load, arguments.seconds, seed=1),
            "spiky": spiky(data, window, scale=SCALE * load),
        }
        runs = {}
        for name, trace in traces.items():
            runs[name] = validate(path, trace, backend="emulated", processes=arguments.processes)
            show(name, runs[name])
        judge(runs, whole=load >= 1 and arguments.seconds >= SECONDS)


if __name__ == "__main__":
    main()
