"""Learned caches inside both stages of a cascade against the cascade alone, and against its large model.

A small network goes before a large one.  Half of the loss allowed is each stage's caches', which most of the build
images make; the others choose both cascades' thresholds for the same target.  Then, on images that nothing was trained
or chosen on, in rounds in turn: agreement with the large network, and the gain by batch size, where rows that hit leave
their batch.  The same from a profile, through the simulator; and what the planner makes of that profile, with and
without the models that have caches.

    python benchmarks/caches_in_cascade.py [--data DIR --network resnet56 | --digits] [--lookups beside] [--quick]

About ten minutes for digits; for resnet56 twice as long as `caches_cifar.py`, as there are two models to explore.
Bars: 1.3 over the cascade alone at batch 1, and at batch 2 at least 90 % of that gain.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from bars import Bars
from cache_tasks import (
    Run,
    Task,
    Timed,
    agreement,
    base_run,
    cached_run,
    cascade_threshold,
    cascaded,
    classes_of,
    in_turn,
    options_of,
    softened,
    task_of,
)
from judging import spread
from machine import describe

from gearshift import api, caches
from gearshift.caches.beside import Lookups, divided
from gearshift.cascade import Cascade
from gearshift.errors import Infeasible
from gearshift.gear import Gear, GearPlan, LoadRange, OperatorPlan, ReplicaSettings, SourceFile
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.placement import Placement, Replica
from gearshift.planner.confirm import workload_of
from gearshift.profiles.profile import PART_B, Profile
from gearshift.simulator.simulate import simulate
from gearshift.traces.generate import steady

SIZES = ("small", "large")
BATCHES = (1, 2, 8, 32)
CHOOSING = 0.3
"""Of the build images, for thresholds."""
GAIN, KEPT = 1.3, 0.9
LATENCY, LOADS = 10.0, (0.5, 0.9, 1.3, 2.0)
"""The latency objective in lone requests of the large network, and loads in what it bears of them one by one."""
PLAIN, CACHED = "cascade alone", "with caches inside"
LOADERS = """import sys
from pathlib import Path

sys.path[:0] = [{benchmarks!r}]
import cache_tasks

import gearshift
from gearshift import caches

TASK = cache_tasks.Task(Path({work!r}), {data}, {cifar!r}, {epochs}, {quick})


def load_samples():
    images, labels = TASK.images("test")
    return gearshift.Samples({{"images": images}}, labels=labels)


"""
LOADER = """def load_{size}():
    return TASK.network({size!r})


def load_{size}_cached():
    return caches.load({folder!r}, load_{size}(), lookups={lookups!r})


