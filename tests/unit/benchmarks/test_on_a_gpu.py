import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu_networks import CLASSES, SIDE, made_up

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "on_a_gpu.py"


def test_images_are_made_up_the_same_each_time_and_differ_by_seed() -> None:
    images, labels = made_up(20, 0)
    again, _ = made_up(20, 0)
    other, _ = made_up(20, 1)
    assert images.shape == (20, 3, SIDE, SIDE)
    assert images.dtype == np.float32
    assert set(labels) <= set(range(CLASSES))
    assert (images == again).all()
    assert (images != other).any()


@pytest.mark.long
def test_the_whole_script_runs_in_small_on_processors(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    command = [sys.executable, str(SCRIPT), "--cpu", "--out", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=500, env=dict(os.environ), check=False)
    stages = json.loads(out.read_text())["stages"]
    assert {name: facts["status"] for name, facts in stages.items()} == dict.fromkeys(stages, "done"), ran.stdout
    assert ran.returncode == 0
    assert stages["streams"]["answers_differ_by_at_most"] < 1e-4
    assert stages["cascade"]["validation"]["failed"] == 0
