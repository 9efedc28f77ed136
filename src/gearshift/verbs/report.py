"""Write a page about a plan."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from gearshift.errors import GearshiftError, require
from gearshift.gear import GearPlan
from gearshift.plans.plan_file import read_plan
from gearshift.plans.served import is_language_plan
from gearshift.profiles.engines.contexts import answerable
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.profile import Profile
from gearshift.support.files import PathLike, write_atomically
from gearshift.verbs.inputs import (
    Notice,
    Progress,
    by_pipeline,
    log,
    plan_and_profile,
    plan_and_records,
    silent,
    traces_for,
)
from gearshift.verbs.language.inputs import plan_and_language_profile
from gearshift.verbs.options import Option, ProfileOfPlan
from gearshift.verbs.simulate import simulate, simulate_language
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.largest_alone import LargestAlone
    from gearshift.reporting.drawing.page import Section


def report(
    plan: PathLike,
    out: PathLike,
    *,
    trace: Trace | PathLike | Mapping[str, Trace | PathLike] | None = None,
    profile: ProfileOfPlan = None,
    replay: Annotated[
        PathLike | None,
        Option(
            "Also show this measurement, over time too: what `gearshift replay` wrote with --json, or the .csv of its "
            "--log. Not for graphs, several pipelines or language models."
        ),
    ] = None,
    progress: Progress = silent,
    notice: Notice = log.warning,
) -> Path:
    """Write a self-contained HTML page about a plan, with a simulation of its trace or of `trace`.

    For several pipelines `trace` is a mapping that replaces some of the plan's own. Where the trace of
    some pipeline is known neither way the page has no simulation. `replay` is a file with a measured
    run, which is shown beside what is predicted. `notice` is called where the plan's own trace may have
    changed, and for requests that no language model can hold.
    """
    from gearshift.reporting.drawing.page import html_page

    made = read_plan(Path(plan))
    known = trace is not None or all(source.path for source in made.traces.values())
    arrivals = traces_for(made, plan, by_pipeline(made, trace), notice=notice) if known else {}
    sections_of = report_tokens if is_language_plan(made) else report_rows if made.is_plain else report_pipelines
    how = Given(profile, replay, progress, notice)
    sections, note = sections_of(Path(plan), made, arrivals, how)
    progress("drawing the page", 1.0)
    write_atomically(Path(out), html_page(f"Gear plan for {', '.join(made.pipelines)}", note, sections).encode())
    return Path(out)


class Given(NamedTuple):
    profile: ProfileOfPlan
    replay: PathLike | None
    progress: Progress
    notice: Notice


Made = tuple["list[Section | None]", str]
"""The sections of a page, and the note below its title."""


def report_rows(path: Path, plan: GearPlan, traces: Mapping[str, Trace], given: Given) -> Made:
    from gearshift.reporting.measured_file import read_measured
    from gearshift.reporting.rows_page import operator_sections
    from gearshift.reporting.shown import accuracy_of_gears, shown_of

    _, measured = plan_and_profile(path, given.profile)
    runs, largest, arrivals, others = [], None, traces.get(plan.name), []
    if arrivals is not None:
        given.progress("simulating the plan", 0.0)
        runs = [("gear plan", simulate(path, arrivals, profile=measured))]
        largest = _largest(plan, measured, arrivals) if arrivals.sha256 == plan.trace.sha256 else None
    if given.replay is not None:
        devices, slo_s = len(plan.hardware.devices), plan.pipeline.objective.latency_s
        of_gears = accuracy_of_gears(plan.pipeline)
        others = [read_measured(given.replay, "gear plan", slo_s=slo_s, devices=devices, of_gears=of_gears)]
    shown = shown_of(plan, measured, simulations=runs, others=others, largest=largest, trace=arrivals)
    return operator_sections(shown), ""


def _largest(plan: GearPlan, profile: Profile, arrivals: Trace) -> "LargestAlone | None":
    """None where it cannot be said: the page is about the plan."""
    from gearshift.planner.largest_alone import largest_alone

    try:
        return largest_alone(plan, profile, arrivals)
    except GearshiftError:
        return None


def report_pipelines(path: Path, plan: GearPlan, traces: Mapping[str, Trace], given: Given) -> Made:
    from gearshift.planner.one_alone import each_alone
    from gearshift.reporting.rows_page import pipelines_sections
    from gearshift.reporting.shown import shown_of_each

    what = "--profile is given, which is for a plan of one pipeline of one node"
    require(given.profile is None, what, remedy="leave --profile out")
    _refuse_replay(given.replay, "graphs or several pipelines")
    if not traces:
        return pipelines_sections(plan, shown_of_each(plan, {})), "Without a trace nothing was simulated."
    _, measured, joint = plan_and_records(path)
    given.progress("simulating the plan", 0.0)
    run = simulate(plan, traces, profiles=measured, joint=joint)
    alone = each_alone(plan, measured, joint, traces, progress=given.progress)
    return pipelines_sections(plan, shown_of_each(plan, measured, run, alone)), ""


def report_tokens(path: Path, plan: GearPlan, traces: Mapping[str, Trace], given: Given) -> Made:
    from gearshift.planner.language.compared.alone import each_language_alone
    from gearshift.reporting.language.page import tokens_sections, tokens_shown

    _refuse_replay(given.replay, "language models")
    _, measured = plan_and_language_profile(path, given.profile)
    if not traces:
        sections = tokens_sections(tokens_shown(plan, measured), measured)
        return sections, "Without a trace nothing was simulated for this page."
    arrivals, left_out = answerable(traces[plan.name], engine_tables(plan, measured).engines)
    for told in left_out:
        given.notice(told)
    given.progress("simulating the plan", 0.0)
    run = simulate_language(path, arrivals, profile=measured)
    alone = each_language_alone(plan, measured, arrivals)
    return tokens_sections(tokens_shown(plan, measured, run, alone), measured), ""


def _refuse_replay(replay: PathLike | None, about: str) -> None:
    require(
        replay is None,
        f"a page about {about} shows no measured run",
        where="--replay",
        remedy="leave it out, and use `gearshift validate`, which shows what is predicted beside what is measured",
    )
