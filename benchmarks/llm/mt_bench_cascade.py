"""Predict runs of cascades on MT-Bench: times of first tokens and of answers, the share kept small, the score.

`--cascade SMALL,LARGE,RATE,THRESHOLDS` may be given several times. THRESHOLDS are on the small
model's certainty at its first token, for loads from 0 on: one number, or `0:0.9/2000:0.4`, which
takes 0.4 from a load of 2,000 queued tokens on. The published runs took the 3b's certainties for
all models, which is the default. Step times come from `mt_bench_fit.py --out`.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.llm.mt_bench import Fitted, judged_turns, plan_of, workload_at
from benchmarks.llm.mt_bench_fit import profile_of
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.tables import print_table
from gearshift.cascade import Cascade
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.result import percentiles
from gearshift.simulator.engines.simulate_language import simulate_language

COLUMNS = ("small", "large", "rate", "thresholds", "ttft_p50_ms", "ttft_p95_ms", "total_p50_ms", "total_p95_ms")


def gears_of(small: str, large: str, thresholds: str) -> list[tuple[float, Cascade]]:
    """(load from which, cascade), by rising load."""
    parts = [part.partition(":") if ":" in part else ("0", ":", part) for part in thresholds.split("/")]
    return [
        (float(load), Cascade(models=(small, large), thresholds=(float(at),), decide_at_tokens=(1,)))
        for load, _, at in parts
    ]


def predicted(profile: LanguageProfile, known: np.ndarray, data: Path, asked: str, unit: str) -> dict[str, float | str]:
    small, large, rate, thresholds = asked.split(",")
    workload = workload_at(data, rate)
    plan = plan_of(profile, (small, large), gears_of(small, large, thresholds), load_unit=unit)  # type: ignore[arg-type]
    run = simulate_language(engine_tables(plan, profile), profile, workload)
    quality = run.quality(profile)
    times = [*percentiles(run.ttft_ns / 1e6, (0.5, 0.95)), *percentiles(run.total_ns / 1e6, (0.5, 0.95))]
    return dict(
        zip(COLUMNS, (small, large, rate, thresholds, *times), strict=True),
        share_small=float((run.model == profile.models.index(small)).mean()),
        score=10 * float(quality[known[workload.record]].mean()),
    )


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--fitted", type=Path, required=True, help="what mt_bench_fit.py wrote")
    parser.add_argument("--cascade", action="append", required=True, help="SMALL,LARGE,RATE,THRESHOLDS")
    parser.add_argument("--certainty", default="3b", help="whose certainties; `own` for each model's")
    parser.add_argument("--load-unit", default="queued_tokens")
    parser.add_argument("--out", type=Path, help="where to write the predictions as JSON")
    options = parser.parse_args()
    data = data_of(options)
    fitted = {model: Fitted(**one) for model, one in json.loads(options.fitted.read_text()).items()}
    by = None if options.certainty == "own" else options.certainty
    beside_s = max(one.per_request_s for one in fitted.values())
    profile = replace(profile_of(data, fitted, certainty_by=by), overhead_s=beside_s)
    known = judged_turns(data)
    rows = [predicted(profile, known, data, asked, options.load_unit) for asked in options.cascade]
    print_table(
        [*COLUMNS, "share small", "score"],
        [[f"{one:.4g}" if isinstance(one, float) else one for one in row.values()] for row in rows],
    )
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
