"""Plan one pipeline of several nodes as one."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET

from gearshift.errors import require
from gearshift.gear import GearPlan, SourceFile
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.profiles.pipelines.profile_folder import Profiles, read_profiles
from gearshift.profiles.several import as_one
from gearshift.support.files import PathLike
from gearshift.traces.read import read_trace
from gearshift.verbs.common.inputs import Progress, pipeline_of
from gearshift.verbs.planning.hardware import hardware_of
from gearshift.verbs.planning.sources import profile_sources, trace_file
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.joint.request import PipelineRequest


def plan(
    profiles: Profiles | PathLike,
    trace: Trace | PathLike,
    *,
    planner: str,
    fewest: bool = False,
    frontier: bool = False,
    progress: Progress,
    latency_s: float,
    accuracy: float | None = None,
    confidence: float | None = None,
    recall: float | None = None,
    precision: float | None = None,
    positive: str | None = None,
    percentile: float = 0.95,
    budgets: Literal["equal", "proportional"] | None = None,
    without_replanning: bool = False,
    **asked: Any,
) -> GearPlan:
    """The most accurate plan of a pipeline that is found, for `percentile` of requests within `latency_s`.

    With `confidence` each gear keeps the accuracy, and the `recall` and `precision` of the class
    `positive` of the answers, with that confidence, and the plan has a certificate. Raises
    `Infeasible`, which names the range, the node and the model that bind, or how many labels are lacking.

    Gears choose among several cascades by the time left where simulation says that it helps, but not
    `without_replanning`, nor with a certificate, which is for the tuples that were tested. Of the
    baselines `greedy` keeps the objective, with plain gears, and `apart` need not. With `budgets` the
    plan is another baseline: one gear whose nodes choose a model by a share of the time left (Gati
    section 5.2), whether or not that keeps the objective.
    """
    promised = any(value is not None for value in (confidence, recall, precision))
    _require_possible(planner, budgets, promised=promised, plain=without_replanning)
    require(
        accuracy is None or planner != "apart",
        "an accuracy is given, and operators that are planned apart promise none",
        remedy="leave it out, or --planner",
    )
    objective = Objective(
        percentile=percentile,
        latency_s=latency_s,
        accuracy=accuracy,
        confidence=confidence,
        recall=UNSET if recall is None else recall,
        precision=UNSET if precision is None else precision,
        positive=UNSET if positive is None else positive,
    )
    request = pipeline_request(profiles, trace, objective=objective, replanning=not without_replanning, **asked)
    return _found(request, planner, budgets, promised=promised, progress=progress)


def _require_possible(planner: str, budgets: str | None, *, promised: bool, plain: bool) -> None:
    planners.require_planner(planner, "rows", "graph")
    require(not (promised and budgets), "budgets keep no promise", remedy="leave out --budgets, or what is promised")
    require(
        budgets is None or not plain,
        "budgets are ways to choose by the time left, and no such choice is wanted",
        remedy="leave out --budgets, or --without-replanning",
    )
    for what, given in (("budgets are given", budgets is not None), ("a certificate is wanted", promised)):
        require(
            not given or planner == planners.default_for("rows", "graph"),
            f"{what}, and planner {planner!r} plans without",
            remedy="leave one of them out",
        )


def _found(
    request: "PipelineRequest",
    planner: str,
    budgets: Literal["equal", "proportional"] | None,
    *,
    promised: bool,
    progress: Progress,
) -> GearPlan:
    from gearshift.planner.joint.candidates import candidates_of, single_models
    from gearshift.planner.joint.certified import certified_tuples, with_certificate
    from gearshift.planner.joint.replanning.choices import plan_by_budgets
    from gearshift.planner.joint.replanning.search import plan_pipeline as search

    progress("finding the joint front of tuples", 0.05)
    if budgets is not None:
        return plan_by_budgets(request, candidates_of(request, chains=single_models), budgets)
    if not promised:
        return planners.plan(planner, request, progress=progress)
    certified = certified_tuples(request, candidates_of(request))
    progress(f"choosing among {len(certified)} tuples that passed", 0.2)
    tested = [one.candidate for one in certified]
    return with_certificate(search(replace(request, replanning=False), tested), request, certified)


def pipeline_request(
    profiles: Profiles | PathLike,
    trace: Trace | PathLike,
    *,
    objective: Objective,
    pipeline: str | None = None,
    devices: int | Hardware | PathLike | None = None,
    memory_bytes: int | None = None,
    price_per_hour: str | float | None = None,
    profile_source: Mapping[str, SourceFile] | None = None,
    trace_source: SourceFile | None = None,
    out: PathLike | None = None,
    **asked: Any,
) -> "PipelineRequest":
    from gearshift.planner.joint.request import PipelineRequest

    measured = profiles if isinstance(profiles, Profiles) else read_profiles(profiles)
    named = profile_source or profile_sources([] if isinstance(profiles, Profiles) else [Path(profiles)], measured, out)
    name = pipeline_of(measured, pipeline)
    recorded = measured.pipelines[name]
    operators = {node.operator: measured.operators[node.operator] for node in recorded.nodes.values()}
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    return PipelineRequest(
        name=name,
        nodes=recorded.nodes,
        edges=recorded.edges,
        output=recorded.output,
        profiles=operators,
        records=measured.tuples[name],
        trace=arrivals,
        hardware=hardware_of(devices or 1, as_one(operators), memory_bytes=memory_bytes, price=price_per_hour),
        objective=objective,
        profile_sources={each: named[each] for each in operators},
        trace_source=trace_source or trace_file(trace, out, arrivals),
        **{key: value for key, value in asked.items() if value is not None},
    )
