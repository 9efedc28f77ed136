"""`gearshift plan`."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec import UNSET

from gearshift.cli.common.named import Named, NamedNumber, Repeated, require_only, the_last
from gearshift.cli.common.option_table import PATH, options_of, require_positive
from gearshift.cli.common.options import (
    TRACE_OPTIONS,
    require_one_latency,
    seconds_of,
    the_trace,
    traces_options,
)
from gearshift.cli.common.other_devices import with_what_if
from gearshift.cli.common.output import Output, verb
from gearshift.cli.common.plan_hints import nearest_commands, steady_hint
from gearshift.cli.common.tables import (
    NO_LABELS,
    THIS_TRACE_ALONE,
    devices_table,
    results_table,
    show_gears,
    tell_overheads,
    tell_warnings,
)
from gearshift.cli.language.plan import plan_of_language, require_no_language
from gearshift.cli.offline.plan_operators import plan_operators
from gearshift.cli.offline.plan_pipelines import OF_CLASS, plan_graph
from gearshift.errors import GearshiftError, Infeasible, require
from gearshift.gear import GearPlan
from gearshift.models.loaded_from import changes
from gearshift.objective import Policy, Scope
from gearshift.planner import planners
from gearshift.plans.plan_folder import plan_name, require_plans_replaceable
from gearshift.plans.prices import price_per_hour
from gearshift.profiles.engines.store import is_language_profile
from gearshift.profiles.pipelines.profile_folder import holds_profiles
from gearshift.profiles.profile import Profile, overheads_of
from gearshift.profiles.store import REMEDY as PROFILE_FIRST
from gearshift.profiles.store import read_profile
from gearshift.reporting.cost import per_million
from gearshift.reporting.headline import closing_line, headline, refinement_in_words
from gearshift.result import ServingResult
from gearshift.support.files import require_writable
from gearshift.traces.read import doubts_about_trace
from gearshift.verbs.plan import largest_alone, plan, plan_frontier
from gearshift.verbs.plan import what_if as other_devices
from gearshift.verbs.plan_request import DeviceOptions, LanguageOptions, source_file, trace_file
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.largest_alone import LargestAlone

"""A trace is steady if the standard deviation of its gaps is at most this share of their mean."""


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
    f"{', '.join(planners.for_('rows', 'graph'))}  "
    f"[default: {planners.default_for('rows', 'graph')}].",
)
@options_of(plan, without={*DeviceOptions.__annotations__, "accuracy", "planner"})
@click.option(
    "--with",
    "beside",
    type=PATH,
    metavar="FILE",
    help="Add the operators to this plan: its pipelines stay as they are, on its devices.",
)
@click.option("--pipeline", help="The pipeline to plan, of a profile that has several.")
@click.option(
    "--budgets",
    type=click.Choice(["equal", "proportional"]),
    help="For a pipeline, a baseline: each node takes the best model within its share of the time left, which is "
    "equal for all nodes of a path, or in proportion to their slowest models.",
)
@click.option(
    "--without-replanning",
    is_flag=True,
    help="For a pipeline: one cascade for each node and gear, none chosen by the time that is left.",
)
@click.option("--recall", type=float, help="Certify that this share of a pipeline's answers --positive is found.")
@click.option("--precision", type=float, help="Certify that this share of a pipeline's answers --positive is right.")
@click.option("--positive", metavar="CLASS", help="The class that --recall and --precision are of.")
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
    percentile: float | None,
    frontier: bool,
    what_if: bool,
    beside: Path | None,
    pipeline: str | None,
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
    _require_refinable(profiles, beside, options)
    require(
        not what_if or (len(profiles) == 1 and beside is None),
        "--what-if is given, and several operators share the devices",
        remedy="leave it out, and plan for other --devices",
    )
    numbered = _of_one(profiles, beside) or options["devices"] is None or isinstance(options["devices"], int)
    require(
        not what_if or numbered,
        "--what-if is given, and --devices names a file",
        remedy="give a number of devices, which is then changed",
    )
    for flag, beside_it in (("--frontier", frontier), ("--cores", options["cores"] is not None)):
        require(not (what_if and beside_it), f"--what-if and {flag} are both given", remedy="give one of them")
    named = {"--p95-ms": p95_ms, "--latency-ms": latency_ms, "--accuracy": accuracy}
    require(not worth or len(profiles) > 1, "--worth is of several operators", remedy="leave it out")
    require(profiles[0].exists(), "there is no such profile folder", where=str(profiles[0]), remedy=PROFILE_FIRST)
    if is_language_profile(profiles[0]):
        options["planner"] = options["planner"] or planners.DEFAULT
        refused = {"--p95-ms": p95_ms, "--latency-ms": latency_ms, "several profiles": len(profiles) > 1}
        refused |= {"--with": beside, "--pipeline": pipeline, "--budgets": options.pop("budgets")}
        refused |= {"--without-replanning": options.pop("without_replanning")}
        refused |= {f"--{name}": options.pop(name) for name in OF_CLASS}
        options |= {"accuracy": the_last(accuracy), "percentile": percentile}
        plan_of_language(
            output,
            profiles[0],
            Path(trace[-1]),
            refused=refused,
            frontier=frontier,
            what_if=what_if,
            out=out,
            options=options,
        )
        return
    require_no_language({name: options.pop(name) for name in LanguageOptions.__annotations__})
    of_graph = holds_profiles(profiles[0])
    options["planner"] = options["planner"] or (planners.default_for("rows", "graph") if of_graph else planners.DEFAULT)
    if of_graph:
        require(len(profiles) == 1 and beside is None, "a pipeline is planned alone", remedy="give its profile alone")
        options["accuracy"], options["frontier"] = the_last(accuracy), frontier
        latency = the_last(p95_ms) if p95_ms else the_last(latency_ms)
        plan_graph(
            output,
            profiles[0],
            Path(trace[-1]),
            pipeline=pipeline,
            latency_ms=latency,
            percentile=percentile,
            what_if=what_if,
            out=out or Path("plan.json"),
            options=options,
        )
        return
    given = {"--pipeline": pipeline, "--budgets": options.pop("budgets")}
    given["--without-replanning"] = options.pop("without_replanning")
    given |= {f"--{name}": options.pop(name) for name in OF_CLASS}
    for flag, value in given.items():
        require(not value, f"{flag} is given, and the profile is of one operator", remedy="leave it out")
    planner = options["planner"]
    if len(profiles) > 1 or beside is not None:
        named["--worth"] = worth
        options |= {"percentile": percentile, "frontier": frontier}
        plan_operators(output, profiles, trace, named, beside=beside, out=out or Path("plan.json"), options=options)
    else:
        require(planner in planners.for_(), f"planner {planner!r} plans no operator alone", remedy="leave it out")
        options["accuracy"] = the_last(accuracy)
        _plan_operator(output, profiles[0], Path(trace[-1]), named, percentile, frontier, out, options, what_if=what_if)


def _require_refinable(profiles: tuple[Path, ...], beside: Path | None, options: dict[str, Any]) -> None:
    """A policy is for operators, a median for one alone: remove these options elsewhere."""
    if _of_one(profiles, beside):
        return
    median_s = options.pop("median_s")
    require(median_s is None, "--p50-ms is for one operator that is planned alone", remedy="leave it out")
    if len(profiles) > 1 and not any(holds_profiles(each) or is_language_profile(each) for each in profiles):
        return
    require(
        options.pop("policy") == "gears",
        "--policy is for operators that are all planned now, not of language models",
        remedy="leave it out",
    )


def _of_one(profiles: tuple[Path, ...], beside: Path | None) -> bool:
    first = profiles[0]
    return len(profiles) == 1 and beside is None and not holds_profiles(first) and not is_language_profile(first)


def _plan_operator(
    output: Output,
    profile: Path,
    trace: Path,
    named: Mapping[str, Sequence[Named[float]]],
    percentile: float | None,
    frontier: bool,
    out: Path | None,
    options: dict[str, Any],
    *,
    what_if: bool,
) -> None:
    p95_ms, latency_ms = the_last(named["--p95-ms"]), the_last(named["--latency-ms"])
    _require_one_objective(p95_ms, latency_ms, percentile, frontier=frontier, options=options)
    limit_ms = p95_ms if p95_ms is not None else latency_ms
    options["latency_s"], options["percentile"] = seconds_of(limit_ms), percentile
    out = out or Path("plans" if frontier else "plan.json")
    (require_plans_replaceable if frontier else require_writable)(out)
    measured = read_profile(profile)
    for flag, given in named.items():
        require_only(flag, given, measured.operator)
    of_trace = {name: options.pop(name) for name in TRACE_OPTIONS} | {"trace": trace, "seed": options["seed"]}
    arrivals = the_trace(**of_trace)
    first_plan = out / plan_name(0) if frontier else out
    options["profile_source"] = source_file(profile, first_plan, measured.sha256)
    options["trace_source"] = trace_file(of_trace["trace"], first_plan, arrivals)
    began = time.perf_counter()
    try:
        found = _search(output, measured, arrivals, frontier=frontier, out=out, options=options)
    except Infeasible as error:
        for line in nearest_commands(error, limit="p95_ms" if latency_ms is None else "latency_ms", options=options):
            error.add_note(line)
        if error.by_load and (hint := steady_hint(arrivals, of_trace, options["scope"])):
            output.say(hint)
        raise
    planning_s = time.perf_counter() - began
    if what_if and isinstance(found, GearPlan):
        made = found
        found = with_what_if(output, made, lambda tell: other_devices(made, measured, arrivals, progress=tell), out)
    notes = _notes(measured, arrivals, profile, scope=options["scope"])
    notes = notes._replace(sentences=(*notes.sentences, *_refinement_told(found, options["policy"])))
    if isinstance(found, GearPlan):
        show_plan(output, found, out, planning_s, notes, measured, arrivals)
    else:
        show_frontier(output, found, out, planning_s, notes, measured)


def _require_one_objective(
    p95_ms: float | None,
    latency_ms: float | None,
    percentile: float | None,
    *,
    frontier: bool,
    options: Mapping[str, Any],
) -> None:
    accuracy, confidence = options["accuracy"], options["confidence"]
    require(
        frontier or not (p95_ms is None and latency_ms is None and accuracy is None),
        "no objective is given",
        remedy="give --p95-ms, --accuracy or --frontier",
    )
    require_one_latency(p95_ms, latency_ms, percentile)
    if options["cores"] is not None:
        of_devices = {
            "--devices": options["devices"] is not None,
            "--memory-gib": options["memory_bytes"] is not None,
            "--price-per-hour": options["price_per_hour"] is not None,
            "--frontier": frontier,
            "--planner": options["planner"] != planners.DEFAULT,
            "--policy": options["policy"] != "gears",
            "--p50-ms": options["median_s"] is not None,
        }
        given = next((flag for flag, there in of_devices.items() if there), "")
        require(not given, f"{given} and --cores are both given", remedy="give one of them")
    if frontier:
        objective = {
            "--p95-ms": p95_ms, "--latency-ms": latency_ms, "--accuracy": accuracy, "--confidence": confidence
        }  # fmt: skip
        given = next((flag for flag, value in objective.items() if value is not None), "")
        require(
            not given,
            f"{given} and --frontier are both given, but a frontier has plans for every latency and accuracy",
            remedy=f"leave {given} out, or --frontier to plan for it",
        )
    require(confidence is None or accuracy is not None, "--confidence is given without --accuracy", remedy="give both")
    require_positive("--p95-ms", p95_ms, "milliseconds")
    require_positive("--latency-ms", latency_ms, "milliseconds")


def _search(
    output: Output, measured: Profile, arrivals: Trace, *, frontier: bool, out: Path, options: dict[str, Any]
) -> GearPlan | list[GearPlan]:
    with output.progress() as tell:
        if frontier:
            return plan_frontier(measured, arrivals, out=out, progress=tell, **options)
        two_objectives = options["latency_s"] is not None and options["accuracy"] is not None
        fewest = two_objectives and options["devices"] is None and options["cores"] is None
        return plan(measured, arrivals, fewest=fewest, out=out, progress=tell, **options)


class Notes(NamedTuple):
    """Sentences about a profile and a trace: `warnings` also stand in the JSON."""

    sentences: tuple[str, ...]
    warnings: tuple[str, ...]
    doubts: tuple[str, ...]

    def say(self, output: Output, *, unfinished: bool) -> None:
        if unfinished:
            output.say("the search was ended early: this is the best so far")
        for sentence in self.sentences:
            output.say(sentence)
        tell_warnings(output, self.warnings)


def _refinement_told(found: GearPlan | list[GearPlan], policy: Policy) -> list[str]:
    """Say why the policy chose a plan, or how many plans of a frontier refine."""
    if isinstance(found, list):
        refining = sum(plan.pipeline.refines for plan in found)
        return [] if policy == "gears" else [f"{refining} of {len(found)} plans refine rows while there is time"]
    because = _chosen_because(found)
    return [] if because is None else [because]


def _chosen_because(plan: GearPlan) -> str | None:
    asked = plan.pipeline.asked
    return None if asked is None or asked.chosen_because is UNSET else asked.chosen_because


def _notes(measured: Profile, arrivals: Trace, profile: Path, *, scope: Scope) -> Notes:
    sentences = []
    if scope == "trace":
        sentences.append(THIS_TRACE_ALONE)
    if not measured.predictions.labelled:
        sentences.append(NO_LABELS)
    if arrivals.left_ns is not None:
        sentences.append("planning keeps the objective and ignores the deadlines of the trace: simulate with them")
    replaced = [] if measured.project is None else changes(measured.loaded_from, profile / measured.project)
    return Notes(tuple(sentences), (*measured.warnings, *replaced), tuple(doubts_about_trace(arrivals)))


def show_plan(
    output: Output, found: GearPlan, out: Path, planning_s: float, notes: Notes, measured: Profile, arrivals: Trace
) -> None:
    overheads = overheads_of(measured)
    largest = _largest_alone(output, found, measured, arrivals)
    output.json(
        facts(found, out, planning_s)
        | {"largest_alone": largest, "warnings": (*notes.warnings, *notes.doubts), "overheads": overheads}
    )
    output.say(headline(found, largest))
    for sentence in refinement_in_words(found):
        output.say(sentence)
    notes.say(output, unfinished=found.unfinished)
    show_gears(output, found, measured.operator)
    output.show(results_table("Predicted for the trace", [("gear plan", result_of(found))]))
    if found.what_if is not UNSET:
        output.show(devices_table(found, largest))
    tell_overheads(output, overheads)
    output.say(closing_line(found, out, planning_s))


def show_frontier(
    output: Output, found: list[GearPlan], out: Path, planning_s: float, notes: Notes, measured: Profile
) -> None:
    overheads = overheads_of(measured)
    paths = [out / plan_name(i) for i in range(len(found))]
    plans = [facts(plan, path, planning_s) for plan, path in zip(found, paths, strict=True)]
    output.json({"plans": plans, "warnings": (*notes.warnings, *notes.doubts), "overheads": overheads})
    notes.say(output, unfinished=any(plan.unfinished for plan in found))
    rows = [(path.name, result_of(plan)) for plan, path in zip(found, paths, strict=True)]
    output.show(results_table("Frontier", rows))
    tell_overheads(output, overheads)
    output.say(f"wrote {len(found)} plans into {out} after {planning_s:.1f} s")


def _largest_alone(output: Output, found: GearPlan, measured: Profile, arrivals: Trace) -> "LargestAlone | None":
    """Return None after Ctrl-C or a failure, because the plan is already written."""
    try:
        with output.progress() as tell:
            tell("simulating the largest model alone", 0.99)
            return largest_alone(found, measured, arrivals)
    except (KeyboardInterrupt, GearshiftError):
        return None


def facts(plan: GearPlan, path: Path, planning_s: float) -> dict[str, object]:
    pipeline = plan.pipeline
    return {
        "planner": plan.planner,
        "planning_s": planning_s,
        "asked": pipeline.asked.objective if pipeline.asked else pipeline.objective,
        "objective": pipeline.objective,
        "refines": pipeline.refines,
        "chosen_because": _chosen_because(plan),
        "devices": len(plan.hardware.devices),
        "price_per_hour": price_per_hour(plan.hardware),
        "price_per_million": per_million(price_per_hour(plan.hardware), result_of(plan)),
        "what_if": None if plan.what_if is UNSET else plan.what_if,
        "pool_cores": plan.hardware.pool_cores,
        "predicted": result_of(plan),
        "unfinished": plan.unfinished,
        "plan": str(path),
    }


def result_of(plan: GearPlan) -> ServingResult:
    return plan.predictions[plan.name]
