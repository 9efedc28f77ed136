"""The demo from end to end: train, profile, plan, simulate, serve, replay, compare."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gearshift.demo.compiling import compiling
from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.planner.space.request import PlanRequest
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import Profile
from gearshift.result import ServingResult
from gearshift.support.files import write_atomically
from gearshift.traces.generate import bursty
from gearshift.traces.read import read_trace, write_trace
from gearshift.verbs.planning.operator import plan_request
from gearshift.verbs.planning.sources import source_file, trace_file
from gearshift.verbs.profile import profile as measure
from gearshift.verbs.rows.validate import Validation, validate
from gearshift.verbs.simulate import simulate
from gearshift.workload import Trace

BASE_LOAD = 0.6
PEAK_LOAD = 3.2
"""Shares of what the largest model alone can carry."""
BURSTS = 2
LEAST_MARGIN = 1.35
"""Router and load generator share one core here, and a small machine feels any other work."""
SEED = 1
GIVE_UP_S = 60.0

Tell = Callable[[str, float], None]

_PROJECT = """operator = "digits"
samples = "models.py:load_samples"

[models.tiny]
load = "models.py:load_tiny"

[models.small]
load = "models.py:load_small"

[models.medium]
load = "models.py:load_medium"

[models.large]
load = "models.py:load_large"

[profile]
batch_sizes = [1, 2, 4, 8, 16, 32]
repeats = 12
longest_s = 2.0
"""

_MODELS = '''"""Loaders of the demo's models and samples."""

from pathlib import Path

import gearshift
from gearshift.demo import task

TRAINED = Path(__file__).parent / "trained"


def load_samples():
    inputs, labels, groups = task.make_samples()
    return gearshift.Samples(inputs=inputs, labels=labels, groups=groups)


def load_tiny():
    return task.load(TRAINED, "tiny")


def load_small():
    return task.load(TRAINED, "small")


def load_medium():
    return task.load(TRAINED, "medium")


def load_large():
    return task.load(TRAINED, "large")
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """Results of the demo; `valid` if the load generator kept its schedule throughout.

    `smallest` is simulated alone. `refined` is None where no plan that refines keeps the latency;
    `better` is the one of `gears` and `refined` that is more accurate by part A, as `--policy best`
    chooses.
    """

    gears: Validation
    refined: Validation | None
    better: Validation
    largest: Validation
    smallest: ServingResult
    requests: int
    peak_qps: float
    largest_capacity_qps: float
    valid: bool
    report: Path


