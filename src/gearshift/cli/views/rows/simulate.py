"""How a trace is served by a plan of rows, as predicted: tables and sentences."""

from typing import TYPE_CHECKING

import msgspec

from gearshift.cli.common.output import Output
from gearshift.cli.common.tables import milliseconds, percent, results_table, tell_overheads
from gearshift.profiles.profile import overheads_of
from gearshift.result import latency_summary
from gearshift.verbs.kinds.kind import Inputs

if TYPE_CHECKING:
    from gearshift.simulator.simulate import Simulation

SHOWN_DEVICES = 8


def show(output: Output, run: "Simulation", inputs: Inputs, *, slo_s: float | None) -> None:
    plan, records = inputs.plan, inputs.records
    results = {
        name: run.result(records.profiles, latency_objective_s=slo_s or pipeline.objective.latency_s, pipeline=name)
        for name, pipeline in plan.pipelines.items()
    }
    several = len(results) > 1
    overheads = overheads_of(records.only, run.tables.models) if plan.is_plain else None
    if overheads is not None:
        output.json(msgspec.to_builtins(results[plan.name]) | {"overheads": overheads})
    else:
        output.json({"pipelines": results} if several else results[plan.name])
    rows = [("gear plan", results[plan.name])] if plan.is_plain else list(results.items())
    output.show(results_table("Predicted, all at once" if several else "Predicted", rows))
    if overheads is not None:
        tell_overheads(output, overheads)
    busy = next(iter(results.values())).utilisation
    shown = ", ".join(f"{device} {100 * share:.0f} %" for device, share in list(busy.items())[:SHOWN_DEVICES])
    output.say(f"devices busy: {shown}{', ...' if len(busy) > SHOWN_DEVICES else ''}")
    if run.communication_s is not None:
        under_way = latency_summary(run.communication_s)
        output.say(f"under way: {milliseconds(under_way.p50)} (p50), {milliseconds(under_way.p99)} (p99)")
    for name in results:
        show_gears_used(output, run.of(name), "" if plan.is_plain else f"{name}: ")


def show_gears_used(output: Output, run: "Simulation", of: str = "") -> None:
    shares = run.arrived_in_gear / max(1, int(run.arrived_in_gear.sum()))
    in_gears = ", ".join(f"{gear}: {percent(float(share))}" for gear, share in enumerate(shares) if share > 0)
    output.say(f"{of}gear shifts: {len(run.shifts)}; requests by gear: {in_gears}")
