"""Learned caches inside a cascade against the cascade alone, and against its large model.

A small network goes before a large one.  Caches are made from most of the build images, inside the small, the large or
both, each for a quarter, a half or three quarters of the loss that is allowed; the other build images choose all
thresholds for the same target, and which of these ways is the fastest.  Then, on images that nothing was trained or
chosen on, in rounds in turn: agreement with the large network, and the gain by batch size, where rows that hit leave
their batch.  The same from a profile, of caches made anew for that share, through the simulator; and what the planner
makes of that profile, with and without the models that have caches.  Networks without caches run as they are, those
with caches with batch norms folded, so part of a gain is folding's (`cifar.py` tells them apart).

    python -m benchmarks.caches.in_cascade [--data DIR --network resnet56 | --digits] [--lookups beside] [--quick]

About ten minutes for digits; for resnet56 twice as long as `cifar.py`, as there are two models to explore.
Bars: 1.3 over the cascade alone at batch 1, and at batch 2 at least 90 % of that gain.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import gearshift
from benchmarks.caches.tasks import (
    Images,
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
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from benchmarks.shared.plan_by_hand import plan_by_hand
from benchmarks.shared.tables import print_head, spread
from gearshift import caches
from gearshift.caches.running.concurrent_lookups import divided_cores
from gearshift.caches.store.manifest import Lookups
from gearshift.cascade import Cascade
from gearshift.errors import Infeasible
from gearshift.gear import Gear, LoadRange, ReplicaSettings, alone
from gearshift.hardware import identical_devices
from gearshift.placement import Replica
from gearshift.planner.evaluate.confirm import workload_of
from gearshift.profiles.profile import PART_B, Profile
from gearshift.simulator.simulate import simulate
from gearshift.traces.generate import steady

SIZES = ("small", "large")
BATCHES = (1, 2, 8, 32)
INSIDE = (("small",), ("large",), SIZES)
SHARES = (0.25, 0.5, 0.75)
"""Of the loss allowed, for the caches of a stage."""
CHOOSING = 0.3
"""Of the build images, for thresholds and the fastest way."""
CHOOSING_ROUNDS = 5
GAIN, KEPT = 1.3, 0.9
LATENCY, LOADS = 10.0, (0.5, 0.9, 1.3, 2.0)
"""The latency objective in lone requests of the large network, and loads in what it bears of them one by one."""
PLAIN, CACHED = "cascade alone", "with caches inside"
LOADERS = """import sys
from pathlib import Path

sys.path[:0] = [{root!r}]
from benchmarks.caches.tasks import Task

import gearshift
from gearshift import caches

TASK = Task(Path({work!r}), {data}, {cifar!r}, {epochs}, {quick})


def load_samples():
    images, labels = TASK.images("test")
    return gearshift.Samples({{"images": images}}, labels=labels)


"""
LOADER = """def load_{size}():
    return TASK.network({size!r})


def load_{size}_cached():
    return caches.load({folder!r}, load_{size}(), lookups={lookups!r})


