"""The price of a device for an hour: a number, or the kind of an instance in a small list of prices.

The list is for a first look, to be overridden: prices differ by region and contract, and change.
Each is on demand, for Linux in a region of the United States, in US dollars, of the whole instance,
which has at most one GPU; and each has its day, and the page that said so.
"""

import math
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from gearshift.errors import InvalidInput
from gearshift.hardware import Hardware


class ListPrice(NamedTuple):
    """A price of an instance for an hour, in US dollars, in a region, as a source said on a day."""

    per_hour: float
    region: str
    source: str
    date: str


_EC2 = "us-east-1", "factualminds.com, Amazon EC2 On-Demand Pricing", "2026-06-17"
_AZURE = "eastus", "github.com/datareceipts/data-receipts, 109-gpu-pricing", "2026-11-09"
_GOOGLE = "us-central1", "github.com/Cyclenerd/google-cloud-pricing-cost-calculator, pricing.yml", "2026-07-30"
LIST_PRICES = {
    "m7g.large": ListPrice(0.0816, *_EC2),
    "g5.xlarge": ListPrice(1.006, *_EC2),
    "Standard_NC24ads_A100_v4": ListPrice(3.673, *_AZURE),
    "Standard_NC40ads_H100_v5": ListPrice(6.98, *_AZURE),
    "e2-standard-4": ListPrice(0.13402284, *_GOOGLE),
    "n2-standard-4": ListPrice(0.194236, *_GOOGLE),
    "n4-standard-4": ListPrice(0.1814, *_GOOGLE),
    "c3-standard-4": ListPrice(0.201608, *_GOOGLE),
    "c4-standard-4": ListPrice(0.19767, *_GOOGLE),
    "g2-standard-4": ListPrice(0.706832255, *_GOOGLE),
    "g2-standard-8": ListPrice(0.853624271, *_GOOGLE),
    "a2-highgpu-1g": ListPrice(3.673385, *_GOOGLE),
    "a2-ultragpu-1g": ListPrice(5.06879789, *_GOOGLE),
}
PER_HOUR = {kind: price.per_hour for kind, price in LIST_PRICES.items()}
AS_OF = " to ".join(sorted({min(p.date for p in LIST_PRICES.values()), max(p.date for p in LIST_PRICES.values())}))


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
