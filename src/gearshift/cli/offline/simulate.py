"""`gearshift simulate`."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from gearshift.cli.common.foretelling import seconds_for
from gearshift.cli.common.option_table import PATH, flag_of, options_of, require_positive
from gearshift.cli.common.options import (
    network_options,
    plan_traces_options,
    require_supported,
    seconds_of,
    take_traces,
    the_uplink,
)
from gearshift.cli.common.output import Output, verb
from gearshift.cli.views.shown import show
from gearshift.errors import require
from gearshift.objective import Objective
from gearshift.policies.cores.demand import CORES_EFFECT_S, Scaling, require_period
from gearshift.policies.cores.look_ahead import DEFAULT_MARGIN
from gearshift.simulator.compared.table import MARGIN, PERIOD, SCALERS
from gearshift.verbs.kinds.kind import Traces
from gearshift.verbs.kinds.registry import kind_of_plan
from gearshift.verbs.simulate import simulate

DEFAULT_PERIOD_S = 1.0


@click.command("simulate")
@click.argument("plan", type=PATH)
@plan_traces_options
@network_options
@click.option("--slo-ms", type=float, help="Requests answered later than this after sending are late: their deadline.")
@click.option(
    "--scaler",
    type=click.Choice([*SCALERS]),
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
    scaler: str | None,
    scaler_period_s: float | None,
    scaler_margin: float | None,
    scaler_cores: int | None,
    **trace_arguments: Any,
) -> None:
    """Predict percentiles, accuracy and utilisation of serving a trace by PLAN.

    With --network the trace says when requests are sent; they arrive when their last byte has.
    """
    require_positive("--slo-ms", slo_ms, "milliseconds")
    found = kind_of_plan(plan)
    require_supported(found, "simulate")
    _require_read(PERIOD, scaler_period_s, scaler)
    _require_read(MARGIN, scaler_margin, scaler)
    if scaler is None and scaler_cores is not None:
        scaler = "static"
    period_s = DEFAULT_PERIOD_S if scaler_period_s is None else scaler_period_s
    require_period(period_s, "--scaler-period-s")
    uplink = the_uplink(network, request_kb, seconds_of(slo_ms))
    inputs = found.kind.inputs(plan, profile=profile)
    traces = take_traces(
        output.say,
        inputs.plan,
        plan,
        trace_arguments,
        answerable=partial(found.kind.answerable, inputs.records, plan=inputs.plan),
    )

    def simulated(given: Traces) -> Any:
        return found.kind.simulate(inputs, given, **how)

    how: dict[str, Any] = {"seed": trace_arguments["seed"]}
    if uplink is not None or scaler is not None:
        how["uplink"] = uplink
        scaled_for = inputs.plan.pipeline.objective
        how["scaling"] = None if scaler is None else _scaling(scaler, period_s, scaler_margin, scaled_for)
        how["scaler_cores"] = scaler_cores
    count = sum(map(len, traces.values()))
    with output.waiting(f"simulating {count:,} requests", seconds_for(traces, simulated)):
        run = simulated(traces)
    show(found.kind, "simulate:show", output, run, inputs, slo_s=seconds_of(slo_ms))


def _scaling(scaler: str, period_s: float, margin: float | None, objective: Objective) -> Scaling:
    return Scaling(
        scaler=scaler,
        period_s=period_s,
        effect_s=min(CORES_EFFECT_S, period_s / 2),
        slo_s=objective.latency_s,
        margin=DEFAULT_MARGIN if margin is None else margin,
    )


def _require_read(field: str, given: float | None, scaler: str | None) -> None:
    flag, readers = flag_of(f"scaler_{field}"), [name for name, one in SCALERS.items() if field in one.reads]
    require(
        given is None or scaler in readers,
        f"{flag} is given, {'and no scaler' if scaler is None else f'which --scaler {scaler} does not read'}",
        remedy=f"leave it out, or give --scaler {', '.join(readers[:-1])} or {readers[-1]}",
    )