"""


def stages(task: Task, lookups: Lookups, target: float) -> tuple[dict[str, Run], dict[str, float], Run]:
    """Both cascades, their thresholds, and the large network alone."""
    images, labels = task.images("build")
    kept = int(len(images) * (1 - CHOOSING))
    plain = {size: base_run(task.network(size)) for size in SIZES}
    cached = {}
    for size in SIZES:
        half = 1 - (1 - target) / 2
        folder = folder_of(task, size)
        task.built(task.network(size), (images[:kept], labels[:kept]), folder, accuracy=half, lookups=lookups)
        model = caches.load(folder, task.network(size), lookups=lookups)
        cached[size] = cached_run(model)
    base = classes_of(plain["large"], images[kept:])
    runs, thresholds = {}, {}
    for name, (small, large) in {
        PLAIN: (softened(plain["small"]), softened(plain["large"])),
        CACHED: (cached["small"], cached["large"]),
    }.items():
        thresholds[name] = cascade_threshold(small, large, base, images[kept:], target)
        runs[name] = cascaded(small, large, thresholds[name])
    return runs, thresholds, plain["large"]


def folder_of(task: Task, size: str) -> Path:
    return task.caches_folder(size, "stage").resolve()


def profiled(task: Task, lookups: Lookups, cores: int) -> Profile:
    """The profile of all four models, with caches and without, through the real path."""
    folder = task.home.resolve() / f"{task.name}-project"
    folder.mkdir(parents=True, exist_ok=True)
    text = LOADERS.format(
        benchmarks=str(Path(__file__).parent.resolve()), work=str(task.work.resolve()),
        data=None if task.data is None else f"Path({str(task.data.resolve())!r})",
        cifar=task.cifar, epochs=task.epochs, quick=task.quick,
    )  # fmt: skip
    for size in SIZES:
        text += LOADER.format(size=size, folder=str(folder_of(task, size)), lookups=lookups)
    (folder / "models.py").write_text(text)
    models = "".join(
        f'[models.{size}{kind}]\nload = "models.py:load_{size}{kind}"\nsoftmax = {"false" if kind else "true"}\n\n'
        for size in SIZES
        for kind in ("", "_cached")
    )
    repeats, sizes = (3, [1, 2]) if task.quick else (20, [1, 2, 8, 32])
    (folder / "gearshift.toml").write_text(
        f'operator = "images"\nsamples = "models.py:load_samples"\n\n{models}'
        f"[profile]\nbatch_sizes = {sizes}\nrepeats = {repeats}\n"
    )
    return api.profile(folder / "gearshift.toml", out=folder / "profile", cores=(cores,))


def predicted(profile: Profile, models: tuple[str, str], threshold: float, cores: int) -> tuple[float, float]:
    """Mean latency in seconds and accuracy of a cascade under little load, simulated."""
    plan = GearPlan(
        planner="by hand",
        hardware=identical_devices(1, cores=cores),
        placement=Placement(
            replicas=tuple(
                Replica(id=f"{model}-0", model=model, device_ids=("cpu-0",), cores=cores) for model in models
            )
        ),
        operators={
            "images": OperatorPlan(
                objective=Objective(latency_s=10.0),
                gears=(
                    Gear(
                        load_range=LoadRange(from_=0),
                        cascade=Cascade(models=models, thresholds=(threshold,)),
                        replicas=tuple(
                            ReplicaSettings(replica=f"{model}-0", load_share=1.0, largest_batch_size=1)
                            for model in sorted(models)
                        ),
                    ),
                ),
            )
        },
        profile=SourceFile(path="profile", sha256=profile.sha256),
        trace=SourceFile(path="trace.csv", sha256=""),
    )
    slowest_s = sum(sum(curve.median_s[0] for curve in profile.curves if curve.model == model) for model in models)
    trace = steady(0.02 / slowest_s, 5000 * slowest_s / 0.02, seed=1)
    run = simulate(plan, profile, workload_of(trace, profile, part=PART_B, seed=0))
    result = run.result(profile, latency_objective_s=None)
    return result.latency_s.mean, result.accuracy


def of_models(profile: Profile, models: tuple[str, ...]) -> Profile:
    """The profile of some of the models."""
    records = profile.predictions
    rows = records.rows(models)
    by_model = ("quality", "certainty", "prediction", "output_tokens", "exit_segment")
    some = {name: array[rows] for name in by_model if (array := getattr(records, name)) is not None}
    curves = tuple(curve for curve in profile.curves if curve.model in models)
    return replace(profile, curves=curves, performance=(), predictions=replace(records, models=models, **some))


def planned(profile: Profile, seconds: float) -> None:
    """What the planner makes of the models without caches, and of all, at loads that the large one bears or not."""
    (large_s,) = (curve.median_s[0] for curve in profile.whole_curves if curve.model == "large")
    latency_s = LATENCY * (large_s + profile.front_end_s)
    print(f"\nplanned for {1e3 * latency_s:.1f} ms at the 95th percentile, one device; large: {1e3 * large_s:.2f} ms\n")
    print("| load, of the large model's | models | accuracy | p95 ms | cascade at that load |\n|---|---|---|---|---|")
    for load in LOADS:
        trace = steady(load / large_s, seconds, seed=2)
        for name, models in (("without caches", SIZES), ("all", profile.models)):
            try:
                plan = api.plan(of_models(profile, models), trace, latency_s=latency_s)
            except Infeasible:
                print(f"| {load:g} | {name} | no plan | | |")
                continue
            expected = plan.predictions["images"]
            *_, gear = (one for one in plan.operators["images"].gears if one.load_range.from_ <= trace.mean_qps)
            told = f"{expected.accuracy:.2%} | {1e3 * expected.latency_s.p95:.2f} | {', '.join(gear.cascade.models)}"
            print(f"| {load:g} | {name} | {told} |", flush=True)


def compare(options: argparse.Namespace, task: Task) -> None:
    cores = divided(1)
    lookups: Lookups = options.lookups if cores is not None else "inline"
    torch.set_num_threads(1)
    runs, thresholds, large = stages(task, lookups, options.accuracy)
    images, _ = task.images("test")
    base = classes_of(large, images)
    print(f"\nlookups {lookups}; thresholds {thresholds[PLAIN]:.3f} and {thresholds[CACHED]:.3f}")
    for name, run in runs.items():
        print(f"{name:20} agrees with the large network on {agreement(run, base, images)}")
    own = frozenset({0}) if cores is None else cores.base
    timed = {name: Timed(run, own) for name, run in {"large alone": large, **runs}.items()}
    rounds, rows = (2, 32) if options.quick else (options.rounds, options.rows)
    print(f"\n{rounds} rounds: milliseconds a batch, and gains, median (range)\n")
    print(
        f"{'batch':>5}" + "".join(f"{name:>26}" for name in timed) + f"{'gain over it alone':>26}   of that at batch 1"
    )
    gains = []
    for size in BATCHES:
        seconds = in_turn(timed, images[: max(rows, 4 * size)], rounds=rounds, size=size)
        means = {name: each.mean(axis=1) for name, each in seconds.items()}
        gain = means[PLAIN] / means[CACHED]
        gains.append(float(np.median(gain)))
        told = "".join(f"{spread(1e3 * mean):>26}" for mean in means.values())
        print(f"{size:5}{told}{spread(gain):>26}   {gains[-1] / gains[0]:.1%}")
    profile = profiled(task, lookups, 1 if lookups == "inline" else 2)
    own_cores = profile.curves[0].cores
    alone = predicted(profile, ("small", "large"), thresholds[PLAIN], own_cores)
    inside = predicted(profile, ("small_cached", "large_cached"), thresholds[CACHED], own_cores)
    print("\nsimulated from a profile, one request at a time, overheads of serving included:")
    for name, (mean_s, accuracy) in ((PLAIN, alone), (CACHED, inside)):
        print(f"{name:20} {1e3 * mean_s:.3f} ms, accuracy {accuracy:.2%}")
    print(f"gain {alone[0] / inside[0]:.2f}")
    planned(profile, 5.0 if options.quick else 60.0)
    bars = Bars()
    bars.at_least("gain over the cascade alone, measured without serving", gains[0], GAIN)
    bars.at_least("gain at batch 2 over that at batch 1", gains[1] / gains[0], KEPT)
    right = float((classes_of(runs[CACHED], images) == base).mean())
    bars.at_least("agreement with the large network", right, options.accuracy)
    print(f"\n{bars}")


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--lookups", choices=["inline", "beside"], default="inline")
    options = parser.parse_args()
    print(describe())
    compare(options, task_of(options))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