def run_demo(folder: Path, *, latency_s: float, trace_s: float, tell: Tell) -> DemoResult:
    """Run everything in `folder`; raises `InvalidInput` if scikit-learn is missing."""
    require_sklearn()
    from gearshift.planner.refine import search
    from gearshift.planner.refine.choice import is_better
    from gearshift.planner.search.optimal import PLANNER
    from gearshift.reporting.drawing.page import html_page
    from gearshift.reporting.rows_page import operator_sections
    from gearshift.reporting.shown import shown_of

    with compiling("--refine"):
        profile = _profile(folder, tell)
    capacity_qps = {model: _capacity_qps(profile, model) for model in profile.models}
    largest = min(profile.models, key=lambda m: capacity_qps[m])
    smallest = max(profile.models, key=lambda m: capacity_qps[m])
    low_qps, high_qps = (share * capacity_qps[largest] for share in (BASE_LOAD, PEAK_LOAD))
    write_trace(bursty(low_qps, high_qps, trace_s, bursts=BURSTS, seed=SEED), folder / "trace.csv")
    trace = read_trace(folder / "trace.csv")

    request = plan_request(
        profile,
        trace,
        latency_s=latency_s,
        least_margin=LEAST_MARGIN,
        profile_source=source_file(folder / "profile", folder / "plan.json", profile.sha256),
        trace_source=trace_file(folder / "trace.csv", folder / "plan.json", trace),
    )
    of_gears = PLANNER.plan(request, progress=lambda what, share: tell(f"planning: {what}", 0.40 + 0.05 * share))
    refining: GearPlan | None = None
    try:
        refining = search.PLANNER.plan(request, progress=lambda what, share: tell(what, 0.45 + 0.05 * share))
    except Infeasible:
        tell("no plan refines within the latency", 0.5)
    made = refining if refining is not None and is_better(refining, of_gears, request) else of_gears
    write_plan(made, folder / "plan.json")
    gears = validated("gear plan", of_gears, folder / "gears.json", trace, tell, 0.50)
    systems = {"gear plan": gears}
    refined: Validation | None = None
    if refining is not None:
        refined = validated("refinement", refining, folder / "refining.json", trace, tell, 0.66)
        systems["refinement"] = refined
    better = refined if refined is not None and made is refining else gears
    only_largest = validated(f"only {largest}", *_alone(request, largest, folder), trace, tell, 0.82)
    systems[f"only {largest}"] = only_largest
    only_smallest, path = _alone(request, smallest, folder)
    write_plan(only_smallest, path)
    simulated: Any = simulate(path, trace, seed=SEED)
    tell("writing the report", 0.99)
    own_first = sorted(systems.items(), key=lambda one: one[1] is not better)
    shown = shown_of(
        made,
        profile,
        simulations=[
            *((name, system.simulation) for name, system in own_first),
            (f"only {smallest}", simulated),
        ],
        replays=[(name, system.replay) for name, system in own_first],
        trace=trace,
    )
    note = f"{len(trace)} requests in {trace_s:g} s on one device of one core; "
    note += f"objective p95 within {latency_s * 1e3:g} ms."
    page = html_page("Gearshift demo: handwritten digits", note, operator_sections(shown))
    write_atomically(folder / "report.html", page.encode())
    return DemoResult(
        gears=gears,
        refined=refined,
        better=better,
        largest=only_largest,
        smallest=simulated.result(profile, latency_objective_s=latency_s),
        requests=len(trace),
        peak_qps=trace.peak_qps,
        largest_capacity_qps=capacity_qps[largest],
        valid=all(system.replay.valid for system in systems.values()),
        report=(folder / "report.html").resolve(),
    )


def require_sklearn() -> None:
    if importlib.util.find_spec("sklearn") is None:
        raise InvalidInput("the demo needs scikit-learn", remedy="run `pip install 'gearshift[demo]'`")


def _alone(request: PlanRequest, model: str, folder: Path) -> tuple[GearPlan, Path]:
    from gearshift.planner.search.optimal import single_model_plan

    return single_model_plan(request, model), folder / f"only-{model}.json"


def validated(
    name: str, plan: GearPlan, path: Path, trace: Trace, tell: Tell, share: float, length: float = 0.16
) -> Validation:
    """Write the plan, serve it and simulate the same, which is `length` of the demo from `share` on."""
    write_plan(plan, path)
    runs = validate(
        path,
        {"": trace},
        seed=SEED,
        longest_s=GIVE_UP_S,
        progress=lambda done, total: tell(f"serving and replaying: {name}", share + length * done / total),
    )
    return runs[plan.name]


def _profile(folder: Path, tell: Tell) -> Profile:
    from gearshift.demo import task

    write_atomically(folder / "gearshift.toml", _PROJECT.encode())
    write_atomically(folder / "models.py", _MODELS.encode())
    task.train(folder / "trained", lambda what: tell(what, 0.02))
    found = measure(
        folder / "gearshift.toml",
        out=folder / "profile",
        seed=SEED,
        progress=lambda what, share: tell(f"profiling: {what}", 0.05 + 0.35 * share),
    )
    assert isinstance(found, Profile)
    return found


def _capacity_qps(profile: Profile, model: str) -> float:
    curve = next(curve for curve in profile.curves if curve.model == model)
    seconds = curve.table_ns()[1:] / 1e9
    return float((np.arange(1, len(seconds) + 1) / seconds).max())
