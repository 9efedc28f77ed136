"""How long commands take to start, and what memory a server's own modules hold.

    python -m benchmarks.server.start_up [--before SRC] [--rounds 9]

With `--before`, the folder `src` of another checkout, both are run in turn.  Under a minute.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_table

VERBS = ("plan", "serve")
HERE = Path(__file__).resolve().parents[2] / "src"
MEMORY = """import gearshift.serving.rows.served, gearshift.serving.serve
from gearshift.cli.main import main_group

main_group.get_command(None, {!r})
print(open("/proc/self/statm").read().split()[1])
"""


def run(source: Path, *arguments: str) -> tuple[float, str]:
    """Seconds of a run of this Python with the package in `source`, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return time.perf_counter() - began, done.stdout


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(describe())
    sources = {"here": HERE} if options.before is None else {"before": options.before, "here": HERE}
    rows = []
    for verb in VERBS:
        took: dict[str, list[float]] = {name: [] for name in sources}
        for _ in range(options.rounds + 1):
            for name, source in sources.items():
                took[name].append(run(source, "-m", "gearshift", verb, "--help")[0])
        for name, source in sources.items():
            seconds = took[name][1:]  # the first compiles
            memory_mib = int(run(source, "-c", MEMORY.format(verb))[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
            spread = f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
            rows.append((f"gearshift {verb} --help", name, spread, f"{memory_mib:.0f}"))
    print_table(("command", "package", "s, median (least to most)", "with what a server imports, MiB"), rows)


if __name__ == "__main__":
    main()
