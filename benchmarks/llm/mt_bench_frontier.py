"""MT-Bench on two GPUs, planned: score against the time to the first token, for several kinds of plan.

Step times come from `mt_bench_fit.py --out`. Plans are made for the trace that they are judged on,
with the prompts of its requests, as the published ones were; so is the control, whose certainties
are permuted, and the oracle, whose certainties know which answer is better. `--chart FILE` writes
the frontier with the published runs of each model alone.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.llm.mt_bench import Fitted, hardware, judged_turns, single_runs, workload_at
from benchmarks.llm.mt_bench_fit import profile_of
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.tables import print_table
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.language_workload import LanguageWorkload
from gearshift.objective import Objective
from gearshift.planner.language import planners
from gearshift.planner.language.compared.control import oracle, permuted
from gearshift.planner.language.request import LanguageRequest
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.result import percentile
from gearshift.simulator.engines.simulate_language import simulate_language
from gearshift.workload import Trace

LIMIT_S = 1.0
LATENCIES_S = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
BAR, OVER_SWITCHING = 7.86, 0.15
PUBLISHED_AT_LIMIT = {"published certainty": 7.87, "permuted": 7.79, "switching": 7.66, "oracle": 8.16}
CONTROLS = 3
"""Permutations: the control's score is their mean."""

Kind = tuple[str, str, LanguageProfile]


def kinds_of(profile: LanguageProfile, others: LanguageProfile) -> list[Kind]:
    """(name, planner, profile) of every kind of plan; `others` has the 3b's certainties for all models."""
    shares = replace(profile, ranks=())
    return [
        ("certainty", "optimal", profile),
        ("certainty of the 3b for all", "optimal", others),
        ("shares alone", "optimal", shares),
        *((f"permuted {seed}", "optimal", permuted(profile, seed=seed)) for seed in range(CONTROLS)),
        ("model switching", "model-switching", profile),
        ("one cascade", "static-cascade", profile),
        ("walk (Ken)", "frontier", profile),
        ("oracle", "optimal", oracle(profile)),
    ]


def request_of(
    profile: LanguageProfile, workload: LanguageWorkload, latency_s: float, tried: int = 1000
) -> LanguageRequest:
    return LanguageRequest(
        profile=profile,
        trace=Trace(workload.arrivals_ns, workload.duration_s),
        records=workload.record,
        hardware=hardware(),
        objective=Objective(latency_s=latency_s, metric="ttft", scope="trace"),
        most_candidates=48,
        most_tried=tried,
    )


def judged(
    plan: GearPlan, profile: LanguageProfile, workload: LanguageWorkload, known: np.ndarray
) -> tuple[float, float]:
    """The score over turns that have one, and p95 TTFT in seconds."""
    run = simulate_language(engine_tables(plan, profile), profile, workload)
    counted = known[workload.record]
    quality = run.quality(profile)
    return 10 * float(quality[counted].mean()), percentile(run.ttft_ns / 1e9, 0.95)


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--fitted", type=Path, required=True, help="what mt_bench_fit.py wrote")
    parser.add_argument("--rate", default="0.15", choices=["0.1", "0.125", "0.15"])
    parser.add_argument("--latencies-s", default=str(LIMIT_S), help="times to the first token to plan for")
    parser.add_argument("--kinds", default="", help="kinds of plan, between commas, by default all")
    parser.add_argument("--tried", type=int, default=1000, help="choices that local search tries from each start")
    parser.add_argument("--chart", type=Path, help="where to draw the frontier (SVG)")
    options = parser.parse_args()
    data = data_of(options)
    fitted = {model: Fitted(**one) for model, one in json.loads(options.fitted.read_text()).items()}
    beside_s = max(one.per_request_s for one in fitted.values())
    profile = replace(profile_of(data, fitted), overhead_s=beside_s)
    others = replace(profile_of(data, fitted, certainty_by="3b"), overhead_s=beside_s)
    workload, known = workload_at(data, options.rate), judged_turns(data)
    rows, points = [], dict[str, list[tuple[float, float]]]()
    for latency_s in map(float, options.latencies_s.split(",")):
        for name, planner, of in kinds_of(profile, others):
            if options.kinds and name not in options.kinds.split(","):
                continue
            try:
                made = planners.plan(planner, request_of(of, workload, latency_s, options.tried))
            except Infeasible as error:
                rows.append([f"{latency_s:g} s", name, "", "", str(error)[:60]])
                continue
            score, p95_s = judged(made, of, workload, known)
            points.setdefault(name.split(" ")[0] if name.startswith("permuted") else name, []).append((p95_s, score))
            gears = "; ".join(f"{gear.load_range} {gear.cascade}" for gear in made.pipeline.gears)
            rows.append([f"{latency_s:g} s", name, f"{score:.3f}", f"{p95_s:.3f}", gears])
            print(*rows[-1], flush=True)
    print_table(["asked", "kind", "score", "p95 TTFT, s", "gears"], rows)
    if not options.kinds and LIMIT_S in map(float, options.latencies_s.split(",")):
        print(bars_of(rows))
    if options.chart is not None:
        draw(options.chart, points, data, options.rate)


