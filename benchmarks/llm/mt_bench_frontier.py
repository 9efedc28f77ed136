"""MT-Bench on two GPUs, planned: score against the time to the first token, for several kinds of plan.

Step times come from `mt_bench_fit.py --out`. Plans are made for the trace that they are judged on,
with the prompts of its requests, as the published ones were; so is the control, whose certainties
are permuted, and the oracle, whose certainties know which answer is better. `--points FILE` keeps
every plan's point as soon as it is made, and goes on with a file that has some;
`benchmarks/llm/mt_bench_chart.py` draws them.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.llm.mt_bench import Fitted, hardware, judged_turns, workload_at
from benchmarks.llm.mt_bench_fit import profile_of
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.tables import print_table
from gearshift.clock import NS_PER_S
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
BAR, OVER_SWITCHING = 7.86, 0.15
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
    profile: LanguageProfile, workload: LanguageWorkload, latency_s: float, options: argparse.Namespace
) -> LanguageRequest:
    return LanguageRequest(
        profile=profile,
        trace=Trace(workload.arrivals_ns, workload.duration_s),
        records=workload.record,
        hardware=hardware(),
        objective=Objective(latency_s=latency_s, metric="ttft", scope="trace"),
        load_unit=options.load_unit,
        most_candidates=options.candidates,
        most_gears=options.gears,
        most_tried=options.tried,
        seed=options.seed,
    )


def judged(plan: GearPlan, profile: LanguageProfile, workload: LanguageWorkload, known: np.ndarray) -> dict[str, float]:
    """The score over turns that have one, and p95 in seconds to the first token and in all."""
    run = simulate_language(engine_tables(plan, profile), profile, workload)
    return {
        "score": 10 * float(run.quality(profile)[known[workload.record]].mean()),
        "p95_s": percentile(run.ttft_ns / NS_PER_S, 0.95),
        "total_p95_s": percentile(run.total_ns / NS_PER_S, 0.95),
    }


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--fitted", type=Path, required=True, help="what mt_bench_fit.py wrote")
    parser.add_argument("--rate", default="0.15", choices=["0.1", "0.125", "0.15"])
    parser.add_argument("--latencies-s", default=str(LIMIT_S), help="times to the first token to plan for")
    parser.add_argument("--kinds", default="", help="kinds of plan, between commas, by default all")
    parser.add_argument("--tried", type=int, default=1000, help="choices that local search tries from each start")
    parser.add_argument("--candidates", type=int, default=48, help="cascades that a plan may use")
    parser.add_argument("--gears", type=int, default=12, help="gears that a plan may have")
    parser.add_argument("--load-unit", default="drain_s", help="drain_s, outstanding_requests or queued_tokens")
    parser.add_argument("--seed", type=int, default=0, help="of the search")
    parser.add_argument("--points", type=Path, help="where to keep the points (JSON)")
    options = parser.parse_args()
    data = data_of(options)
    fitted = {model: Fitted(**one) for model, one in json.loads(options.fitted.read_text()).items()}
    beside_s = max(one.per_request_s for one in fitted.values())
    profile = replace(profile_of(data, fitted), overhead_s=beside_s)
    others = replace(profile_of(data, fitted, certainty_by="3b"), overhead_s=beside_s)
    workload, known = workload_at(data, options.rate), judged_turns(data)
    points: list[dict[str, Any]] = []
    if options.points is not None and options.points.exists():
        points = json.loads(options.points.read_text())
    for latency_s in map(float, options.latencies_s.split(",")):
        for name, planner, of in kinds_of(profile, others):
            if options.kinds and name not in options.kinds.split(","):
                continue
            if any((one["rate"], one["asked_s"], one["kind"]) == (options.rate, latency_s, name) for one in points):
                continue
            point: dict[str, Any] = {"rate": options.rate, "asked_s": latency_s, "kind": name}
            began_s = time.process_time()
            try:
                made = planners.plan(planner, request_of(of, workload, latency_s, options))
                gears = "; ".join(f"{gear.load_range} {gear.cascade}" for gear in made.pipeline.gears)
                point |= judged(made, of, workload, known) | {"gears": gears}
            except Infeasible as error:
                point |= {"refused": str(error)}
            point["planning_cpu_s"] = time.process_time() - began_s
            points.append(point)
            print(*point.values(), flush=True)
            if options.points is not None:
                options.points.write_text(json.dumps(points, indent=1))
    print_table(
        ["asked", "kind", "score", "p95 TTFT, s", "p95 total, s", "planning, CPU s", "gears"],
        [row_of(one) for one in points],
    )
    if not options.kinds and LIMIT_S in map(float, options.latencies_s.split(",")):
        print(bars_of(points))


def row_of(point: dict[str, Any]) -> list[str]:
    told = [f"{point['asked_s']:g} s", point["kind"]]
    if "refused" in point:
        return [*told, "", "", "", f"{point['planning_cpu_s']:.1f}", point["refused"][:60]]
    figures = f"{point['score']:.3f}", f"{point['p95_s']:.3f}", f"{point['total_p95_s']:.1f}"
    return [*told, *figures, f"{point['planning_cpu_s']:.1f}", point["gears"]]


def bars_of(points: list[dict[str, Any]]) -> Bars:
    at = {one["kind"]: one["score"] for one in points if one["asked_s"] == LIMIT_S and "score" in one}
    control = float(np.mean([score for name, score in at.items() if name.startswith("permuted")]))
    bars = Bars()
    bars.at_least("score at p95 TTFT <= 1 s", at["certainty"], BAR)
    bars.at_least("more than model switching", at["certainty"] - at["model switching"], OVER_SWITCHING)
    bars.at_least("more than the permuted control, mean", at["certainty"] - control, 0.0)
    return bars


if __name__ == "__main__":
    main()
