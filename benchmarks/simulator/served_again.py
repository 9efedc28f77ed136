"""Serves the plan of a demo's folder again and again: how far apart the same plan's p95 is on this machine.

The prediction is one number for all runs, so its error cannot be less than their spread.
"""

from pathlib import Path

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from gearshift.demo.run import GIVE_UP_S, SEED
from gearshift.verbs.validate import validate


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="the folder of an earlier `gearshift demo --folder`")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    print(describe())
    served_ms = []
    for _ in range(arguments.runs):
        run = validate(folder / "plan.json", folder / "trace.csv", seed=SEED, longest_s=GIVE_UP_S)
        served_ms.append(run.measured.latency_s.p95 * 1e3)
    told = ", ".join(f"{ms:.1f}" for ms in served_ms)
    print(f"predicted {run.predicted.latency_s.p95 * 1e3:.1f} ms; served {told} ms")
    print(f"greatest over least: {max(served_ms) / min(served_ms):.2f}")


if __name__ == "__main__":
    main()
