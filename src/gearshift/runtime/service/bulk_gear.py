"""The gear whose cascades bulk work keeps."""

import math
from collections.abc import Sequence

from gearshift.errors import UnknownModel
from gearshift.request import BulkWork


def bulk_gear_of(asked: BulkWork, accuracies: Sequence[float], gears: int, accuracy: float | None) -> int:
    """The gear that is asked for, or the cheapest that is predicted to reach the accuracy: the last that does.

    `accuracies` are the predictions for the gears, NaN where unknown. Without an `accuracy`, which is that of the
    plan's objective, bulk work keeps the cascades of the lowest load. Raises `UnknownModel` where the plan has no such
    gear.
    """
    if asked.gear is not None:
        has = f"the plan has gears 0 to {gears - 1}" if gears > 1 else "the plan has gear 0 alone"
        if not 0 <= asked.gear < gears:
            raise UnknownModel(f"gear is {asked.gear}, {has}", where="parameters", remedy="give one of these")
        return asked.gear
    wanted = accuracy if asked.accuracy is None else asked.accuracy
    if wanted is None:
        return 0
    enough = [gear for gear, predicted in enumerate(accuracies) if predicted >= wanted]
    if enough:
        return enough[-1]
    if asked.accuracy is None:
        return 0
    known = [predicted for predicted in accuracies if not math.isnan(predicted)]
    best = f"the best gear is predicted to have {max(known):.4g}" if known else "the plan predicts none of its gears"
    raise UnknownModel(
        f"no gear of the plan reaches accuracy {asked.accuracy:.4g}: {best}",
        where="parameters",
        remedy="ask for less, or name a gear",
    )
