"""Recorded runs of vLLM on L40S GPUs, predicted by steps: time to the first token, and in all.

What the step curves lack is fitted on the cases with batches of up to 512 tokens. `--leave-out` fits without the case
that is judged, so that the errors are of runs that were not seen. The cases of batch 1024 have no measurements here:
`--predict FILE` writes what is expected of them.
"""

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.llm.fitting import RecordedSpan, fit_added
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.engine_runs import EngineRun, run_by_steps
from benchmarks.shared.tables import print_table
from gearshift.clock import NS_PER_S
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve, curve_from_rows

FITTED, PREDICTED = "batch512", "batch1024"


def step_curve(intervals: Mapping[str, Mapping[str, float]]) -> StepCurve:
    """The recording's lines, one for the tokens in each half-open interval, as points."""
    rows: dict[int, float] = {}
    for name, line in intervals.items():
        first, last = ast.literal_eval(name)
        for tokens in range(first + 1, last + 1):
            rows[tokens] = line["intercept"] + line["slope"] * tokens
    return curve_from_rows(list(rows.items()))


def engine_profile(name: str, recorded: Mapping[str, Any]) -> EngineProfile:
    return EngineProfile(
        model=name,
        device_kind="L40S",
        prefill=step_curve(recorded["no_cuda_profile"]["intervals"]),
        decode=step_curve(recorded["cuda_profile"]["intervals"]),
        block_tokens=recorded["block_size"],
        kv_blocks=recorded["num_gpu_blocks"],
        watermark_blocks=recorded["num_watermark_blocks"],
        largest_batched_tokens=recorded["max_num_batched_tokens"],
        largest_running=recorded["max_num_seqs"],
        prefill_gives_token=False,
    )


def run(profile: EngineProfile, case: Mapping[str, Any]) -> EngineRun:
    arrives_in = np.repeat(np.arange(len(case["arrivals_per_step"])), case["arrivals_per_step"])
    return run_by_steps(profile, arrives_in, case["in_tokens"], case["out_tokens"])


def spans(made: EngineRun, case: Mapping[str, Any]) -> list[RecordedSpan]:
    return [
        RecordedSpan(first=int(made.came_in[i]), last=int(step[i]), measured_s=case[name][i])
        for step, name in ((made.first_step, "measured_ttft_s"), (made.last_step, "measured_total_s"))
        for i in range(len(case["in_tokens"]))
    ]


def fitted(profile: EngineProfile, cases: list[Mapping[str, Any]]) -> EngineProfile:
    runs = [(run(profile, case), case) for case in cases]
    return fit_added(profile, [(made.steps, spans(made, case)) for made, case in runs])


def times_s(made: EngineRun) -> tuple[np.ndarray, np.ndarray]:
    came_ns = made.began_ns[made.came_in]
    return (made.first_token_ns - came_ns) / NS_PER_S, (made.finished_ns - came_ns) / NS_PER_S


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--leave-out", action="store_true", help="fit without the case that is judged")
    parser.add_argument("--predict", type=Path, help="where to write what is expected of the other cases")
    options = parser.parse_args()
    recorded = json.loads((data_of(options) / "llm" / "vllm_l40s.json").read_text())
    profiles = {name: engine_profile(name, engine) for name, engine in recorded["engines"].items()}
    of_engine: dict[str, list[Mapping[str, Any]]] = {}
    for case in recorded["cases"]:
        of_engine.setdefault(case["engine"], []).append(case)
    rows, errors = [], []
    for name, cases in of_engine.items():
        if not name.endswith(FITTED):
            continue
        whole = fitted(profiles[name], cases)
        other = name.replace(FITTED, PREDICTED)
        added = dict(zip(ADDED, whole.added_s, strict=True))
        profiles[other] = msgspec.structs.replace(profiles[other], **added)
        for case in cases:
            profile = fitted(profiles[name], [one for one in cases if one is not case]) if options.leave_out else whole
            made = times_s(run(profile, case))
            measured = np.array(case["measured_ttft_s"]), np.array(case["measured_total_s"])
            error = [abs(mine.mean() / theirs.mean() - 1) for mine, theirs in zip(made, measured, strict=True)]
            plain = times_s(run(profiles[name], case))
            before = [abs(mine.mean() / theirs.mean() - 1) for mine, theirs in zip(plain, measured, strict=True)]
            errors.append(error)
            rows.append(
                [name.removesuffix("_" + FITTED), case["workload"], *(f"{100 * one:.2f}" for one in before + error)]
            )
    print_table(["model", "workload", "TTFT, curves alone %", "total %", "TTFT, fitted %", "total %"], rows)
    ttft, total = np.array(errors).T * 100
    bars = Bars()
    bars.at_most("median error of the time to the first token, %", float(np.median(ttft)), 1.0)
    bars.at_most("median error of the total time, %", float(np.median(total)), 2.5)
    bars.at_most("worst error, %", float(max(ttft.max(), total.max())), 6.0)
    print(bars)
    if options.predict is not None:
        made_of = {
            f"{case['engine']}/{case['workload']}": [each.tolist() for each in times_s(run(profiles[name], case))]
            for name, cases in of_engine.items()
            if name.endswith(PREDICTED)
            for case in cases
        }
        options.predict.write_text(json.dumps(made_of))


ADDED = ("per_kv_token_s", "per_attention_token_s", "overhead_per_step_s", "overhead_per_request_s")

if __name__ == "__main__":
    main()
