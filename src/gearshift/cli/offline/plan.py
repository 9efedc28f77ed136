"""`gearshift plan`."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.named import Named, NamedNumber, Repeated, by_operator, require_only, the_last
from gearshift.cli.common.option_table import PATH, options_of, require_positive
from gearshift.cli.common.options import (
    TRACE_OPTIONS,
    given_options,
    read_traces,
    require_apart,
    require_one_latency,
    require_supported,
    seconds_of,
    traces_options,
)
from gearshift.cli.common.output import Output, verb
from gearshift.cli.common.view import Planned
from gearshift.cli.views.shown import show
from gearshift.errors import Infeasible, require
from gearshift.gear import GearPlan
from gearshift.planner import planners
from gearshift.plans.plan_file import write_plan
from gearshift.plans.plan_folder import plan_name, require_plans_replaceable
from gearshift.profiles.store import REMEDY as PROFILE_FIRST
from gearshift.support.files import require_writable
from gearshift.verbs.common.inputs import Progress
from gearshift.verbs.kinds.kind import Need
from gearshift.verbs.kinds.registry import kind_of_profile
from gearshift.verbs.plan import plan, plan_frontier
from gearshift.verbs.planning.options import DeviceOptions
from gearshift.verbs.planning.sources import profile_sources, trace_sources
from gearshift.workload import Trace


@click.command("plan")
@click.argument("profiles", type=PATH, nargs=-1, required=True, metavar="PROFILE...")
@traces_options
@options_of(DeviceOptions)
@click.option(
    "--p95-ms",
    cls=Repeated,
    type=NamedNumber(),
    help="95 % of requests must be answered within this many milliseconds; NAME=100 for one of several operators.",
)
@click.option("--latency-ms", cls=Repeated, type=NamedNumber(), help="As --p95-ms, for another --percentile.")
@click.option("--percentile", type=float, help="The share of requests that must be within --latency-ms.")
@click.option("--frontier", is_flag=True, help="All undominated plans, as a folder of plan files; takes no objective.")
@click.option(
    "--accuracy",
    cls=Repeated,
    type=NamedNumber(),
    help="The accuracy that must be reached, from 0 to 1; NAME=0.9 for one of several operators.",
)
@click.option(
    "--worth",
    cls=Repeated,
    type=NamedNumber(),
    help="NAME=2: where several operators refine, an accuracy point of this one counts as two of the others.",
)
@click.option(
    "--planner",
    type=click.Choice([*planners.for_(), *planners.for_("rows", "graph")]),
    help=f"The planner that searches  [default: {planners.DEFAULT}]; of several operators one of "
    f"{', '.join(planners.for_('rows', 'several'))}; of a pipeline of several nodes one of "
    f"{', '.join(planners.for_('rows', 'graph'))}  [default: {planners.default_for('rows', 'graph')}].",
)
@options_of(plan, without={*DeviceOptions.__annotations__, "accuracy", "planner"})
@click.option(
    "--with",
    "beside",
    type=PATH,
    metavar="FILE",
    help="Add the operators to this plan: its pipelines stay as they are, on its devices.",
)
@click.option(
    "--what-if",
    is_flag=True,
    help="Also plan for up to two devices fewer and more, and show what they cost; takes longer; not for several"
    " operators.",
)
@click.option("--out", type=PATH, help="The plan file to write, or the folder [default: plan.json, or plans].")
@verb
def command(
    output: Output,
    profiles: tuple[Path, ...],
    trace: tuple[str, ...],
    p95_ms: tuple[Named[float], ...],
    latency_ms: tuple[Named[float], ...],
    accuracy: tuple[Named[float], ...],
    worth: tuple[Named[float], ...],
    frontier: bool,
    what_if: bool,
    out: Path | None,
    **options: Any,
) -> None:
    """Search for the gear plan that is best for an objective, from PROFILE and a trace.

    With --p95-ms, find the most accurate plan within it; with --accuracy, the fastest that reaches
    it; with both and without --devices, the plan on the fewest devices that meets both; with
    --frontier, all plans that no other beats. With --cores, find the plan for one host whose cores
    move between models as load changes; PROFILE must have several core counts.

    A profile of language models takes --ttft-p95-ms, --per-token-p95-ms or --total-p95-ms in place of
    --p95-ms.

    Several profiles, or --with, are for several operators that share the devices: --trace and
    --p95-ms are then given for each, by its name.
    """
    require(profiles[0].exists(), "there is no such profile folder", where=str(profiles[0]), remedy=PROFILE_FIRST)
    found = kind_of_profile(profiles if len(profiles) > 1 else profiles[0], beside=options["beside"])
    kind, shape = found.kind, found.shape
    named = {"--p95-ms": p95_ms, "--latency-ms": latency_ms, "--accuracy": accuracy, "--worth": worth}
    require_supported(found, "plan")
    require_apart(kind.apart.get(shape, {}))
    known = options["planner"] is None or options["planner"] in kind.planners(shape)
    remedy = f"name one of {', '.join(kind.planners(shape))}"
    require(known, f"planner {options['planner']!r} does not make {kind.shapes[shape]}", remedy=remedy)
    _require_objective(kind.needs[shape], named, options, frontier=frontier)
    on_file = isinstance(options["devices"], Path) and shape not in kind.what_if_on_files
    remedy = "give a number of devices, which is then changed"
    require(not (what_if and on_file), "--what-if is given, and --devices names a file", remedy=remedy)
    out = out or Path("plans" if frontier else "plan.json")
    (require_plans_replaceable if frontier else require_writable)(out)
    measured = kind.read_profile(shape, profiles)
    options |= _numbers_of(named, measured)
    reading = {name: options.pop(name) for name in TRACE_OPTIONS} | {"seed": options["seed"]}
    paths, arrivals = read_traces(output.say, kind, measured, trace, reading)
    first = out / plan_name(0) if frontier else out
    options["profile_source"] = profile_sources(profiles, measured, first)
    options["trace_source"] = trace_sources(paths, arrivals, first)
    asked = kind.without_lacking("plan", shape, {name: value for name, value in options.items() if value is not None})
    search = partial(plan_frontier if frontier else plan, measured, arrivals, out=out)
    if not frontier and _wants_fewest(kind.needs[shape], asked) and shape in kind.fewest_for:
        search = partial(search, fewest=True)
    began = time.perf_counter()
    try:
        with output.progress() as tell:
            made: Any = search(progress=tell, **asked)
    except Infeasible as error:
        from gearshift.cli.common.plan_hints import nearest_commands, steady_hint

        for line in nearest_commands(error, limit=_limit_of(kind.needs[shape]), options=options):
            error.add_note(line)
        hint = error.by_load and isinstance(arrivals, Trace)
        if hint and (told := steady_hint(arrivals, reading | {"trace": paths}, options["scope"])):
            output.say(told)
        raise
    planning_s = time.perf_counter() - began
    if what_if:
        plain: GearPlan = made
        for_others = partial(kind.what_if, shape, plain, measured, arrivals, **{"planner": plain.planner, **asked})
        made = _with_what_if(output, plain, lambda tell: for_others(progress=tell), out)
    planned = Planned(out, planning_s, profiles, measured, arrivals, options)
    show(kind, "plan:show", output, made, planned)


def _with_what_if(output: Output, made: GearPlan, find: Callable[[Progress], GearPlan], out: Path) -> GearPlan:
    """Write the plan that `find` gives; after Ctrl-C the plan as it is, because it is written."""
    try:
        with output.progress() as tell:
            found = find(tell)
    except KeyboardInterrupt:
        return made
    write_plan(found, out)
    return found


def _require_objective(
    need: Need, named: Mapping[str, Sequence[Named[float]]], options: Mapping[str, Any], *, frontier: bool
) -> None:
    p95_ms, latency_ms = named["--p95-ms"], named["--latency-ms"]
    given = {name for name, value in options.items() if value is not None}
    given |= {"latency_s"} if p95_ms or latency_ms else set()
    given |= {"accuracy"} if named["--accuracy"] else set()
    require(frontier or bool(given & set(need.any_of)), need.lacking, remedy=need.remedy)
    require_one_latency(p95_ms or None, latency_ms or None, options["percentile"])
    unsure = options["confidence"] is not None and not named["--accuracy"] and options["recall"] is None
    require(
        not (unsure and options["precision"] is None), "--confidence is given without --accuracy", remedy="give both"
    )
    for flag in ("--p95-ms", "--latency-ms"):
        for each in named[flag]:
            require_positive(flag, each.value, "milliseconds")


def _numbers_of(named: Mapping[str, Sequence[Named[float]]], measured: Any) -> dict[str, Any]:
    """The objectives as keywords: numbers, or for several operators numbers by operator."""

    def value(flag: str) -> Any:
        if isinstance(measured, Mapping):
            return by_operator(flag, named[flag], measured) or None
        if operator := getattr(measured, "operator", None):
            require_only(flag, named[flag], operator)
        return the_last(named[flag])

    ms = value("--p95-ms" if named["--p95-ms"] else "--latency-ms")
    seconds = {name: each / 1e3 for name, each in ms.items()} if isinstance(ms, Mapping) else seconds_of(ms)
    return {"latency_s": seconds, "accuracy": value("--accuracy"), "worth": value("--worth")}


def _wants_fewest(need: Need, asked: Mapping[str, Any]) -> bool:
    """Whether a time and an accuracy are given, and nothing to plan for."""
    return all(name not in asked for name in ("devices", "cores")) and len(set(need.any_of) & asked.keys()) > 1


def _limit_of(need: Need) -> str:
    """The parameter whose value is the time that is asked for."""
    given = given_options()
    times = ("p95_ms", "latency_ms", *(name for name in need.any_of if name != "accuracy"))
    return next((given[name].parameter for name in times if name in given), "p95_ms")