"""


@dataclass(frozen=True, slots=True)
class Way:
    """A cascade: which stages have caches, for which share of the loss allowed, and its threshold."""

    inside: tuple[str, ...]
    share: float
    threshold: float
    run: Run

    def __str__(self) -> str:
        return f"inside {' and '.join(self.inside)}, {self.share:g} of the loss" if self.inside else PLAIN


def ways(task: Task, lookups: Lookups, target: float, building: Images, choosing: np.ndarray) -> tuple[list[Way], Run]:
    """The cascade alone and those with caches, and the large network."""
    large = base_run(task.network("large"))
    base = classes_of(large, choosing)
    plain = {size: softened(base_run(task.network(size))) for size in SIZES}

    def way(inside: tuple[str, ...], share: float, cached: dict[str, Run]) -> Way:
        stages = [cached[size] if size in inside else plain[size] for size in SIZES]
        threshold = cascade_threshold(*stages, base, choosing, target)
        return Way(inside, share, threshold, cascaded(*stages, threshold))

    found = [way((), 0.0, {})]
    for share in SHARES:
        cached = {size: with_caches(task, size, building, lookups, 1 - (1 - target) * share) for size in SIZES}
        found += [way(inside, share, cached) for inside in INSIDE]
    return found, large


def with_caches(task: Task, size: str, images: Images, lookups: Lookups, accuracy: float) -> Run:
    """A stage with caches for that agreement, which then lie in its folder."""
    task.built(task.network(size), images, folder_of(task, size), accuracy=accuracy, lookups=lookups)
    return cached_run(caches.load(folder_of(task, size), task.network(size), lookups=lookups))


def fastest(found: list[Way], images: np.ndarray, cores: frozenset[int], rounds: int) -> Way:
    """The fastest of those with caches on these images, one by one; all are shown."""
    seconds = in_turn({str(one): Timed(one.run, cores) for one in found}, images, rounds=rounds)
    mean_s = {name: float(np.median(each.mean(axis=1))) for name, each in seconds.items()}
    print(f"\n\non {len(images)} images that choose, one by one:\n\n| caches | threshold | ms |\n|---|---|---|")
    for one in found:
        print(f"| {one} | {one.threshold:.3f} | {1e3 * mean_s[str(one)]:.3f} |")
    return min(found[1:], key=lambda one: mean_s[str(one)])


def folder_of(task: Task, size: str) -> Path:
    return task.caches_folder(size, "stage").resolve()


def profiled(task: Task, lookups: Lookups, cores: int) -> Profile:
    """The profile of all four models, with caches and without, through the real path."""
    folder = task.home.resolve() / f"{task.name}-project"
    folder.mkdir(parents=True, exist_ok=True)
    text = LOADERS.format(
        root=str(Path(__file__).resolve().parents[2]), work=str(task.work.resolve()),
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
    return gearshift.profile(folder / "gearshift.toml", out=folder / "profile", cores=(cores,))


def predicted(profile: Profile, models: tuple[str, ...], threshold: float, cores: int) -> tuple[float, float]:
    """Mean latency in seconds and accuracy of a cascade under little load, simulated."""
    plan = plan_by_hand(
        "images",
        (
            Gear(
                load_range=LoadRange(from_=0),
                cascades=alone("images", Cascade(models=models, thresholds=(threshold,))),
                replicas=tuple(
                    ReplicaSettings(replica=f"{model}-0", load_share=1.0, largest_batch_size=1)
                    for model in sorted(models)
                ),
            ),
        ),
        tuple(Replica(id=f"{model}-0", model=model, device_ids=("cpu-0",), cores=cores) for model in models),
        identical_devices(1, cores=cores),
        latency_s=10.0,
        profile_sha256=profile.sha256,
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
    print_head("| load, of the large model's | models | accuracy | p95 ms | cascade at that load |")
    for load in LOADS:
        trace = steady(load / large_s, seconds, seed=2)
        for name, models in (("without caches", SIZES), ("all", profile.models)):
            try:
                plan = gearshift.plan(of_models(profile, models), trace, latency_s=latency_s)
            except Infeasible:
                print(f"| {load:g} | {name} | no plan | | |")
                continue
            expected = plan.predictions["images"]
            *_, gear = (one for one in plan.pipelines["images"].gears if one.load_range.from_ <= trace.mean_qps)
            told = f"{expected.accuracy:.2%} | {1e3 * expected.latency_s.p95:.2f} | {', '.join(gear.cascade.models)}"
            print(f"| {load:g} | {name} | {told} |", flush=True)


def compare(options: argparse.Namespace, task: Task) -> None:
    cores = divided_cores(1)
    lookups: Lookups = options.lookups if cores is not None else "inline"
    torch.set_num_threads(1)
    own = frozenset({0}) if cores is None else cores.base
    rounds, rows = (2, 32) if options.quick else (options.rounds, options.rows)
    images, labels = task.images("build")
    kept = int(len(images) * (1 - CHOOSING))
    building, choosing = (images[:kept], labels[:kept]), images[kept:]
    found, large = ways(task, lookups, options.accuracy, building, choosing)
    alone, chosen = found[0], fastest(found, choosing[:rows], own, min(rounds, CHOOSING_ROUNDS))
    runs = {PLAIN: alone.run, CACHED: chosen.run}
    images, _ = task.images("test")
    base = classes_of(large, images)
    print(f"\nlookups {lookups}; the fastest with caches: {chosen}")
    for name, run in runs.items():
        print(f"{name:20} agrees with the large network on {agreement(run, base, images)}")
    timed = {name: Timed(run, own) for name, run in {"large alone": large, **runs}.items()}
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
    for size in SIZES:  # their folders hold those of the last share
        with_caches(task, size, building, lookups, 1 - (1 - options.accuracy) * chosen.share)
    profile = profiled(task, lookups, 1 if lookups == "inline" else 2)
    own_cores = profile.curves[0].cores
    print("\nsimulated from a profile, one request at a time, overheads of serving included:")
    simulated_s = []
    for name, way in ((PLAIN, alone), (CACHED, chosen)):
        models = tuple(f"{size}_cached" if size in way.inside else size for size in SIZES)
        mean_s, accuracy = predicted(profile, models, way.threshold, own_cores)
        simulated_s.append(mean_s)
        print(f"{name:20} {1e3 * mean_s:.3f} ms, accuracy {accuracy:.2%}")
    print(f"gain {simulated_s[0] / simulated_s[1]:.2f}")
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
