"""A plan beside those for fewer and more devices, each found as the plan was."""

from collections.abc import Callable

import msgspec

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan, OtherDevices
from gearshift.planner.what_if import INTERRUPTED, STEPS, was_interrupted
from gearshift.plans.prices import price_per_hour
from gearshift.verbs.common.inputs import Progress, silent


def with_other_counts(
    plan: GearPlan, plan_for: Callable[[int], GearPlan], *, budget_s: float | None, progress: Progress = silent
) -> GearPlan:
    """The plan with `what_if`: predictions of `plan_for` up to two devices fewer and more, or why there are none.

    An interrupted search ends the others, too, and keeps what was found before; `budget_s` is that of each.
    """
    own = len(plan.hardware.devices)
    counts = [count for count in range(own - STEPS, own + STEPS + 1) if count >= 1 and count != own]
    found = list[OtherDevices]()
    price = price_per_hour(plan.hardware)
    for count in counts:
        progress(f"planning for {count} devices", len(found) / len(counts))
        other = OtherDevices(devices=count, price_per_hour=None if price is None else price / own * count)
        try:
            made = plan_for(count)
        except (Infeasible, InvalidInput) as error:
            found.append(msgspec.structs.replace(other, reason=str(error)))
            continue
        if was_interrupted(made, budget_s):
            found.append(msgspec.structs.replace(other, reason=INTERRUPTED))
            break
        found.append(msgspec.structs.replace(other, predicted=made.predictions[made.name]))
    return msgspec.structs.replace(plan, what_if=tuple(found))
