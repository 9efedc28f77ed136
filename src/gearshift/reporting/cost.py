"""Money: what devices cost, for an hour and for a million requests."""

from gearshift.result import ServingResult
from gearshift.support.numbers import money

MILLION, HOUR_S = 1e6, 3600


def requests_per_s(result: ServingResult) -> float | None:
    """The mean load of a run; None where it answered nothing in time, so that its length is unknown."""
    in_time = 1 - result.share_late
    return result.goodput_qps / in_time if in_time > 0 and result.goodput_qps > 0 else None


def per_million(price_per_hour: float | None, *results: ServingResult) -> float | None:
    """The cost of a million requests at the load of these runs together, on devices that cost this much an hour.

    None where the price or the load is not known.
    """
    qps = sum(requests_per_s(result) or 0.0 for result in results)
    return None if price_per_hour is None or qps <= 0 else cost_of_million(price_per_hour, qps)


def money_or_nothing(amount: float | None) -> str:
    """An amount, or nothing where it is not known."""
    return "" if amount is None else money(amount)


def cost_of_million(price_per_hour: float, qps: float) -> float:
    return price_per_hour / (qps * HOUR_S) * MILLION


def beside_own(devices: int, own: int) -> str:
    """The name of a number of devices beside a plan's own: "this plan", "1 fewer", "2 more"."""
    if devices == own:
        return "this plan"
    return f"{own - devices} fewer" if devices < own else f"{devices - own} more"
