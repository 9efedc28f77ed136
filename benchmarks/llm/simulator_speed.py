"""Simulated requests per second on one core: 8 engines of two models, 32 requests in each on average, shifts.

Prompts and answers have the lengths of the Azure traces of conversations and of code; small models decide after 16
tokens. The load swings by a quarter around its mean every minute, so that gears shift. The time is that of the
processor. The claim: at least 3 million requests/s.
"""

import csv
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe, pin_to_last_core
from benchmarks.shared.tables import print_table
from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import identical_devices
from gearshift.language_workload import LanguageWorkload, numbers_by_id
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve
from gearshift.profiles.engines.engine_tables import EngineTables, engine_tables
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, AnswerRecords, LanguageProfile
from gearshift.simulator.engines import LanguageSimulation, simulate_language

MODELS = ("small", "large")
STEP_S = (0.011, 0.013)
"""A step of one request; one of 2,048 tokens takes six times as long. Both models then have about as many requests."""
ENGINES, CONCURRENCY = 8, 32
THRESHOLDS = (0.6, 0.5, 0.4)
BAR = 3.0


def lengths_of(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return tuple(np.array([int(row[name]) for row in rows]) for name in ("ContextTokens", "GeneratedTokens"))  # type: ignore[return-value]


def profile_of(prompts: NDArray[np.int64], outputs: NDArray[np.int64]) -> LanguageProfile:
    shape = (len(MODELS), len(prompts))
    answers = AnswerRecords(
        models=MODELS,
        quality=np.ones(shape),
        certainty=np.random.default_rng(1).random((*shape, len(DECIDE_AT_TOKENS))),
        prompt_tokens=np.broadcast_to(prompts, shape),
        output_tokens=np.broadcast_to(outputs, shape),
        part=(np.arange(len(prompts)) % 2).astype(np.int8),
    )
    engines = tuple(
        EngineProfile(
            model=model,
            device_kind="gpu",
            prefill=StepCurve(tokens=(1, 2048), step_s=(step_s, 6 * step_s)),
            decode=StepCurve(tokens=(1, 256), step_s=(step_s, 1.5 * step_s)),
            per_kv_token_s=1e-8,
            kv_blocks=40_000,
            largest_batched_tokens=2048,
            largest_running=256,
        )
        for model, step_s in zip(MODELS, STEP_S, strict=True)
    )
    return LanguageProfile(operator="chat", engines=engines, answers=answers)


def plan_for(outstanding: float) -> GearPlan:
    """Gears that shift around so many outstanding requests."""
    each = ENGINES // len(MODELS)
    hardware = identical_devices(ENGINES, kind="gpu")
    placed = [(f"{MODELS[d // each]}-{d}", MODELS[d // each], device.id) for d, device in enumerate(hardware.devices)]
    edges = [0.0, 0.95 * outstanding, 1.15 * outstanding]
    gears = tuple(
        Gear(
            load_range=LoadRange(from_=edges[g], to=edges[g + 1] if g + 1 < len(edges) else None),
            cascades=alone("chat", Cascade(models=MODELS, thresholds=(threshold,), decide_at_tokens=(16,))),
            replicas=tuple(ReplicaSettings(replica=id, load_share=1 / each) for id, _, _ in placed),
        )
        for g, threshold in enumerate(THRESHOLDS)
    )
    nowhere = {"chat": SourceFile(path="", sha256="")}
    pipeline = PipelinePlan(
        nodes={"chat": Node(operator="chat")},
        output="chat",
        objective=Objective(),
        gears=gears,
        load_unit="outstanding_requests",
    )
    return GearPlan(
        planner="by hand",
        hardware=hardware,
        placement=Placement(
            replicas=tuple(Replica(id=id, model=model, device_ids=(device,)) for id, model, device in placed)
        ),
        pipelines={"chat": pipeline},
        profiles=nowhere,
        traces=nowhere,
    )


def workload_of(qps: float, requests: int, records: int) -> LanguageWorkload:
    generator = np.random.default_rng(0)
    seconds = np.arange(int(requests / qps) + 1)
    rate = qps * (1 + 0.25 * np.sin(seconds * 2 * np.pi / 60))
    times = np.concatenate([s + generator.random(generator.poisson(r)) for s, r in zip(seconds, rate, strict=True)])
    arrivals_ns = np.sort((times * 1e9).astype(np.int64))
    n = len(arrivals_ns)
    return LanguageWorkload(
        arrivals_ns=arrivals_ns,
        record=generator.integers(0, records, n).astype(np.int32),
        by_id=numbers_by_id(n, 0),
        duration_s=float(len(seconds)),
    )


def concurrency(made: LanguageSimulation) -> float:
    """Requests in each engine, on average."""
    return float(made.total_ns.sum()) / 1e9 / made.duration_s / ENGINES


def rate_for(tables: EngineTables, profile: LanguageProfile) -> float:
    """The load at which engines have `CONCURRENCY` requests."""
    low, high = 1.0, 4000.0
    for _ in range(12):
        middle = (low * high) ** 0.5
        workload = workload_of(middle, 40_000, len(profile.answers.part))
        low, high = (
            (middle, high) if concurrency(simulate_language(tables, profile, workload)) < CONCURRENCY else (low, middle)
        )
    return low


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    pin_to_last_core()
    print(describe())
    tables_of = plan_for(ENGINES * CONCURRENCY)
    rows, bars = [], Bars()
    for name in ("conv", "code"):
        profile = profile_of(*lengths_of(data_of(options) / "traces" / f"azure_llm_{name}.csv"))
        tables = engine_tables(tables_of, profile)
        qps = rate_for(tables, profile)
        workload = workload_of(qps, options.requests, len(profile.answers.part))
        speeds = []
        for _ in range(options.repeats):
            began = time.process_time()
            made = simulate_language(tables, profile, workload)
            speeds.append(len(workload) / (time.process_time() - began) / 1e6)
        speeds.sort()
        visits = 1 + float((made.discarded_tokens > 0).sum()) / len(workload)
        rows.append(
            [
                name,
                f"{qps:.0f}",
                f"{concurrency(made):.1f}",
                f"{visits:.2f}",
                f"{made.steps.sum() / len(workload):.2f}",
                str(len(made.shifts)),
                f"{speeds[len(speeds) // 2]:.2f} ({speeds[0]:.2f}..{speeds[-1]:.2f})",
            ]
        )
        bars.at_least(f"lengths of {name}, million requests/s", speeds[len(speeds) // 2], BAR)
    print_table(["lengths", "requests/s", "per engine", "visits", "steps", "shifts", "million/s (min..max)"], rows)
    print(bars)


if __name__ == "__main__":
    main()
