"""`--what-if`, where the same search is repeated with other numbers of devices."""

from collections.abc import Callable
from pathlib import Path

from gearshift.cli.common.output import Output
from gearshift.gear import GearPlan
from gearshift.plans.plan_file import write_plan
from gearshift.verbs.common.inputs import Progress


def with_what_if(output: Output, made: GearPlan, find: Callable[[Progress], GearPlan], out: Path) -> GearPlan:
    """Write the plan that `find` gives; after Ctrl-C the plan as it is, because it is written."""
    try:
        with output.progress() as tell:
            found = find(tell)
    except KeyboardInterrupt:
        return made
    write_plan(found, out)
    return found