def bars_of(rows: list[list[str]]) -> Bars:
    at = {row[1]: float(row[2]) for row in rows if row[0] == f"{LIMIT_S:g} s" and row[2]}
    control = float(np.mean([score for name, score in at.items() if name.startswith("permuted")]))
    bars = Bars()
    bars.at_least("score at p95 TTFT <= 1 s", at["certainty"], BAR)
    bars.at_least("more than model switching", at["certainty"] - at["model switching"], OVER_SWITCHING)
    bars.at_least("more than the permuted control, mean", at["certainty"] - control, 0.0)
    return bars


def draw(path: Path, points: dict[str, list[tuple[float, float]]], data: Path, rate: str) -> None:
    """Score over p95 TTFT on a logarithmic axis, with the published runs of each model alone at this rate."""
    published = [
        (float(run["ttft_p95_ms"]) / 1e3, float(run["score"])) for run in single_runs(data) if run["rate_scale"] == rate
    ]
    path.write_text(
        svg_of({**{name: sorted(each) for name, each in points.items()}, "published, alone": sorted(published)})
    )


def svg_of(series: dict[str, list[tuple[float, float]]]) -> str:
    colours = ("#1b6ca8", "#7aa6c2", "#2a9d8f", "#999999", "#e76f51", "#f4a261", "#8d6a9f", "#222222", "#000000")
    left, top, width, height = 60, 20, 620, 380
    x = [np.log10(at) for each in series.values() for at, _ in each]
    y = [score for each in series.values() for _, score in each]
    x0, x1, y0, y1 = min(x) - 0.05, max(x) + 0.05, min(y) - 0.1, max(y) + 0.1

    def place(at: float, score: float) -> tuple[float, float]:
        return left + width * (np.log10(at) - x0) / (x1 - x0), top + height * (1 - (score - y0) / (y1 - y0))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 260}" height="{height + 70}" '
        'font-family="sans-serif" font-size="12">'
    ]
    for score in np.arange(np.ceil(y0 * 2) / 2, y1, 0.5):
        _, at_y = place(10**x0, score)
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{at_y:.1f}" y2="{at_y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{at_y + 4:.1f}" text-anchor="end">{score:.1f}</text>')
    for at in (0.05, 0.1, 0.2, 0.5, 1, 2, 5):
        if x0 <= np.log10(at) <= x1:
            at_x, _ = place(at, y0)
            parts.append(f'<line x1="{at_x:.1f}" x2="{at_x:.1f}" y1="{top}" y2="{top + height}" stroke="#eee"/>')
            parts.append(f'<text x="{at_x:.1f}" y="{top + height + 18}" text-anchor="middle">{at:g}</text>')
    parts.append(f'<text x="{left + width / 2}" y="{top + height + 40}" text-anchor="middle">p95 TTFT, s</text>')
    parts.append(f'<text x="14" y="{top - 6}">MT-Bench score</text>')
    for i, (name, each) in enumerate(series.items()):
        colour = colours[i % len(colours)]
        placed = [place(at, score) for at, score in each]
        if not name.startswith("published"):
            line = " ".join(f"{a:.1f},{b:.1f}" for a, b in placed)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}"/>' for a, b in placed]
        parts.append(f'<rect x="{left + width + 20}" y="{top + 20 * i}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{left + width + 38}" y="{top + 20 * i + 10}">{name}</text>')
    return "\n".join([*parts, "</svg>"])


if __name__ == "__main__":
    main()
