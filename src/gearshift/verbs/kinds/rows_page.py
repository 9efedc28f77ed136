"""The sections of a page about a plan of rows."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gearshift.errors import GearshiftError
from gearshift.gear import GearPlan
from gearshift.planner.largest_alone import largest_alone
from gearshift.planner.one_alone import each_alone
from gearshift.reporting.measured_file import read_measured
from gearshift.reporting.rows_page import operator_sections, pipelines_sections
from gearshift.reporting.shown import accuracy_of_gears, shown_of, shown_of_each
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Progress
from gearshift.verbs.kinds.kind import Inputs, Kind, Traces

if TYPE_CHECKING:
    from gearshift.reporting.drawing.page import Section


def sections_of_operator(
    kind: Kind, inputs: Inputs, traces: Traces, *, replay: PathLike | None, progress: Progress
) -> "list[Section | None]":
    plan, measured = inputs.plan, inputs.records.only
    runs: list[tuple[str, Any]] = []
    largest, others, arrivals = None, [], traces.get(plan.name)
    if arrivals is not None:
        progress("simulating the plan", 0.0)
        runs = [("gear plan", kind.simulate(inputs, traces))]
        if arrivals.sha256 == plan.trace.sha256:
            with suppress(GearshiftError):  # the page is about the plan
                largest = largest_alone(plan, measured, arrivals)
    if replay is not None:
        devices, slo_s = len(plan.hardware.devices), plan.pipeline.objective.latency_s
        of_gears = accuracy_of_gears(plan.pipeline)
        others = [read_measured(replay, "gear plan", slo_s=slo_s, devices=devices, of_gears=of_gears)]
    shown = shown_of(plan, measured, simulations=runs, others=others, largest=largest, trace=arrivals)
    return operator_sections(shown)


def sections_of_plan(plan: GearPlan) -> "list[Section | None]":
    """Nothing is simulated."""
    return pipelines_sections(plan, shown_of_each(plan, {}))


def sections_of_pipelines(kind: Kind, inputs: Inputs, traces: Traces, *, progress: Progress) -> "list[Section | None]":
    plan, (profiles, joint) = inputs.plan, inputs.records
    progress("simulating the plan", 0.0)
    run = kind.simulate(inputs, traces)
    alone = each_alone(plan, profiles, joint, traces, progress=progress)
    return pipelines_sections(plan, shown_of_each(plan, profiles, run, alone))
