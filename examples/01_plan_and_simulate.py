"""Plan for a trace and simulate it: two models, recorded answers, no model is run.

The models are made up: `small` is quick and right on easy samples, `large` is slow and right on nearly all.
"""

import numpy as np

import gearshift
from gearshift.profiles.profile import PredictionRecords, RunTimeCurve
from gearshift.traces.generate import bursty

SAMPLES = 2000

generator = np.random.default_rng(0)
difficulty = generator.random(SAMPLES)
quality = np.stack([difficulty < 0.80, difficulty < 0.95]).astype(np.float64)
certainty = np.clip(1 - difficulty + generator.normal(0, 0.1, (2, SAMPLES)), 0, 1)

profile = gearshift.Profile(
    operator="task",
    curves=(
        RunTimeCurve(model="small", batch_sizes=(1, 16), median_s=(0.002, 0.010), p95_s=(0.002, 0.011)),
        RunTimeCurve(model="large", batch_sizes=(1, 16), median_s=(0.012, 0.128), p95_s=(0.013, 0.135)),
    ),
    predictions=PredictionRecords(
        models=("small", "large"),
        quality=quality,
        certainty=certainty,
        part=(np.arange(SAMPLES) % 2).astype(np.int8),
    ),
)
trace = bursty(60, 250, 20, seed=1)

plan = gearshift.plan(profile, trace, devices=1, latency_s=0.100)
for gear in plan.pipelines["task"].gears:
    print(f"load {gear.load_range!s:>14}: {gear.cascade}")

simulation = gearshift.simulate(plan, trace, profile=profile)
result = simulation.result(profile, latency_objective_s=0.100)
print(f"requests {result.requests}, gear shifts {len(simulation.shifts)}")
print(f"accuracy {result.accuracy:.3f}, p95 {1e3 * result.latency_s.p95:.1f} ms, late {100 * result.share_late:.1f} %")
