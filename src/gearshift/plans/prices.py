"""The price of a device for an hour: a number, or the kind of an instance in a small list of prices.

The list is to be overridden: prices differ by region and contract, and change. Each is that of
`AS_OF`, on demand, for Linux in `REGION`, in US dollars, as third parties reported it then.
"""

import math

import msgspec
from msgspec import UNSET

from gearshift.errors import InvalidInput
from gearshift.hardware import Hardware

AS_OF, REGION = "2026-06-17", "us-east-1"
PER_HOUR = {"m7g.large": 0.0816, "g5.xlarge": 1.006}


def price_of(price: float | str) -> float:
    """The price per hour that `price` says, a number or a kind in `PER_HOUR`; raises `InvalidInput`."""
    if isinstance(price, str) and price in PER_HOUR:
        return PER_HOUR[price]
    try:
        amount = float(price)
    except ValueError:
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise InvalidInput(
            f"{price!r} is no price per hour",
            remedy=f"give a number from 0, or one of {', '.join(PER_HOUR)} (prices of {AS_OF})",
        )
    return amount


def priced(hardware: Hardware, price: float | str | None) -> Hardware:
    """The hardware with this price for each device; None leaves the prices as they are."""
    if price is None:
        return hardware
    per_hour = price_of(price)
    devices = tuple(msgspec.structs.replace(device, price_per_hour=per_hour) for device in hardware.devices)
    return msgspec.structs.replace(hardware, devices=devices)


def price_per_hour(hardware: Hardware) -> float | None:
    """The price of all devices together; None where some device has none."""
    prices = [device.price_per_hour for device in hardware.devices if device.price_per_hour is not UNSET]
    return sum(prices) if len(prices) == len(hardware.devices) else None
