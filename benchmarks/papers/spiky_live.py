"""Spikes on the live system (CascadeServe's Figures 8 and 9): who keeps its objective, and what it gives up.

Emulated V100s, a real server on one core and a real load generator on another.  The trace is our own: a low load with
two spikes, the second beyond what the largest model could carry on all devices that it is given.

- BERTs within a p95 of 400 ms: ours on 1 and 2 devices, model switching on 3, dynamic batching (the largest model
  alone) on 4;
- Llamas, one request at a time, with a quality of at least `QUALITY`: ours on 4 and 6 devices, model switching on 8,
  the largest model alone on 16.

The BERTs are planned for `PLANNED` of the latency objective: what a spike leaves behind on full devices decides the
p95, and the same requests a few milliseconds earlier, so in another phase of the meter, change that by two fifths.

p95 and accuracy are measured over windows of `WINDOW_S` that a request is due in; the worst window is in the table and
all are in the chart.  Late counts requests beyond the latency objective, where there is one.

Where server and generator cannot carry the BERTs' higher spike, 4,500 requests/s, `--slower 3` has it of a third: on
devices that take three times as long, with a third of the load.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.as_served_here import as_served_here
from benchmarks.shared.imported import DEVICE_KIND, frugalml, mt_bench
from benchmarks.shared.machine import cores_apart, describe
from benchmarks.shared.tables import print_head
from gearshift.errors import Infeasible
from gearshift.hardware import identical_devices
from gearshift.load_generator.targets import MOST_CONNECTIONS
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.evaluate.assemble import with_objective
from gearshift.planner.search import optimal
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import write_profile
from gearshift.traces.generate import poisson_arrivals
from gearshift.verbs.planning.operator import plan_request
from gearshift.verbs.rows.validate import Validation
from gearshift.verbs.validate import validate
from gearshift.workload import Trace

LATENCY_S = 0.4
PLANNED = 0.75
QUALITY = 0.72
WINDOW_S = 5.0
ALONE = "dynamic batching"
COLUMNS = (
    *("system", "devices", "requests", "p95", "worst window", "late", "refused", "accuracy", "worst window"),
    *("p95 predicted", "generator valid"),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """Models, an objective, a trace, and which planners serve it on how many devices."""

    name: str
    profile: Profile
    objective: Objective
    trace: Trace
    memory_bytes: int
    systems: tuple[tuple[str, int], ...]


def spiky(low_qps: float, spikes_qps: tuple[float, float], seconds: int, seed: int) -> Trace:
    """A low load, with a spike of a tenth of the time after a third, and a higher one after two thirds."""
    rates = np.full(seconds, low_qps)
    for third, spike_qps in enumerate(spikes_qps, start=1):
        begin = third * seconds // 3
        rates[begin : begin + seconds // 10] = spike_qps
    return Trace(arrivals_ns=poisson_arrivals(rates, seed), duration_s=float(seconds))


def slowed(profile: Profile, factor: float) -> Profile:
    """The profile on devices that take `factor` times as long."""
    curves = (
        msgspec.structs.replace(
            curve,
            median_s=tuple(factor * s for s in curve.median_s),
            p95_s=tuple(factor * s for s in curve.p95_s),
        )
        for curve in profile.curves
    )
    return replace(profile, curves=tuple(curves))


def figures(data: Path, *, seconds: int, slower: float) -> tuple[Figure, Figure]:
    return (
        Figure(
            name="8",
            profile=as_served_here(slowed(frugalml(data, "yelp"), slower)),
            objective=Objective(latency_s=LATENCY_S, scope="trace"),
            trace=spiky(400 / slower, (1_500 / slower, 4_500 / slower), seconds, seed=8),
            memory_bytes=16 << 30,
            systems=(("optimal", 1), ("optimal", 2), ("model-switching", 3), (ALONE, 4)),
        ),
        Figure(
            name="9",
            profile=as_served_here(mt_bench(data)),
            objective=Objective(accuracy=QUALITY, scope="trace"),
            trace=spiky(1.0, (3.0, 8.0), 2 * seconds, seed=9),
            memory_bytes=32 << 30,
            systems=(("optimal", 4), ("optimal", 6), ("model-switching", 8), (ALONE, 16)),
        ),
    )


def served(figure: Figure, planner: str, devices: int) -> Validation:
    """The planner's plan for the trace, served live."""
    hardware = identical_devices(devices, kind=DEVICE_KIND, memory_bytes=figure.memory_bytes)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        profile = write_profile(figure.profile, folder / "profile")
        objective = figure.objective
        request = plan_request(
            folder / "profile",
            figure.trace,
            devices=hardware,
            latency_s=None if objective.latency_s is None else PLANNED * objective.latency_s,
            accuracy=objective.accuracy,
            scope=objective.scope,
            out=folder / "plan.json",
        )
        if planner == ALONE:
            largest = max(profile.curves, key=lambda curve: curve.median_s[0])
            made = optimal.single_model_plan(request, largest.model)
        else:
            made = planners.plan(planner, request)
        if objective.latency_s is not None:
            made = with_objective(made, objective)
        write_plan(made, folder / "plan.json")
        return validate(
            folder / "plan.json",
            figure.trace,
            backend="emulated",
            profile=folder / "profile",
            longest_s=120.0,
            connections=MOST_CONNECTIONS,  # who is overloaded has thousands of requests under way
            **cores_apart(),
        )


