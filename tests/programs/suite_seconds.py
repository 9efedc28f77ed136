"""Where the seconds of `make test` go, after installation: a table for docs/suite.md.

    python -m tests.programs.suite_seconds [--write]

Runs the steps of `make test` one after another, each in wall-clock and processor seconds, and counts the tests by
room.  Kernels are compiled into an empty cache.  On an idle machine of two cores: some five minutes.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
PAGE = HOME / "docs" / "suite.md"
STEPS = {
    "lint": ["make", "lint"],
    "kernels, compiled side by side": ["make", "-j", "2", "compiled-whole", "compiled-rest"],
    "assertions, rewritten once": ["make", "rewritten"],
    "tests, in three processes": ["make", "short-tests"],
}
SHOWN = 12


def seconds_of(command: list[str], environment: dict[str, str]) -> tuple[float, float, int]:
    """Wall-clock and processor seconds of a command with all that it waits for, and its exit status."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    status = subprocess.run(command, cwd=HOME, env=environment, stdout=sys.stderr, check=False).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, used, status


def table(steps: dict[str, tuple[float, float]], tests: Counter[str], count: int) -> str:
    rows = [f"| {name} | {wall:.0f} | {used:.0f} |" for name, (wall, used) in steps.items()]
    wall, used = (sum(each) for each in zip(*steps.values(), strict=True))
    rooms: Counter[str] = Counter()
    for test, spent in tests.items():
        rooms["/".join(test.split("::")[0].split("/")[:3])] += spent
    rows += [f"| all | {wall:.0f} | {used:.0f} |", "", f"{count} tests, by folder:", ""]
    rows += ["| folder | processor seconds |", "| --- | --- |"]
    rows += [f"| `{room}` | {spent:.0f} |" for room, spent in rooms.most_common(SHOWN)]
    return "\n".join(["| step | seconds | processor seconds |", "| --- | --- | --- |", *rows]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table into docs/suite.md")
    parser.add_argument("--tests", type=Path, help="also write the seconds of each test into this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as counted:
        environment = os.environ | {
            "XDG_CACHE_HOME": cache,
            "GEARSHIFT_TEST_SECONDS": counted,
            "PYTEST_ADDOPTS": "-p tests.seconds",
        }
        steps, statuses = {}, []
        for name, command in STEPS.items():
            wall, used, status = seconds_of(command, environment)
            steps[name] = wall, used
            statuses.append(status)
        tests: Counter[str] = Counter()
        for file in Path(counted).glob("*.json"):
            tests.update(json.loads(file.read_text()))
    made = table(steps, tests, len(tests))
    print(made)
    if options.tests is not None:
        options.tests.write_text(json.dumps(dict(tests.most_common()), indent=1))
    if options.write:
        head, _, _ = PAGE.read_text().partition("| step |")
        PAGE.write_text(head + made)
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
