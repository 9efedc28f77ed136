"""How two plans of rows differ, as tables and sentences."""

from collections.abc import Sequence

from msgspec import UNSET

from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import milliseconds, percent, results_table
from gearshift.cli.common.what_differs import tell_what_differs
from gearshift.gear import GearPlan
from gearshift.plans.plan_diff import GearChange, GearSide, PlanDiff
from gearshift.reporting.gear_rows import by_node
from gearshift.support.numbers import digits


def show(output: Output, found: PlanDiff | dict[str, PlanDiff | str], _: Sequence[GearPlan]) -> None:
    if isinstance(found, PlanDiff):
        _show(output, found)
        return
    for name, one in found.items():
        if isinstance(one, str):
            output.say(f"pipeline {name}: only in {one}")
        else:
            output.say(f"pipeline {name}:")
            _show(output, one)


def _show(output: Output, found: PlanDiff) -> None:
    tell_what_differs(output, found)
    if found.gears:
        pooled = ("cores",) if any(found.pool_cores) else ()
        waits = ("waits",) if any(_refines(change) for change in found.gears) else ()
        columns = ("load from", "plan", "cascade", "accuracy", "latency", "largest batch", *pooled, *waits)
        rows = table("Gears that differ", *columns)
        rows.columns[1].justify = rows.columns[2].justify = "left"
        for change in found.gears:
            for start, name, side in ((f"{digits(change.load_range.from_)}/s", "a", change.a), ("", "b", change.b)):
                rows.add_row(start, name, *_cells(side)[: 4 + len(pooled)], *(_waiting(side) for _ in waits))
        output.show(rows)
        if any(_refines(change) and change.a.gains != change.b.gains for change in found.gears):
            output.say("the expected gains by which rows wait differ")
        if any(change.a.timed != change.b.timed for change in found.gears):
            output.say("the tables differ by which a cascade is chosen for the time that is left")
    predicted = [(name, result) for name, result in zip("ab", found.predictions, strict=True) if result]
    if predicted:
        output.show(results_table("Predicted", predicted))


def _refines(change: GearChange) -> bool:
    return "gain" in (change.a.order, change.b.order)


def _waiting(side: GearSide) -> str:
    """For example "by gain, up to 3.5 ms before the objective, for the most rows"."""
    if side.order != "gain":
        return "by arrival"
    most = "rows" if side.refine_for == "rows" else "gain"
    return f"by gain, up to {milliseconds(side.answer_by_margin_s or 0.0)} before the objective, for the most {most}"


def _cells(side: GearSide) -> tuple[str, ...]:
    figures = ("", "")
    if side.predicted is not None:
        figures = percent(side.predicted.accuracy), milliseconds(side.predicted.latency_p95_s)
    largest, cores = max((s.largest_batch_size for s in side.replicas), default=1), (s.cores for s in side.replicas)
    cascades = str(side.cascade) if side.cascades is UNSET else by_node(side.cascades)
    return cascades, *figures, str(largest), str(sum(cores))
