"""A plan for models that have none: measured for seconds, and planned for what this machine carries."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, require
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Hardware, is_cuda
from gearshift.models.config import PROJECT_FILE, ProfileSettings, project_file
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.planner import planners
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.curves import strongest_model
from gearshift.profiles.profile import Profile, RunTimeCurve
from gearshift.support.files import write_atomically
from gearshift.support.numbers import milliseconds
from gearshift.support.processors import usable_processors
from gearshift.verbs.common.inputs import Notice, Progress, silent
from gearshift.verbs.kinds.registry import kind_of_project
from gearshift.verbs.planning.hardware import profiled_devices
from gearshift.verbs.planning.operator import plan_request
from gearshift.verbs.planning.sources import source_file
from gearshift.verbs.quick.example import example_of_json, example_of_model
from gearshift.verbs.quick.sources import Found
from gearshift.verbs.rows.profile import profile_one

BATCH_SIZES = (1, 2, 4, 8, 16, 32)
LIGHT = ProfileSettings(batch_sizes=BATCH_SIZES, repeats=5, longest_s=0.5)
MOST_SAMPLES = 500
ROWS = 64
"""Copies of an example, where there are no samples."""
MOST_DEVICES = 8
MEMORY_SHARE = 0.5
LEAST_LATENCY_S, TIMES_THE_SLOWEST = 0.1, 4
"""Without an objective, 95 % of requests must be within this, or so many times what one takes in the slowest model."""
LOAD_SHARE, MOST_QPS = 0.6, 2000.0
"""The top of the load planned for, as a share of what the fastest model carries."""
STEPS = 12
HALVINGS = 3
RANGES = 8
LONGEST_SEARCH_S = 20.0
NEARLY = 1.05
SHARE_OF_PROFILE = 0.6

EXAMPLE = '''"""One row that the models take, over and over: it says nothing of how often they are right."""

from pathlib import Path
from typing import Any

import numpy as np

import gearshift


def load_samples():
    with np.load(Path(__file__).with_name("example.npz")) as row:
        return gearshift.Samples({{name.removeprefix("input "): np.repeat(row[name], {rows}, axis=0) for name in row}})
'''


def plan_models(
    found: Found,
    folder: Path,
    *,
    latency_s: float | None = None,
    accuracy: float | None = None,
    samples: str | None = None,
    example: str | None = None,
    progress: Progress = silent,
    notice: Notice = lambda text: None,
) -> Path:
    """Measure the models that were found, and plan for them; returns the plan's file in `folder`.

    `samples` (`file.py:function`) are those of `found` by default. Without any, a model is measured
    on `example`, one record as JSON, or on what it says that it takes, and served alone. Labelled
    samples let several models be gears, for `latency_s` or `accuracy`, or else for the highest load
    at a latency that follows from the models. A plan of one model predicts no accuracy. Raises
    `InvalidInput`, `ModelFailed` and `Infeasible`, each with what to do.
    """
    project = found.project
    if project is None:
        project = write_project(found, folder, samples=samples, example=example)
    else:
        given = "--samples" if samples is not None else "--example" if example is not None else ""
        require(not given, f"names samples, and {given} is given", where=str(project), remedy=f"leave {given} out")
        project = project_file(project)
        kind_of_project(project).require_light(project)
    made = profile_one(
        project,
        how=LIGHT,
        out=folder / "profile",
        most_samples=MOST_SAMPLES,
        notice=lambda text: None,
        progress=lambda what, share: progress(f"measuring: {what}", SHARE_OF_PROFILE * share),
    )
    out = folder / "plan.json"
    chosen = _only_model(made, accuracy, notice)
    hardware = profiled_devices(made, device_count(made))
    if chosen is not None:
        write_plan(plan_of_one(made, chosen, hardware, latency_s, out), out)
        return out
    if latency_s is None and accuracy is None:
        slowest_s = max(curve.p95_s[0] + curve.overhead_per_batch_s for curve in made.curves)
        latency_s = max(LEAST_LATENCY_S, TIMES_THE_SLOWEST * (slowest_s + made.front_end_s))
        notice(f"no --p95-ms is given: the gears are planned for {milliseconds(latency_s)}")
    gears = plan_gears(
        folder,
        highest_load_qps(made, hardware, latency_s),
        lambda what, share: progress(f"planning: {what}", SHARE_OF_PROFILE + (1 - SHARE_OF_PROFILE) * share),
        latency_s=latency_s,
        accuracy=accuracy,
        devices=hardware,
    )
    write_plan(gears, out)
    return out


def plan_gears(folder: Path, top_qps: float, progress: Progress, **asked: Any) -> GearPlan:
    """Plan for loads up to `top_qps`, or where that is infeasible up to a half, a quarter or an eighth of it."""
    trace = folder / "trace.csv"
    for halvings in range(HALVINGS + 1):
        write_atomically(trace, rising_load(top_qps / 2**halvings))
        request = plan_request(
            folder / "profile",
            trace,
            out=folder / "plan.json",
            ranges=RANGES,
            budget_s=LONGEST_SEARCH_S,
            **asked,
        )
        began_s = time.monotonic()
        try:
            made = planners.plan(planners.DEFAULT, request, progress=progress)
        except Infeasible:
            if halvings == HALVINGS:
                raise
            continue
        if made.unfinished and time.monotonic() - began_s < 0.9 * LONGEST_SEARCH_S:
            raise KeyboardInterrupt  # it ends the command, and not the search alone
        return made
    raise AssertionError("unreachable")


def write_project(found: Found, folder: Path, *, samples: str | None, example: str | None) -> Path:
    """Write the gearshift.toml of models that were found, and an example where there are no samples."""
    require(samples is None or example is None, "--samples and --example are both given", remedy="give one of them")
    reference = found.samples if samples is None else _absolute(samples)
    path = folder / PROJECT_FILE
    if example is not None or not reference:
        reference = "example.py:load_samples"
        (folder / "example.py").write_text(EXAMPLE.format(rows=ROWS))
    text = f'operator = "{found.name}"\nsamples = {_quoted(reference)}\n'
    for model, load in found.models.items():
        text += f'\n[models."{model}"]\nload = {_quoted(load)}\n'
    path.write_text(text)
    if reference.startswith("example.py"):
        row = example_of_model(path, next(iter(found.models))) if example is None else example_of_json(example)
        texts = {name: array.astype(np.str_) if array.dtype.kind == "O" else array for name, array in row.items()}
        np.savez(folder / "example.npz", **{f"input {name}": row for name, row in texts.items()})  # type: ignore[arg-type]
    return path


def _absolute(reference: str) -> str:
    file, colon, function = reference.rpartition(":")
    usable = bool(colon) and file.endswith(".py") and function.isidentifier()
    require(usable, f"is {reference!r}", where="--samples", remedy="write it as file.py:function")
    return f"{Path(file).resolve()}:{function}"


def _quoted(text: str) -> str:
    """As a string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def device_count(profile: Profile) -> int:
    """The number of devices like the profiled one: as many as processors and half of the free memory carry."""
    if any(is_cuda(curve.device_kind) for curve in profile.curves):
        return 1
    memory_bytes = max(1, sum(curve.memory_bytes for curve in profile.curves))
    by_memory = int(MEMORY_SHARE * psutil.virtual_memory().available / memory_bytes)
    return max(1, min(usable_processors() - 1, by_memory, MOST_DEVICES))


