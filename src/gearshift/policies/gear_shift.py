"""Which gear is in force."""

from collections.abc import Sequence

from gearshift.gear import METER_ALPHA, METER_BACKLOG


def gear_in_force(
    meter: int,
    gear: int,
    rate_qps: float,
    waiting: int,
    longest_first_stage_queue: int,
    alpha: float,
    range_starts: Sequence[float],
    gear_count: int,
) -> int:
    """The gear after a tick, by the measured rate and the samples that wait; gears rise with load and fall in cost.

    Meter `backlog`: by `max(rate, alpha x waiting)`, so that what waits is drained within 1 / alpha seconds.
    Meter `alpha` (CascadeServe section 5): by the rate; a shift to a lower range is refused while
    `rate < alpha x longest first-stage queue`, one to a higher range is always allowed.
    """
    load = rate_qps
    if meter == METER_BACKLOG and alpha * waiting > load:
        load = alpha * waiting
    low, high = 0, gear_count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if range_starts[middle] <= load:
            low = middle
        else:
            high = middle - 1
    if meter == METER_ALPHA and low < gear and load < alpha * longest_first_stage_queue:
        return gear
    return low
