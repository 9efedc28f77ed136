"""Runs `gearshift demo` again and again: how often the predicted p95 and accuracy were what was served.

The claim: p95 within 15 % and accuracy within 1 point.  Every run is printed, none is left out.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_head


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    print(describe())
    print_head(
        "| run | seconds | p95 predicted | served | error | accuracy predicted | served | error | generator kept time |"
    )
    p95_held = accuracy_held = 0
    for run in range(1, runs + 1):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            result = Path(folder) / "result.json"
            subprocess.run(
                [sys.executable, "-m", "gearshift", "demo", "--folder", f"{folder}/demo", "--json", str(result)],
                check=True,
                capture_output=True,
            )
            took_s = time.perf_counter() - began
            demo = json.loads(result.read_text())
        predicted, served = demo["simulated"], demo["served"]
        p95 = predicted["latency_s"]["p95"], served["latency_s"]["p95"]
        error = p95[0] / p95[1] - 1
        points = 100 * (predicted["accuracy"] - served["accuracy"])
        p95_held += abs(error) <= 0.15
        accuracy_held += abs(points) <= 1
        print(
            f"| {run} | {took_s:.0f} | {1e3 * p95[0]:.1f} ms | {1e3 * p95[1]:.1f} ms | {error:+.1%} "
            f"| {predicted['accuracy']:.3f} | {served['accuracy']:.3f} | {points:+.2f} | {demo['valid']} |",
            flush=True,
        )
    print(f"p95 within 15 % in {p95_held} of {runs} runs; accuracy within 1 point in {accuracy_held} of {runs}")


if __name__ == "__main__":
    main()
