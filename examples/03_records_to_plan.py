"""From recorded predictions and run times in two CSV files to a plan, without running a model."""

import csv
import random
import tempfile
from pathlib import Path

import gearshift
from gearshift.traces.generate import steady

MODELS = {"small": 0.75, "large": 0.95}

random.seed(0)
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    with (folder / "predictions.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["sample", "model", "correct", "certainty"])
        for sample in range(500):
            difficulty = random.random()
            for model, skill in MODELS.items():
                correct = difficulty < skill
                sure = min(1.0, max(0.0, random.gauss(0.8 if correct else 0.4, 0.15)))
                rows.writerow([sample, model, int(correct), f"{sure:.3f}"])
    (folder / "runtimes.csv").write_text(
        "model,batch_size,seconds\nsmall,1,0.004\nsmall,16,0.020\nlarge,1,0.030\nlarge,16,0.240\n"
    )

    profile = gearshift.profile_from_records(folder, operator="task")
    trace = steady(60, 20)
    try:
        gearshift.plan(profile, trace, devices=1, latency_s=0.003)
    except gearshift.Infeasible as error:
        print(f"infeasible: {error}")
    for devices in (1, 2, 4):
        plan = gearshift.plan(profile, trace, devices=devices, latency_s=0.200)
        predicted = plan.predictions["task"]
        print(f"devices {devices}: accuracy {predicted.accuracy:.3f}, p95 {1e3 * predicted.latency_s.p95:.0f} ms")
