"""Decides which gear is in force."""

from collections.abc import Sequence

from gearshift.gear import METER_ALPHA, METER_BACKLOG

UPSHIFT_TICKS = 10
"""An upshift waits for at most this many ticks: a second."""


def metered_load(meter: int, rate_qps: float, factor: float, waiting: int, alpha: float) -> float:
    """The load by which the gear is chosen; `factor` is that of `policies/load_scaling.py`, else 1.

    Meter `backlog`: `max(factor x rate, alpha x waiting)`, so that waiting samples are drained
    within 1 / alpha seconds; these are never scaled, so that no factor lets a queue grow. Meter
    `alpha` (CascadeServe section 5): the rate, scaled.
    """
    scaled_qps = factor * rate_qps
    if meter == METER_BACKLOG and alpha * waiting > scaled_qps:
        return alpha * waiting
    return scaled_qps


def gear_asked_for(
    meter: int,
    gear: int,
    load: float,
    longest_first_stage_queue: int,
    alpha: float,
    range_starts: Sequence[float],
    gear_count: int,
) -> int:
    """The gear whose range holds the load; gears rise with load and fall in cost.

    Meter `alpha` asks for no lower range while `load < alpha x longest first-stage queue`.
    """
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


def gear_in_force(
    gear: int, asked: int, eased_ticks: int, load: float, range_starts: Sequence[float], upshift_margin: float
) -> tuple[int, int]:
    """The gear after a tick, and the number of ticks in a row that an upshift has been held back.

    A downshift is made at once, as it keeps the latency objective. An upshift, to a lower range,
    is made once the load lies below the range of the gear by the share `upshift_margin`, or on the
    last of `UPSHIFT_TICKS` in a row that ask for one: noise at an edge does not cause flapping,
    and no gear stays in force without need.
    """
    if asked >= gear:
        return asked, 0
    eased_ticks += 1
    if eased_ticks < UPSHIFT_TICKS and load >= (1 - upshift_margin) * range_starts[gear]:
        return gear, eased_ticks
    return asked, 0