def _only_model(profile: Profile, accuracy: float | None, notice: Notice) -> str | None:
    """The model to serve alone; None where several can be judged."""
    models, labelled = profile.models, profile.predictions.labelled
    if len(models) > 1 and labelled:
        return None
    require(
        accuracy is None or labelled,
        "--accuracy is given, and there are no labelled samples to measure it on",
        remedy="give some with --samples, or leave --accuracy out",
    )
    require(
        accuracy is None,
        "--accuracy is given, and one model has the accuracy that it has",
        remedy="leave it out, or give several models",
    )
    if len(models) == 1:
        return models[0]
    slowest = strongest_model(profile.curves, {})
    notice(
        f"there are no labelled samples, so nothing says which model is right more often: the slowest of "
        f"{', '.join(models)} is served alone, {slowest}; labelled samples (--samples) make gears of all"
    )
    return slowest


def plan_of_one(profile: Profile, model: str, hardware: Hardware, latency_s: float | None, out: Path) -> GearPlan:
    """A plan of one gear, in which replicas of `model` on all devices share the load; it predicts nothing."""
    (curve,) = [each for each in profile.curves if each.model == model and each.segment == 0][:1]
    ids = [f"{model}@{device.id}" for device in hardware.devices]
    size, name = batch_size(curve, latency_s), profile.operator
    replicas = [
        Replica(id=one, model=model, device_ids=(device.id,), cores=device.cores)
        for one, device in zip(ids, hardware.devices, strict=True)
    ]
    settings = [
        ReplicaSettings(replica=one, load_share=1 / len(ids), largest_batch_size=size, cores=curve.cores) for one in ids
    ]
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades=alone(name, Cascade(models=(model,))),
        replicas=tuple(settings),
    )
    pipeline = PipelinePlan(
        nodes={name: Node(operator=name)}, output=name, objective=Objective(latency_s=latency_s), gears=(gear,)
    )
    return GearPlan(
        planner="none",
        hardware=hardware,
        placement=Placement(replicas=tuple(replicas)),
        pipelines={name: pipeline},
        profiles={name: source_file(out.parent / "profile", out, profile.sha256)},
        traces={name: SourceFile(path="", sha256="")},
    )


def batch_size(curve: RunTimeCurve, latency_s: float | None) -> int:
    """The smallest batch that is nearly as fast by the sample as the fastest, and within half of `latency_s`.

    The other half is for the batch that runs already.
    """
    fits = [
        (size, median_s / size)
        for size, median_s, p95_s in zip(curve.batch_sizes, curve.median_s, curve.p95_s, strict=True)
        if latency_s is None or 2 * p95_s <= latency_s
    ]
    if not fits:
        return curve.batch_sizes[0]
    best_s = min(each_s for _, each_s in fits)
    return next(size for size, each_s in fits if each_s <= NEARLY * best_s)


def highest_load_qps(profile: Profile, hardware: Hardware, latency_s: float | None) -> float:
    """A share of what the fastest model carries in batches that `latency_s` allows, with what surrounds them."""
    fastest_s = min(
        (median_s + curve.overhead_per_batch_s) / size + curve.overhead_per_request_s
        for curve in profile.curves
        for size, median_s in zip(curve.batch_sizes, curve.median_s, strict=True)
        if size <= batch_size(curve, latency_s)
    )
    routed = MOST_QPS if profile.router_s == 0 else 1 / profile.router_s
    return max(1.0, min(LOAD_SHARE * min(len(hardware.devices) / fastest_s, routed), MOST_QPS))


def rising_load(top_qps: float) -> bytes:
    """A trace of seconds whose load rises to `top_qps`, as nobody has said what load to expect."""
    lines = [f"{second},{max(1, round(top_qps * (second + 1) / STEPS))}" for second in range(STEPS)]
    return "\n".join(["second,requests", *lines, ""]).encode()
