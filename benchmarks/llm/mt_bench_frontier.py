"""MT-Bench on two GPUs, planned: score against the time to the first token, for several kinds of plan.

Step times come from `mt_bench_fit.py --out`. Plans are made for the trace that they are judged on,
with the prompts of its requests, as the published ones were, but not with their ids, which split
requests by share: a plan is judged on other ids than it was made for. So are the control, whose
certainties are permuted, and the oracle, whose certainties know which answer is better. Each kind is
planned for all limits in turn, as each search begins with the plans for tighter ones.
`--points FILE` keeps every plan's point as soon as it is made. With a file that has some, a kind that
lacks a limit is planned anew for all, as its plans begin with those for tighter limits;
`benchmarks/llm/mt_bench_chart.py` draws them.
"""

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.llm.mt_bench import Fitted, by_category, hardware, judged_turns, workload_at
from benchmarks.llm.mt_bench_fit import profile_of
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.tables import print_table
from gearshift.clock import NS_PER_S
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.language_workload import LanguageWorkload, numbers_by_id
from gearshift.objective import Objective
from gearshift.planner.contract.planner import Search
from gearshift.planner.language.compared.compare import permuted
from gearshift.planner.language.planners import LanguagePlanner
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.language.search import LanguageSearch
from gearshift.planner.planners import named
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.result import percentile
from gearshift.simulator.engines.simulate_language import simulate_language
from gearshift.workload import Trace

LIMIT_S = 1.0
BAR, OVER_SWITCHING = 7.86, 0.15
IDS, OTHER_IDS = 20, 500_000
"""Draws of ids that a plan is judged on, and the first of their seeds."""
CONTROLS = 3
"""Permutations: the control's score is their mean."""

Kind = tuple[str, str, LanguageProfile]


def kinds_of(profile: LanguageProfile, others: LanguageProfile, known: np.ndarray) -> list[Kind]:
    """(name, planner, profile) of every kind of plan; `others` has the 3b's certainties for all models."""
    shares = replace(profile, ranks=())
    return [
        ("certainty", "optimal", profile),
        ("certainty of the 3b for all", "optimal", others),
        ("category of the prompt", "optimal", by_category(profile, known)),
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
    """The score over turns that have one, and p95 in seconds to the first token and in all, over `IDS` draws of ids."""
    tables, scores, first_s, total_s = engine_tables(plan, profile), [], [], []
    for seed in range(IDS):
        drawn = replace(workload, by_id=numbers_by_id(len(workload), OTHER_IDS + seed))
        run = simulate_language(tables, profile, drawn)
        scores.append(10 * float(run.quality(profile)[known[workload.record]].mean()))
        first_s.append(run.ttft_ns / NS_PER_S)
        total_s.append(run.total_ns / NS_PER_S)
    return {
        "score": float(np.mean(scores)),
        "score_spread": float(np.std(scores)),
        "p95_s": percentile(np.concatenate(first_s), 0.95),
        "worst_p95_s": max(percentile(each, 0.95) for each in first_s),
        "total_p95_s": percentile(np.concatenate(total_s), 0.95),
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
    limits_s = sorted(map(float, options.latencies_s.split(",")))
    for name, planner, of in kinds_of(profile, others, known):
        if options.kinds and name not in options.kinds.split(","):
            continue
        if has_all(points, options.rate, name, limits_s):
            continue
        points = without(points, options.rate, name, limits_s)
        plans = plans_within(planner, request_of(of, workload, limits_s[0], options), limits_s)
        for latency_s in limits_s:
            began_s = time.process_time()
            made = next(plans)
            point: dict[str, Any] = {"rate": options.rate, "asked_s": latency_s, "kind": name}
            point["planning_cpu_s"] = time.process_time() - began_s
            if isinstance(made, Infeasible):
                point |= {"refused": str(made)}
            else:
                gears = "; ".join(f"{gear.load_range} {gear.cascade}" for gear in made.pipeline.gears)
                point |= judged(made, of, workload, known) | {"gears": gears}
            points.append(point)
            print(*point.values(), flush=True)
            if options.points is not None:
                options.points.write_text(json.dumps(points, indent=1))
    print_table(
        ["asked", "kind", "score", "spread", "p95 TTFT, s", "worst", "p95 total, s", "planning, CPU s", "gears"],
        [row_of(one) for one in points],
    )
    if not options.kinds and LIMIT_S in map(float, options.latencies_s.split(",")):
        print(bars_of(points))


def oracle(profile: LanguageProfile) -> LanguageProfile:
    """The profile with certainties that know by how much every later model would be better.

    Models are later where their mean quality is higher. No certainty can rank better than this does.
    """
    answers = profile.answers
    mean = answers.quality.mean(axis=1)
    certainty = answers.certainty.copy()
    for model in range(len(answers.models)):
        later = [other for other in range(len(answers.models)) if mean[other] > mean[model]]
        if later:
            gain = answers.quality[later].mean(axis=0) - answers.quality[model]
            certainty[model] = -gain[:, None]
    return replace(profile, answers=replace(answers, certainty=certainty), ranks=answers.models, ranks_at=())


def plans_within(name: str, request: LanguageRequest, latencies_s: Iterable[float]) -> Iterator[GearPlan | Infeasible]:
    """The best plan within each latency, by rising latency; each search begins with what those before found."""
    planner: LanguagePlanner = named(name, "tokens")  # type: ignore[assignment]
    known: LanguageSearch | None = None

    def search_for(
        asked: LanguageRequest, so_far: Search[LanguageRequest], *, single_models: bool = False
    ) -> LanguageSearch:
        nonlocal known
        if known is None:
            known = LanguageSearch(asked, so_far, single_models=single_models)
        return known

    for latency_s in sorted(latencies_s):
        objective = msgspec.structs.replace(request.objective, latency_s=latency_s)
        try:
            yield planner.with_searches(search_for).plan(replace(request, objective=objective))
        except Infeasible as error:
            yield error


def has_all(points: list[dict[str, Any]], rate: str, kind: str, limits_s: list[float]) -> bool:
    return set(limits_s) <= {one["asked_s"] for one in points if (one["rate"], one["kind"]) == (rate, kind)}


def without(points: list[dict[str, Any]], rate: str, kind: str, limits_s: list[float]) -> list[dict[str, Any]]:
    """Points but for those of a kind at these limits."""
    return [one for one in points if (one["rate"], one["kind"]) != (rate, kind) or one["asked_s"] not in limits_s]


def row_of(point: dict[str, Any]) -> list[str]:
    told = [f"{point['asked_s']:g} s", point["kind"]]
    if "refused" in point:
        return [*told, "", "", "", "", "", f"{point['planning_cpu_s']:.1f}", point["refused"][:60]]
    figures = [f"{point[name]:.3f}" for name in ("score", "score_spread", "p95_s", "worst_p95_s")]
    return [*told, *figures, f"{point['total_p95_s']:.1f}", f"{point['planning_cpu_s']:.1f}", point["gears"]]


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
