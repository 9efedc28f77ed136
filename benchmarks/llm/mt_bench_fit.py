"""Fit step times of Llamas on two GPUs to the published percentiles of each model alone, and report the errors.

Answers whose recorded text was cut at about 1,000 tokens may have gone on when they were served:
with `--longer 1,2,2.4` how many times as long they were is one more number, the same for all models.

`--leave-out` predicts each run of the 70b from the other rate alone: only that model was run at two
rates, so it is the only one whose errors are of a run that was not seen. `--out FILE` writes what
was fitted, for the other scripts.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import differential_evolution

from benchmarks.llm.mt_bench import (
    MODELS,
    Fitted,
    answers_of,
    engine_of,
    plan_of,
    single_runs,
    workload_at,
)
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.tables import print_table
from gearshift.cascade import Cascade
from gearshift.language_workload import LanguageWorkload
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.result import percentile
from gearshift.simulator.engines.simulate_language import simulate_language

FIGURES = ("ttft_p50_ms", "ttft_p95_ms", "total_p50_ms", "total_p95_ms")
BOUNDS = [(-2.0, 1.5), (-1.5, 1.5), (-7.0, 1.0), (-1.0, 4.5)]
"""Logarithms: both scales, and the milliseconds for each request in a step and beside the engine."""
ROUNDS = 20
KINDS = ((512, "mixed"), (2048, "mixed"), (2048, "prefill_first"))

Kind = tuple[int, str, float]
"""Tokens of the largest step, the scheduler, and `Fitted.longer`."""

WEIGHTS = {"ttft_p50_ms": 1.0, "ttft_p95_ms": 2.0, "total_p50_ms": 1.0, "total_p95_ms": 1.0}


def profile_of(data: Path, fitted: dict[str, Fitted], *, certainty_by: str | None = None) -> LanguageProfile:
    models = tuple(model for model in MODELS if model in fitted)
    return LanguageProfile(
        operator="chat",
        engines=tuple(engine_of(data, model, fitted[model]) for model in models),
        answers=answers_of(
            data, certainty_by=certainty_by, models=models, longer={model: fitted[model].longer for model in models}
        ),
        ranks=models,
    )


def figures_of(data: Path, model: str, fitted: Fitted, workload: LanguageWorkload) -> dict[str, float]:
    """Percentiles in ms of the model alone."""
    profile = profile_of(data, {model: fitted})
    plan = plan_of(profile, (model,), [(0.0, Cascade(models=(model,)))])
    run = simulate_language(engine_tables(plan, profile), profile, workload)
    beside_ms = 1e3 * fitted.per_request_s
    ttft_ms, total_ms = run.ttft_ns / 1e6 + beside_ms, run.total_ns / 1e6 + beside_ms
    times = (ttft_ms, ttft_ms, total_ms, total_ms)
    return {name: percentile(ms, 0.5 if "p50" in name else 0.95) for name, ms in zip(FIGURES, times, strict=True)}


def fit(data: Path, model: str, runs: Sequence[dict[str, str]], kind: Kind) -> tuple[float, Fitted]:
    """The least squared logarithmic errors with an engine of a kind, and what has them."""
    workloads = [workload_at(data, run["rate_scale"]) for run in runs]

    def fitted_of(x: np.ndarray) -> Fitted:
        prefill, decode, running_ms, beside_ms = np.exp(x).tolist()
        return Fitted(prefill, decode, running_ms / 1e3, beside_ms / 1e3, *kind)

    def error(x: np.ndarray) -> float:
        squared = 0.0
        for run, workload in zip(runs, workloads, strict=True):
            found = figures_of(data, model, fitted_of(x), workload)
            squared += sum(w * np.log(found[name] / float(run[name])) ** 2 for name, w in WEIGHTS.items())
        return squared

    found = differential_evolution(error, BOUNDS, maxiter=ROUNDS, popsize=8, seed=0, tol=1e-6, polish=False)
    return float(found.fun), fitted_of(found.x)


def best_kind(data: Path, runs: Sequence[dict[str, str]], longer: Sequence[float]) -> tuple[Kind, dict[str, Fitted]]:
    """The kind of engine with the least errors of all models together, as all were served by one software."""
    tried: list[tuple[float, Kind, dict[str, Fitted]]] = []
    for kind in ((*engine, times) for times in longer for engine in KINDS):
        each = {model: fit(data, model, [run for run in runs if run["model"] == model], kind) for model in MODELS}
        tried.append((sum(error for error, _ in each.values()), kind, {model: one for model, (_, one) in each.items()}))
        print(
            f"{kind}: squared errors {', '.join(f'{model} {error:.3f}' for model, (error, _) in each.items())}",
            flush=True,
        )
    _, kind, found = min(tried, key=lambda one: one[0])
    return kind, found


def rows_of(data: Path, run: dict[str, str], fitted: Fitted) -> list[str]:
    found = figures_of(data, run["model"], fitted, workload_at(data, run["rate_scale"]))
    return [f"{100 * (found[name] / float(run[name]) - 1):+.1f}" for name in FIGURES]


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--leave-out", action="store_true", help="predict each rate of the 70b from the other")
    parser.add_argument("--longer", default="1", help="values of `Fitted.longer` to try, between commas")
    parser.add_argument("--out", type=Path, help="where to write what was fitted")
    options = parser.parse_args()
    data, rows = data_of(options), []
    runs = single_runs(data)
    longer = [float(each) for each in options.longer.split(",")]
    kind, found = best_kind(data, runs, longer)
    for model, fitted in found.items():
        mine = [run for run in runs if run["model"] == model]
        print(f"{model}: {fitted}", flush=True)
        rows += [[model, run["rate_scale"], "all", *rows_of(data, run, fitted)] for run in mine]
        for run in mine if options.leave_out and len(mine) > 1 else []:
            _, others = fit(data, model, [one for one in mine if one is not run], kind)
            rows.append([model, run["rate_scale"], "the other", *rows_of(data, run, others)])
    print_table(["model", "rate", "fitted on", *(f"{name} %" for name in FIGURES)], rows)
    if options.out is not None:
        options.out.write_text(json.dumps({model: vars(one) for model, one in found.items()}, indent=1))


if __name__ == "__main__":
    main()
