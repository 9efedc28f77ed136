"""`--what-if`, where the same search is repeated with other numbers of devices."""

from collections.abc import Callable
from pathlib import Path

from gearshift.cli.common.output import Output
from gearshift.gear import GearPlan
from gearshift.plans.plan_file import write_plan


def what_if_by_count(output: Output, made: GearPlan, plan_for: Callable[[int], GearPlan], out: Path) -> GearPlan:
    """Add plans for other numbers of devices, and write; the plan as it is after Ctrl-C, because it is written."""
    from gearshift.verbs.pipelines.other_counts import with_other_counts

    try:
        with output.progress() as tell:
            found = with_other_counts(made, plan_for, progress=tell)
    except KeyboardInterrupt:
        return made
    write_plan(found, out)
    return found
