"""Plans of MT-Bench made for other traffic than they serve (Ken's Figures 11 and 12), in simulation.

    python -m benchmarks.llm.mt_bench_misjudged --data DIR --fitted fitted.json

What is served are Poisson arrivals at `--served-qps` for three minutes, with prompts of all turns.
Plans are made for that (the oracle), for fewer or more arrivals (Figure 11), and for the shorter or
the longer half of the prompts alone (Figure 12).
Step times come from `mt_bench_fit.py --out`.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.llm.mt_bench import PROMPTS, Fitted, hardware, judged_turns
from benchmarks.llm.mt_bench_fit import profile_of
from benchmarks.llm.mt_bench_frontier import judged
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.tables import print_table
from gearshift.clock import NS_PER_S
from gearshift.errors import Infeasible
from gearshift.language_workload import LanguageWorkload, numbers_by_id
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.language.request import LanguageRequest
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.workload import Trace

DURATION_S = 180.0


def poisson(rate_qps: float, prompts: np.ndarray, *, seed: int, duration_s: float = DURATION_S) -> LanguageWorkload:
    """Poisson arrivals with prompts drawn from `prompts` (m,)."""
    draw = np.random.default_rng([seed, 0x4B])
    n = int(draw.poisson(rate_qps * duration_s))
    return LanguageWorkload(
        arrivals_ns=np.sort(draw.integers(0, int(duration_s * NS_PER_S), n)),
        record=draw.choice(prompts, n).astype(np.int32),
        by_id=numbers_by_id(n, seed),
        duration_s=duration_s,
    )


def cases_of(served_qps: float, prompt_tokens: np.ndarray) -> dict[str, LanguageWorkload]:
    """What plans are made for, by name; the first is as what is served, with other draws."""
    every = np.arange(PROMPTS)
    short = prompt_tokens < np.median(prompt_tokens)
    return {
        "as served": poisson(served_qps, every, seed=1),
        "half as many requests": poisson(served_qps / 2, every, seed=2),
        "one and a half times as many": poisson(1.5 * served_qps, every, seed=3),
        "short prompts alone": poisson(served_qps, every[short], seed=4),
        "long prompts alone": poisson(served_qps, every[~short], seed=5),
    }


def request_of(profile: LanguageProfile, workload: LanguageWorkload, latency_s: float, tried: int) -> LanguageRequest:
    return LanguageRequest(
        profile=profile,
        trace=Trace(workload.arrivals_ns, workload.duration_s),
        records=workload.record,
        hardware=hardware(),
        objective=Objective(latency_s=latency_s, metric="ttft", scope="trace"),
        most_candidates=48,
        most_tried=tried,
    )


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--fitted", type=Path, required=True, help="what mt_bench_fit.py wrote")
    parser.add_argument("--served-qps", type=float, default=2.5)
    parser.add_argument("--latencies-s", default="0.5,1,2")
    parser.add_argument("--tried", type=int, default=200)
    parser.add_argument("--out", type=Path, help="where to keep the rows (JSON)")
    options = parser.parse_args()
    data = data_of(options)
    fitted = {model: Fitted(**one) for model, one in json.loads(options.fitted.read_text()).items()}
    profile = replace(profile_of(data, fitted), overhead_s=max(one.per_request_s for one in fitted.values()))
    served, known = poisson(options.served_qps, np.arange(PROMPTS), seed=0), judged_turns(data)
    rows = []
    for latency_s in map(float, options.latencies_s.split(",")):
        for name, expected in cases_of(options.served_qps, profile.answers.prompt_tokens[0]).items():
            row = [f"{latency_s:g} s", name]
            try:
                made = planners.plan("optimal", request_of(profile, expected, latency_s, options.tried))
                found = judged(made, profile, served, known)
                row += [f"{found['score']:.3f}", f"{found['p95_s']:.3f}", f"{found['total_p95_s']:.1f}"]
            except Infeasible as error:
                row += [str(error)[:60], "", ""]
            rows.append(row)
            print(*row, flush=True)
            if options.out is not None:
                options.out.write_text(json.dumps(rows, indent=1))
    print_table(["asked", "planned for", "score", "p95 TTFT, s", "p95 total, s"], rows)


if __name__ == "__main__":
    main()
