"""Write a page about a plan."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gearshift.errors import GearshiftError, require
from gearshift.gear import GearPlan
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.profile import Profile
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Progress, plan_and_records, silent, trace_for, traces_for
from gearshift.verbs.common.options import Option, ProfileOfPlan
from gearshift.verbs.kinds.registry import kind_of_plan
from gearshift.verbs.tokens.inputs import plan_and_language_profile, plans_language
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.largest_alone import LargestAlone


def report(
    plan: PathLike,
    out: PathLike,
    *,
    trace: Trace | PathLike | None = None,
    profile: ProfileOfPlan = None,
    replay: Annotated[
        PathLike | None,
        Option(
            "Also show this measurement, over time too: what `gearshift replay` wrote with --json, or the .csv of its "
            "--log. Not for graphs, several pipelines or language models."
        ),
    ] = None,
) -> Path:
    """Write a self-contained HTML page about a plan, with a simulation of its trace or of `trace`.

    Without any trace the page has no simulation. `replay` is a file with a measured run, which is
    shown beside what is predicted. Plans of language models have a page in tokens.
    """
    if plans_language(plan):
        require(
            replay is None,
            "a page about language models shows no measured run",
            where="replay",
            remedy="leave it out, and use `gearshift validate`, which shows what is predicted beside what is measured",
        )
        return _of_language(Path(plan), Path(out), trace, profile)
    from gearshift.reporting.content import accuracy_of_gears, compose
    from gearshift.reporting.measured_file import read_measured
    from gearshift.reporting.report_page import write_report

    made, records = kind_of_plan(plan).kind.inputs(plan, profile=profile)[1:]
    measured = records.only
    arrivals = trace_for(made, plan, trace) if trace is not None or made.trace.path else None
    runs = () if arrivals is None else (("gear plan", _simulated(made, {made.name: arrivals}, profile=measured)),)
    is_own = arrivals is not None and arrivals.sha256 == made.trace.sha256
    measured_runs = []
    if replay is not None:
        devices, slo_s = len(made.hardware.devices), made.pipeline.objective.latency_s
        of_gears = accuracy_of_gears(made.pipeline)
        measured_runs.append(read_measured(replay, "gear plan", slo_s=slo_s, devices=devices, of_gears=of_gears))
    content = compose(
        made,
        measured,
        title=f"Gear plan for {made.name}",
        simulations=runs,
        others=measured_runs,
        largest=_largest(made, measured, arrivals) if arrivals is not None and is_own else None,
        trace=arrivals,
    )
    write_report(Path(out), content)
    return Path(out)


def _simulated(plan: GearPlan, traces: Mapping[str, Trace], **records: Any) -> Any:
    kind = kind_of_plan(plan).kind
    return kind.simulate(kind.inputs(plan, **records), traces)


def _largest(plan: GearPlan, profile: Profile, arrivals: Trace) -> "LargestAlone | None":
    """None where it cannot be said: the page is about the plan."""
    from gearshift.planner.largest_alone import largest_alone

    try:
        return largest_alone(plan, profile, arrivals)
    except GearshiftError:
        return None


def _of_language(plan: Path, out: Path, trace: Trace | PathLike | None, profile: ProfileOfPlan) -> Path:
    from gearshift.planner.language.compared.alone import each_language_alone
    from gearshift.reporting.language.page import write_language_page

    made, measured = plan_and_language_profile(plan, profile)
    if trace is None and not made.trace.path:
        write_language_page(out, made, measured)
        return out
    arrivals = trace_for(made, plan, trace)
    run = _simulated(made, {made.name: arrivals}, profile=measured)
    write_language_page(out, made, measured, run, each_language_alone(made, measured, arrivals))
    return out


def report_pipelines(
    plan: PathLike,
    out: PathLike,
    *,
    traces: Mapping[str, Trace | PathLike] | None = None,
    simulated: bool = True,
    progress: Progress = silent,
) -> Path:
    """As `report`, for graphs and for several pipelines: the graph of each, its gears, charts and time.

    `traces` replace some of those that the plan names. Without `simulated` nothing is served, and
    the page has no numbers of a run.
    """
    from gearshift.planner.one_alone import each_alone
    from gearshift.reporting.pipelines_page import simulated as as_simulated
    from gearshift.reporting.pipelines_page import write_pipelines_page

    made, measured, joint = plan_and_records(plan) if simulated else (read_plan(Path(plan)), {}, {})
    found = {}
    if simulated:
        arrivals = traces_for(made, plan, traces)
        progress("simulating the plan", 0.0)
        run = _simulated(made, arrivals, profiles=measured, joint=joint)
        found = as_simulated(made, measured, run, each_alone(made, measured, joint, arrivals, progress=progress))
    progress("drawing the page", 1.0)
    write_pipelines_page(Path(out), made, found)
    return Path(out)
