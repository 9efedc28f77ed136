"""Every example runs from anywhere and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LONGEST_S = 600.0

PRINTED = {
    "01_plan_and_simulate.py": (
        r"load +\[0, .*: .*\n",
        r"load .*, inf\): small",
        r"requests \d+, gear shifts [1-9]\d*\n",
        r"accuracy 0\.9\d\d, p95 \d+\.\d ms, late [0-4]\.\d %\n",
    ),
    "02_serve_and_ask.py": (
        r"serving task at http://127\.0\.0\.1:\d+ \([12] replicas? on 1 device\)\n",
        r"label: [01]\n",
        r"gearshift_model: (small|large)\n",
        r"exit code 0\n",
    ),
    "03_records_to_plan.py": (
        r"infeasible: .* the nearest feasible latency is ",
        r"devices 1: accuracy 0\.\d{3}, p95 \d+ ms\n",
        r"devices 4: accuracy 0\.\d{3}, p95 \d+ ms\n",
    ),
    "04_sql.py": (
        r"shop 0: \d+ points, 0\.\d\d of label 1\n",
        r"shop 2: \d+ points, 0\.\d\d of label 1\n",
        r"by small.*, right in \d+ %\n",
        r"[1-9]\d* rows ran\n",
    ),
    "04_pipeline_in_python.py": (
        r"operator split: \{'split': 1\.0\}\n",
        r"operator read: \{'logistic': 0\.9\d*, 'network': 0\.9\d*\}\n",
        r"items by node: \{'split': 600, 'read': 2449, 'join': 600\}\n",
        r"all digits of a strip are right for (7|8)\d\.\d% of the strips\n",
    ),
    "05_serve_a_pipeline.py": (
        r"serving digits at http://127\.0\.0\.1:\d+ \(4 replicas on 1 device\)\n",
        r"answered: (7|8|9|10)\d% of 20 strips are right\n",
        r"refused: .*\n",
        r"exit code 0\n",
    ),
    "learned_caches/build_and_serve.py": (
        r"trained: 9\d\.\d% of unseen images are right\n",
        r"chosen: .* after (stem|blocks\.\d), hits \d+% ",
        r"agreement 9\d\.\d%, gain \d+\.\d\d\n",
        r"served: (9\d|100)% of 40 right, [1-9]\d*% left before the last segment\n",
    ),
}
MODULES = {"learned_caches/networks.py"}
"""Files that examples import."""


@pytest.mark.long  # README's commands, which `make test` runs, take the same way
@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.returncode == 0, done.stderr
    for line in PRINTED[name]:
        assert re.search(line, done.stdout), f"{line!r} is not in:\n{done.stdout}"
    assert list(tmp_path.iterdir()) == []


def test_every_example_is_tested() -> None:
    found = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")}
    assert found == PRINTED.keys() | MODULES
