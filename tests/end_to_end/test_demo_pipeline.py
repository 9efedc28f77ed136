"""`gearshift demo --pipeline`, from training to the comparison."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")


@pytest.mark.long
def test_the_demo_of_a_pipeline_serves_a_joint_plan_beside_what_was_predicted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gearshift", "demo", "--pipeline", "--folder", "demo", "--json", "made.json"]
    ran = subprocess.run(
        [*command, "--seconds", "10", "--p95-ms", "600"],  # a busy machine keeps that, too
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    told = " ".join((ran.stdout + ran.stderr).split())
    for line in ("planned joint, predicted", "planned joint, measured", "objective: p95 within 600 ms"):
        assert line in told
    made = json.loads((tmp_path / "made.json").read_text())
    assert (
        "planned apart, predicted" in told if "apart" in made["served"] else "planned apart, there is no plan" in told
    )
    joint = made["served"]["joint"]
    assert joint["requests"] == made["simulated"]["joint"]["requests"] > 0
    assert 0.5 < joint["accuracy"] <= 1
    assert (tmp_path / "demo" / "joint.json").is_file()
    page = Path(made["report"]).read_text()
    assert "planned joint, measured" in page
    assert "Load, gear and accuracy over time: digits" in page
