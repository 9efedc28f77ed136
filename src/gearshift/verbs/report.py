"""Write a page about a plan."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gearshift.errors import GearshiftError, require
from gearshift.gear import GearPlan
from gearshift.plans.plan_file import read_plan
from gearshift.plans.served import is_language_plan
from gearshift.profiles.engines.contexts import answerable
from gearshift.profiles.engines.engine_tables import engine_tables
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
    from gearshift.reporting.drawing.page import Section

UNKNOWN = "Without a trace nothing was simulated."
"""The note on a page of a plan whose trace is not known."""


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
    sections_of = report_tokens if is_language_plan(made) else report_rows
    how: Any = {"profile": profile, "replay": replay, "progress": progress, "notice": notice}
    sections, note = sections_of(Path(plan), made, arrivals, **how), "" if known else UNKNOWN
    progress("drawing the page", 1.0)
    write_atomically(Path(out), html_page(f"Gear plan for {', '.join(made.pipelines)}", note, sections).encode())
    return Path(out)


def report_rows(
    path: Path,
    plan: GearPlan,
    traces: Mapping[str, Trace],
    *,
    profile: ProfileOfPlan,
    replay: PathLike | None,
    progress: Progress,
    notice: Notice,
) -> "list[Section | None]":
    """Without `traces` nothing is simulated."""
    from gearshift.planner.largest_alone import largest_alone
    from gearshift.planner.one_alone import each_alone
    from gearshift.reporting.measured_file import read_measured
    from gearshift.reporting.rows_page import operator_sections, pipelines_sections
    from gearshift.reporting.shown import accuracy_of_gears, shown_of, shown_of_each

    if plan.is_plain:
        _, measured = plan_and_profile(path, profile)
        runs, largest, arrivals, others = [], None, traces.get(plan.name), []
        if arrivals is not None:
            progress("simulating the plan", 0.0)
            runs = [("gear plan", simulate(path, arrivals, profile=measured))]
            if arrivals.sha256 == plan.trace.sha256:
                with suppress(GearshiftError):  # the page is about the plan
                    largest = largest_alone(plan, measured, arrivals)
        if replay is not None:
            devices, slo_s = len(plan.hardware.devices), plan.pipeline.objective.latency_s
            of_gears = accuracy_of_gears(plan.pipeline)
            others = [read_measured(replay, "gear plan", slo_s=slo_s, devices=devices, of_gears=of_gears)]
        shown = shown_of(plan, measured, simulations=runs, others=others, largest=largest, trace=arrivals)
        return operator_sections(shown)
    what = "--profile is given, which is for a plan of one pipeline of one node"
    require(profile is None, what, remedy="leave --profile out")
    _refuse_replay(replay, "graphs or several pipelines")
    if not traces:
        return pipelines_sections(plan, shown_of_each(plan, {}))
    _, profiles, joint = plan_and_records(path)
    progress("simulating the plan", 0.0)
    run = simulate(plan, traces, profiles=profiles, joint=joint)
    alone = each_alone(plan, profiles, joint, traces, progress=progress)
    return pipelines_sections(plan, shown_of_each(plan, profiles, run, alone))


def report_tokens(
    path: Path,
    plan: GearPlan,
    traces: Mapping[str, Trace],
    *,
    profile: ProfileOfPlan,
    replay: PathLike | None,
    progress: Progress,
    notice: Notice,
) -> "list[Section | None]":
    """As `report_rows`."""
    from gearshift.planner.language.compared.alone import each_language_alone
    from gearshift.reporting.language.page import tokens_sections, tokens_shown

    _refuse_replay(replay, "language models")
    _, measured = plan_and_language_profile(path, profile)
    if not traces:
        return tokens_sections(tokens_shown(plan, measured), measured)
    arrivals, left_out = answerable(traces[plan.name], engine_tables(plan, measured).engines)
    for told in left_out:
        notice(told)
    progress("simulating the plan", 0.0)
    run = simulate_language(path, arrivals, profile=measured)
    alone = each_language_alone(plan, measured, arrivals)
    return tokens_sections(tokens_shown(plan, measured, run, alone), measured)


def _refuse_replay(replay: PathLike | None, about: str) -> None:
    require(
        replay is None,
        f"a page about {about} shows no measured run",
        where="--replay",
        remedy="leave it out, and use `gearshift validate`, which shows what is predicted beside what is measured",
    )
