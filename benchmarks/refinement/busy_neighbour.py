"""The demo's plans beside a neighbour that keeps the worker's core busy, with and without learning the slowdown.

Serves `gears.json` and `refining.json` of an earlier `gearshift demo --folder`, and replays its trace, each with
`--slowdown off` and `on`.  The claim: with refinement that learns, p95 stays within the objective.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table, spread
from gearshift.plans.plan_file import read_plan
from gearshift.result import ServingResult
from gearshift.serving.operate.child_server import ChildServer
from gearshift.support.processors import pin
from gearshift.traces.read import read_trace
from gearshift.verbs.replay import replay

PLANS = ("gears.json", "refining.json")
BUSY = "while True: pass"


def core_of_worker(server: int) -> int:
    """The highest core of the server's children: workers have those from the end on."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    return max(max(os.sched_getaffinity(int(child))) for child in children)


@contextmanager
def neighbour(core: int) -> Iterator[None]:
    """A process that keeps a core busy."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        pin(frozenset([core]), process.pid)
        yield
    finally:
        process.kill()
        process.wait()


def served(folder: Path, name: str, slowdown: str) -> ServingResult:
    """The trace, replayed beside the neighbour."""
    objective_s = read_plan(folder / name).pipeline.objective.latency_s
    with ChildServer(folder / name, "--slowdown", slowdown) as server, neighbour(core_of_worker(server.pid)):
        return replay(
            server.url,
            read_trace(folder / "trace.csv"),
            folder / "profile",
            project=folder / "gearshift.toml",
            slo_s=objective_s,
            largest_lateness_s=10.0,
        ).result


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print(describe())
    plans = [name for name in PLANS if (asked.folder / name).exists()]
    runs: dict[tuple[str, str], list[ServingResult]] = {}
    for _ in range(asked.rounds):
        for name in plans:
            for slowdown in ("off", "on"):
                runs.setdefault((name, slowdown), []).append(served(asked.folder, name, slowdown))
    rows = [
        (
            name,
            slowdown,
            spread([1e3 * each.latency_s.p95 for each in results], ".0f"),
            spread([100 * each.share_late for each in results], ".1f"),
            spread([100 * each.accuracy for each in results], ".1f"),
        )
        for (name, slowdown), results in runs.items()
    ]
    print_table(("plan", "slowdown", "p95, ms", "late, %", "accuracy, %"), rows)
    for name in plans:
        objective_s = read_plan(asked.folder / name).pipeline.objective.latency_s or 0.0
        slowest_s = max(each.latency_s.p95 for each in runs[name, "on"])
        bar = f"{name}, learning: p95 within {1e3 * objective_s:g} ms in every run ({1e3 * slowest_s:.0f} ms)"
        print_bar(slowest_s <= objective_s, bar)


if __name__ == "__main__":
    main()
