"""`gearshift demo --llm`, from the project to the comparison."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_the_demo_of_language_models_serves_a_plan_beside_each_model_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gearshift", "demo", "--llm", "--folder", "demo", "--json", "made.json"]
    ran = subprocess.run(
        [*command, "--seconds", "10", "--p95-ms", "2000"],  # a busy machine keeps that, too
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    told = " ".join((ran.stdout + ran.stderr).split())
    for line in ("gear plan, predicted", "largest alone, measured", "first token within 2,000 ms"):
        assert line in told
    made = json.loads((tmp_path / "made.json").read_text())
    assert ("engines are emulated" in told) == bool(made["emulated"])
    predicted, measured = made["simulated"], made["served"]
    assert predicted["smallest alone"]["accuracy"] < predicted["gear plan"]["accuracy"]
    assert measured["gear plan"]["requests"] == predicted["gear plan"]["requests"] > 0
    assert abs(measured["smallest alone"]["accuracy"] - predicted["smallest alone"]["accuracy"]) < 0.15
    assert (tmp_path / "demo" / "plan.json").is_file()
