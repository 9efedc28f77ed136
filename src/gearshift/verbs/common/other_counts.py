"""A plan beside those for fewer and more devices, each found as the plan was."""

from collections.abc import Callable

import msgspec

from gearshift.gear import GearPlan
from gearshift.planner.what_if import INTERRUPTED, STEPS, found_for
from gearshift.plans.prices import price_per_hour
from gearshift.result import OtherDevices
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
        found.append(found_for(other, lambda count=count: plan_for(count), budget_s))  # type: ignore[misc]
        if found[-1].reason == INTERRUPTED:
            break
    return msgspec.structs.replace(plan, what_if=tuple(found))
