"""The demo of a pipeline from end to end: init, train, profile, plan jointly and apart, serve, replay, compare."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gearshift.demo.compiling import compiling
from gearshift.demo.run import BURSTS, LEAST_MARGIN, SEED, Tell, require_sklearn, validated
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.models.config import PROJECT_FILE
from gearshift.objective import Objective
from gearshift.planner.space.hosts import device_seconds
from gearshift.profiles.pipelines.profile_folder import Profiles
from gearshift.result import ServingResult
from gearshift.support.files import write_atomically
from gearshift.traces.generate import bursty
from gearshift.traces.read import read_trace, write_trace
from gearshift.verbs.init import strip_of_digits
from gearshift.verbs.init.write_project import MODELS_FILE
from gearshift.verbs.planning.graph import pipeline_request
from gearshift.verbs.profile import profile
from gearshift.verbs.rows.validate import Validation

NAME = "digits"
BASE_LOAD, PEAK_LOAD = 0.4, 2.0
"""Shares of what the most accurate models alone can carry."""
MEASURED_S = 0.5
"""The longest that a batch size is timed, in place of the project's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDemoResult:
    """Results of the demo; without a plan made `apart`, `why_not_apart` is a sentence.

    `without_replanning` is what the joint plan is predicted to get if no gear chooses by the time
    left, on the same trace; None where none does.
    """

    joint: Validation
    joint_planned: ServingResult
    without_replanning: ServingResult | None
    apart: Validation | None
    why_not_apart: str
    requests: int
    peak_qps: float
    dearest_capacity_qps: float
    report: Path

    @property
    def systems(self) -> Mapping[str, Validation]:
        return {"joint": self.joint} | ({} if self.apart is None else {"apart": self.apart})

    @property
    def valid(self) -> bool:
        """Whether the load generator kept its schedule throughout."""
        return all(system.replay.valid for system in self.systems.values())


def run_pipeline_demo(folder: Path, *, latency_s: float, trace_s: float, tell: Tell) -> PipelineDemoResult:
    """Run everything in `folder`; raises `InvalidInput` without scikit-learn, `Infeasible` if no plan keeps up."""
    require_sklearn()
    from gearshift.planner.baselines.of_graphs import APART
    from gearshift.planner.joint.candidates import candidates_of
    from gearshift.planner.joint.replanning.search import plan_pipeline

    with compiling("--graphs"), compiling():
        measured = _profiled(folder, tell)
        tell("compiling the simulator, once after an install", 0.40)
    dearest_qps = _dearest_capacity_qps(measured)
    made = bursty(BASE_LOAD * dearest_qps, PEAK_LOAD * dearest_qps, trace_s, bursts=BURSTS, seed=SEED)
    write_trace(made, folder / "trace.csv")
    trace = read_trace(folder / "trace.csv")
    request = pipeline_request(
        folder / "profile",
        folder / "trace.csv",
        objective=Objective(latency_s=latency_s),
        out=folder / "joint.json",
        least_margin=LEAST_MARGIN,
    )
    tell("planning all operators jointly", 0.45)
    front = candidates_of(request)
    joint = plan_pipeline(request, front)
    choosing = any(gear.timed for gear in joint.pipeline.gears)
    plain = plan_pipeline(replace(request, replanning=False), front) if choosing else None
    tell("planning each operator apart", 0.55)
    apart, why_not = None, ""
    try:
        apart = APART.plan(request)
    except Infeasible as error:
        why_not = f"planned apart, there is no plan: {error}"

    def served(name: str, made: GearPlan, share: float) -> Validation:
        return validated(f"planned {name}", made, folder / f"{name}.json", trace, tell, share, 0.19)

    demo = PipelineDemoResult(
        joint_planned=joint.predictions[NAME],
        without_replanning=None if plain is None else plain.predictions[NAME],
        joint=served("joint", joint, 0.60),
        apart=None if apart is None else served("apart", apart, 0.80),
        why_not_apart=why_not,
        requests=len(trace),
        peak_qps=trace.peak_qps,
        dearest_capacity_qps=dearest_qps,
        report=(folder / "report.html").resolve(),
    )
    tell("writing the report", 0.99)
    _write_report(demo, joint, measured)
    return demo


def _write_report(demo: PipelineDemoResult, plan: GearPlan, measured: Profiles) -> None:
    from gearshift.reporting.drawing.page import html_page
    from gearshift.reporting.rows_page import pipelines_sections
    from gearshift.reporting.runs import measured_series, predicted_series
    from gearshift.reporting.shown import shown_of_each

    profiles, slo_s = measured.operators, plan.pipeline.objective.latency_s
    runs = []
    for name, system in demo.systems.items():
        title = f"planned {name}"
        runs += [predicted_series(title, system.simulation, profiles, slo_s), measured_series(title, system.replay)]
    (shown,) = shown_of_each(plan, profiles, demo.joint.simulation)
    note = f"{demo.requests} strips, up to {demo.peak_qps:.0f}/s, on one device of one core. {demo.why_not_apart}"
    sections = pipelines_sections(plan, [replace(shown, runs=runs)])
    write_atomically(demo.report, html_page("Gearshift demo: strips of handwritten digits", note, sections).encode())


def _profiled(folder: Path, tell: Tell) -> Profiles:
    project = strip_of_digits.PROJECT.replace("longest_s = 2.0", f"longest_s = {MEASURED_S}")
    write_atomically(folder / PROJECT_FILE, project.encode())
    write_atomically(folder / MODELS_FILE, strip_of_digits.MODELS.encode())
    found = profile(
        folder / PROJECT_FILE,
        out=folder / "profile",
        seed=SEED,
        progress=lambda what, share: tell(f"training and profiling: {what}", 0.02 + 0.38 * share),
    )
    assert isinstance(found, Profiles)
    return found


def _dearest_capacity_qps(measured: Profiles) -> float:
    """Strips a second that one device carries with the dearest model of each operator, in its best batches."""
    items, pipeline = measured.items_by_node(NAME), measured.pipelines[NAME]
    work_s = 0.0
    for name, node in pipeline.nodes.items():
        dearest_s = max(device_seconds(curve) for curve in measured.operators[node.operator].whole_curves)
        work_s += items[name] / pipeline.requests * dearest_s
    return 1 / work_s
