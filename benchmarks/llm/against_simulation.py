"""Times of a served plan of language models beside their simulation, over llama.cpp's server.

    python -m benchmarks.llm.against_simulation [--folder DIR] [--rounds 5] [--seconds 60] [--plan FILE]

The tiny Llamas of `gearshift init --llm` share the last processor; router and load generator have the
others. They are profiled, planned for, and served on a bursty trace, `--rounds` times. Each round
simulates the requests at the times at which they were sent, so late sending is part of neither.
Lone requests before and after each round tell engines that are not as profiled.
A `--folder` that has a profile is not profiled again. `--plan` takes a plan of that profile in place
of the one that is made.

Bar: p95 of the time to the first token within 15 % of its simulation, in the median of the rounds.
Run it on a machine that does nothing else: profiling, too.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import gearshift
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_table
from gearshift.demo.language import BASE_SHARE, MOST_OF_SMALLEST, PEAK_LOAD, capacity_of_device_qps, why_no_engine
from gearshift.models.config import PROJECT_FILE
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import is_language_profile, read_language_profile
from gearshift.reporting.language.words import cascade_text
from gearshift.traces.generate import bursty
from gearshift.traces.read import read_trace, write_trace
from gearshift.verbs.plan import plan
from gearshift.verbs.profile import profile as measure
from gearshift.verbs.tokens.validate import LanguageValidation
from gearshift.verbs.validate import validate

MOST_ERROR = 0.15
GIVE_UP_S = 60.0
LEAST_MARGIN = 1.35
FIGURES = ("ttft_p50", "ttft_p95", "per_token_p95", "total_p95")


def profiled(folder: Path) -> LanguageProfile:
    if not (folder / PROJECT_FILE).exists():
        gearshift.init(folder, llm=True)
    if is_language_profile(folder / "profile"):
        return read_language_profile(folder / "profile")
    return measure(folder, out=folder / "profile", notice=lambda text: print(text, flush=True))


def made_plan(folder: Path, profile: LanguageProfile, ttft_s: float, seconds: float) -> Path:
    """A plan for bursts of twice what the large model carries, and of as much as the small one may."""
    large_qps, small_qps = (capacity_of_device_qps(profile, profile.models[i]) for i in (-1, 0))
    peak_qps = min(PEAK_LOAD * large_qps, MOST_OF_SMALLEST[0] * small_qps)
    write_trace(bursty(BASE_SHARE * peak_qps, peak_qps, seconds, bursts=2, seed=1), folder / "trace.csv")
    out = folder / "plan.json"
    made = plan(folder / "profile", folder / "trace.csv", ttft_s=ttft_s, devices=1, least_margin=LEAST_MARGIN, out=out)
    gears = "; ".join(cascade_text(one) for gear in made.pipeline.gears for one in gear.cascades[made.name])
    print(f"bursts of {peak_qps:.1f} requests/s; gears: {gears}", flush=True)
    return out


def row_of(number: int, run: LanguageValidation) -> list[str]:
    predicted, measured = run.predicted.tokens, run.measured.tokens
    assert predicted
    assert measured
    seconds = [f"{1e3 * one.ttft_s.p95:.1f}" for one in (predicted, measured)]
    errors = [f"{100 * run.errors[name]:+.1f}" for name in FIGURES]
    drift = f"{run.drift.before:.2f}, {run.drift.after:.2f}"
    return [str(number), *seconds, *errors, f"{run.predicted.accuracy:.3f}", f"{run.measured.accuracy:.3f}", drift]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where to keep project, profile, trace and plan")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the trace")
    parser.add_argument("--ttft-ms", type=float, default=500.0, help="p95 of the time to the first token to plan for")
    parser.add_argument("--plan", type=Path, help="a plan of the folder's profile; its trace is FOLDER/trace.csv")
    options = parser.parse_args()
    if why := why_no_engine():
        raise SystemExit(why)
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        print(describe())
        profile = profiled(folder)
        path = options.plan or made_plan(folder, profile, options.ttft_ms / 1e3, options.seconds)
        trace, rows, errors = read_trace(folder / "trace.csv"), list[list[str]](), list[float]()
        for number in range(options.rounds):
            run = validate(path, trace, profile=folder / "profile", project=folder, longest_s=GIVE_UP_S)
            rows.append(row_of(number + 1, run))
            errors.append(abs(run.errors["ttft_p95"]))
            print(*rows[-1], flush=True)
    columns = ("round", "TTFT p95 ms, simulated", "measured", *(f"{one} %" for one in FIGURES))
    print_table((*columns, "quality, simulated", "measured", "lone requests, before and after"), rows)
    print(f"{len(trace)} requests a round; error of p95 TTFT, %: {', '.join(f'{100 * one:.1f}' for one in errors)}")
    bars = Bars()
    bars.at_most("p95 TTFT against simulation, median of the rounds", float(np.median(errors)), MOST_ERROR)
    print(bars)


if __name__ == "__main__":
    main()
