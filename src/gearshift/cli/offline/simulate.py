"""`gearshift simulate`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click
import msgspec

from gearshift.cli.common.foretelling import seconds_for
from gearshift.cli.common.option_table import PATH, options_of, require_positive
from gearshift.cli.common.options import (
    network_options,
    plan_traces_options,
    require_none,
    seconds_of,
    take_trace,
    take_traces,
    the_uplink,
)
from gearshift.cli.common.output import Output, verb
from gearshift.cli.common.tables import milliseconds, percent, results_table, tell_overheads
from gearshift.cli.language.simulate import simulate_of_language
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.plans.plan_file import read_plan
from gearshift.policies.cores.demand import CORES_EFFECT_S, Scaling, require_period
from gearshift.policies.cores.look_ahead import DEFAULT_MARGIN
from gearshift.profiles.profile import overheads_of
from gearshift.result import ServingResult, latency_summary
from gearshift.verbs.inputs import plan_and_profile, plan_and_records
from gearshift.verbs.language.inputs import plans_language
from gearshift.verbs.simulate import simulate

if TYPE_CHECKING:
    from gearshift.simulator.simulate import Simulation

Scaler = Literal["exact", "paper", "static", "replicas", "fa2", "vpa"]

DEFAULT_PERIOD_S = 1.0
READ_BY = {
    "--scaler-period-s": ("exact", "paper", "replicas", "fa2", "vpa"),
    "--scaler-margin": ("exact", "paper", "replicas"),
}
"""Scalers that read an option."""


@click.command("simulate")
@click.argument("plan", type=PATH)
@plan_traces_options
@network_options
@click.option("--slo-ms", type=float, help="Requests answered later than this after sending are late: their deadline.")
@click.option(
    "--scaler",
    type=click.Choice(get_args(Scaler)),
    help="As for `serve`: what gives workers their cores, which are never fewer than those of the gear in force. "
    "`replicas` (as `exact`, or several workers of one core where that takes fewer cores), `fa2` (horizontal, with "
    "cold starts) and `vpa` (by utilisation) exist only in simulation, for plans of one model. `static` leaves the "
    "cores as they are, as without this option, but reports core-seconds.",
)
@click.option("--scaler-period-s", type=float, help=f"How often the scaler chooses.  [default: {DEFAULT_PERIOD_S}]")
@click.option(
    "--scaler-margin",
    type=click.FloatRange(-0.5, 10),
    help="The share by which the scaler takes run times to be longer than profiled; `fa2`, `vpa` and `static` do "
    f"not use it.  [default: {DEFAULT_MARGIN}]",
)
@options_of(simulate)
@verb
def command(
    output: Output,
    plan: Path,
    profile: Path | None,
    network: Path | None,
    request_kb: float | None,
    slo_ms: float | None,
    scaler: Scaler | None,
    scaler_period_s: float | None,
    scaler_margin: float | None,
    scaler_cores: int | None,
    **trace_arguments: Any,
) -> None:
    """Predict percentiles, accuracy and utilisation of serving a trace by PLAN.

    With --network the trace says when requests are sent; they arrive when their last byte has.
    """
    require_positive("--slo-ms", slo_ms, "milliseconds")
    known = read_plan(plan)
    if plans_language(known):
        given = {"--network": network, "--request-kb": request_kb, "--slo-ms": slo_ms, "--scaler": scaler}
        simulate_of_language(output, plan, profile, {**given, "--scaler-cores": scaler_cores}, trace_arguments)
        return
    if not known.is_plain:
        given = {"--network": network, "--slo-ms": slo_ms, "--scaler": scaler, "--profile": profile}
        _of_several(output, plan, known, {**given, "--scaler-cores": scaler_cores}, trace_arguments)
        return
    _require_read("--scaler-period-s", scaler_period_s, scaler)
    _require_read("--scaler-margin", scaler_margin, scaler)
    if scaler is None and scaler_cores is not None:
        scaler = "static"
    period_s = DEFAULT_PERIOD_S if scaler_period_s is None else scaler_period_s
    require_period(period_s, "--scaler-period-s")
    uplink = the_uplink(network, request_kb, seconds_of(slo_ms))
    made, measured = plan_and_profile(plan, profile)
    trace = take_trace(output.say, made, plan, trace_arguments)
    objective = made.pipeline.objective
    simulated = partial(
        simulate,
        made,
        profile=measured,
        seed=trace_arguments["seed"],
        uplink=uplink,
        scaling=None if scaler is None else _scaling(scaler, period_s, scaler_margin, objective),
        scaler_cores=scaler_cores,
    )
    with output.waiting(f"simulating {len(trace):,} requests", seconds_for(trace, simulated)):
        run = simulated(trace)
    result = run.result(measured, latency_objective_s=seconds_of(slo_ms) or objective.latency_s)
    overheads = overheads_of(measured, run.tables.models)
    output.json(msgspec.to_builtins(result) | {"overheads": overheads})
    output.show(results_table("Predicted", [("gear plan", result)]))
    tell_overheads(output, overheads)
    show(output, run, result)


def _of_several(
    output: Output, path: Path, plan: GearPlan, of_one: dict[str, object], trace_arguments: dict[str, Any]
) -> None:
    require_none(of_one)
    traces = take_traces(output.say, plan, path, trace_arguments)
    _, profiles, joint = plan_and_records(path)
    with output.waiting("simulating"):
        run = simulate(plan, traces, profiles=profiles, joint=joint, seed=trace_arguments["seed"])
    results = {
        name: run.result(profiles, latency_objective_s=pipeline.objective.latency_s, pipeline=name)
        for name, pipeline in plan.pipelines.items()
    }
    output.json({"pipelines": results} if len(results) > 1 else results[plan.name])
    output.show(results_table("Predicted, all at once" if len(results) > 1 else "Predicted", list(results.items())))
    busy = next(iter(results.values())).utilisation
    output.say(
        f"devices busy: {', '.join(f'{device} {100 * share:.0f} %' for device, share in list(busy.items())[:8])}"
    )
    for name in results:
        show_gears_used(output, run.of(name), f"{name}: ")


def _scaling(scaler: Scaler, period_s: float, margin: float | None, objective: Objective) -> Scaling:
    return Scaling(
        scaler=scaler,
        period_s=period_s,
        effect_s=min(CORES_EFFECT_S, period_s / 2),
        slo_s=objective.latency_s,
        margin=DEFAULT_MARGIN if margin is None else margin,
    )


def show(output: Output, run: "Simulation", result: ServingResult) -> None:
    busy = ", ".join(f"{device} {100 * share:.0f} %" for device, share in list(result.utilisation.items())[:8])
    output.say(f"devices busy: {busy}{', ...' if len(result.utilisation) > 8 else ''}")
    if run.communication_s is not None:
        under_way = latency_summary(run.communication_s)
        output.say(f"under way: {milliseconds(under_way.p50)} (p50), {milliseconds(under_way.p99)} (p99)")
    show_gears_used(output, run)


def show_gears_used(output: Output, run: "Simulation", of: str = "") -> None:
    shares = run.arrived_in_gear / max(1, int(run.arrived_in_gear.sum()))
    in_gears = ", ".join(f"{gear}: {percent(float(share))}" for gear, share in enumerate(shares) if share > 0)
    output.say(f"{of}gear shifts: {len(run.shifts)}; requests by gear: {in_gears}")


def _require_read(flag: str, given: float | None, scaler: str | None) -> None:
    readers = READ_BY[flag]
    require(
        given is None or scaler in readers,
        f"{flag} is given, {'and no scaler' if scaler is None else f'which --scaler {scaler} does not read'}",
        remedy=f"leave it out, or give --scaler {', '.join(readers[:-1])} or {readers[-1]}",
    )
