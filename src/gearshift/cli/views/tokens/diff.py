"""How two plans of language models differ, as tables and sentences."""

from collections.abc import Sequence

from msgspec import UNSET

from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import milliseconds
from gearshift.cli.common.what_differs import tell_what_differs
from gearshift.cli.views.tokens.tables import language_results
from gearshift.gear import GearPlan
from gearshift.plans.plan_diff import GearSide, PlanDiff
from gearshift.reporting.headline import percentile_name
from gearshift.reporting.language.words import cascade_text, limit_of, load_text


def show(output: Output, found: PlanDiff, plans: Sequence[GearPlan]) -> None:
    """Loads are in the unit of the first plan, whose pipeline is `a`, and so are times, unless each has its own."""
    a = plans[0].pipeline
    tell_what_differs(output, found)
    other = {change.what for change in found.objective}
    if found.gears:
        named = "time" if "metric" in other else limit_of(a.objective)[0]
        time = f"{named} {percentile_name(a.objective)}"
        rows = table("Gears that differ", "load from", "plan", "cascade", "quality", time, "most outstanding")
        rows.columns[1].justify = rows.columns[2].justify = "left"
        for change in found.gears:
            for start, name, side in ((load_text(change.load_range.from_, a), "a", change.a), ("", "b", change.b)):
                rows.add_row(start, name, *_cells(side))
        output.show(rows)
    predicted = [(name, result) for name, result in zip("ab", found.predictions, strict=True) if result]
    if predicted:
        output.show(language_results("Predicted", predicted))


def _cells(side: GearSide) -> tuple[str, ...]:
    figures = ("", "")
    if side.predicted is not None:
        figures = f"{side.predicted.accuracy:.4f}", milliseconds(side.predicted.latency_p95_s)
    cascade = "" if side.cascade is UNSET else cascade_text(side.cascade)
    bounds = [f"{one.replica} {one.most_outstanding}" for one in side.replicas if one.most_outstanding is not UNSET]
    return cascade, *figures, ", ".join(bounds)