def windows(run: Validation) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Middles (windows,) in seconds, the p95 in seconds and the accuracy of requests due within; NaN without any."""
    log = run.replay.log
    which = (log.due_s // WINDOW_S).astype(int)
    middles = (np.arange(which.max() + 1) + 0.5) * WINDOW_S
    answered = [log.answered & (which == w) for w in range(len(middles))]
    p95_s = [np.percentile(log.latency_s[m], 95, method="inverted_cdf") if m.any() else np.nan for m in answered]
    accuracy = [log.quality[m].mean() if m.any() else np.nan for m in answered]
    return middles, np.array(p95_s), np.array(accuracy)


def row(planner: str, devices: int, run: Validation) -> str:
    log = run.replay.log
    _, p95_s, accuracy = windows(run)
    cells = (
        planner,
        str(devices),
        f"{len(log)}",
        f"{1e3 * run.measured.latency_s.p95:.0f} ms",
        f"{1e3 * np.nanmax(p95_s):.0f} ms",
        f"{run.measured.share_late:.2%}",
        f"{run.measured.share_refused:.2%}",
        f"{run.measured.accuracy:.4f}",
        f"{np.nanmin(accuracy):.4f}",
        f"{1e3 * run.predicted.latency_s.p95:.0f} ms",
        str(run.replay.valid),
    )
    return f"| {' | '.join(cells)} |"


def drawn(figure: Figure, runs: dict[str, Validation]) -> go.Figure:
    """Load, p95 and accuracy over time, one line for each system."""
    chart = make_subplots(rows=3, shared_xaxes=True, subplot_titles=("requests/s", "p95, s", "accuracy"))
    counts = np.bincount((figure.trace.arrivals_ns // 10**9).astype(int))
    chart.add_scatter(y=counts, name="load", row=1, col=1)
    for name, run in runs.items():
        middles, p95_s, accuracy = windows(run)
        chart.add_scatter(x=middles, y=p95_s, name=name, row=2, col=1)
        chart.add_scatter(x=middles, y=accuracy, name=name, row=3, col=1, showlegend=False)
    chart.update_yaxes(type="log", row=2, col=1)
    chart.update_layout(title=f"CascadeServe's Figure {figure.name}, redrawn", height=900)
    return chart


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--seconds", type=int, default=90, help="of the BERTs' trace; the Llamas' is twice as long")
    parser.add_argument("--slower", type=float, default=1.0, help="have the BERTs' devices so many times as slow")
    parser.add_argument("--only", choices=("8", "9"), help="redraw this figure alone")
    parser.add_argument("--out", type=Path, help="write the charts into this folder")
    arguments = parser.parse_args()
    print(describe())
    for figure in figures(data_of(arguments), seconds=arguments.seconds, slower=arguments.slower):
        if arguments.only not in (None, figure.name):
            continue
        print_head(f"\nFigure {figure.name}\n\n| {' | '.join(COLUMNS)} |")
        runs: dict[str, Validation] = {}
        for planner, devices in figure.systems:
            try:
                run = served(figure, planner, devices)
            except Infeasible as error:
                print(f"| {planner} | {devices} | no plan: {error} |", flush=True)
                continue
            runs[f"{planner}, {devices} devices"] = run
            print(row(planner, devices, run), flush=True)
        if arguments.out is not None:
            arguments.out.mkdir(parents=True, exist_ok=True)
            drawn(figure, runs).write_html(arguments.out / f"figure_{figure.name}.html")


if __name__ == "__main__":
    main()
