"""The parts of a plan that refine, as flat arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.clock import to_ns
from gearshift.gear import ExpectedGain, GearPlan
from gearshift.placement import Replica

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefineTables:
    """Refinement of a plan; arrays are empty where it has none (`refines`).

    Replica r waits for rows in the queues of `queue_of[r]`, the first replica that is like it; in
    other plans each has its own. Per gear: `margin_ns`, and `for_gain`, 1 where batches are for the
    most gain per second. The gain of model m over a kept answer of model k is in the table from
    `gain_begin[k * models + m]` to the next of `gain_begin`: `gain_certainty`, which rises, and
    `gains`. `greatest` is the largest gain.
    """

    refines: bool
    queue_of: Ints
    margin_ns: Ints
    for_gain: Ints
    gain_begin: Ints
    gain_certainty: Floats
    gains: Floats
    greatest: float


def refine_tables(plan: GearPlan, replicas: Sequence[Replica], index: Mapping[str, int]) -> RefineTables:
    """The tables of a plan whose replicas are in this order, and its models numbered by `index`."""
    pipelines = plan.pipelines.values()
    if not any(pipeline.refines for pipeline in pipelines):
        none, no_gain = np.zeros(0, dtype=np.int64), np.zeros(0)
        alone = np.arange(len(replicas), dtype=np.int64)
        return RefineTables(
            refines=False,
            queue_of=alone,
            margin_ns=none,
            for_gain=none,
            gain_begin=none,
            gain_certainty=no_gain,
            gains=no_gain,
            greatest=0.0,
        )
    gears = [gear for pipeline in pipelines for gear in pipeline.gears]
    pairs: dict[tuple[int, int], ExpectedGain] = {}
    for pipeline in pipelines:
        for gain in () if pipeline.gains is UNSET else pipeline.gains:
            if gain.kept in index and gain.later in index:
                pairs[index[gain.kept], index[gain.later]] = gain
    in_order = [pairs.get((kept, later)) for kept in range(len(index)) for later in range(len(index))]
    tables = [gain for gain in in_order if gain is not None]
    gains = np.array([each for table in tables for each in table.gain], dtype=np.float64)
    return RefineTables(
        refines=True,
        queue_of=alike(plan, replicas),
        margin_ns=np.array(
            [0 if gear.answer_by_margin_s is UNSET else to_ns(gear.answer_by_margin_s) for gear in gears],
            dtype=np.int64,
        ),
        for_gain=np.array([gear.refine_for != "rows" for gear in gears], dtype=np.int64),
        gain_begin=np.cumsum([0, *(0 if gain is None else len(gain.gain) for gain in in_order)], dtype=np.int64),
        gain_certainty=np.array([each for table in tables for each in table.certainty], dtype=np.float64),
        gains=gains,
        greatest=float(gains.max(initial=0.0)),
    )


def alike(plan: GearPlan, replicas: Sequence[Replica]) -> Ints:
    """Per replica, the first one that runs the same model on the same kind of device."""
    kinds = {device.id: device.kind for device in plan.hardware.devices}
    first: dict[tuple[object, ...], int] = {}
    keys = [(each.model, kinds[each.device_ids[0]], each.tensor_parallel, each.cores) for each in replicas]
    return np.array([first.setdefault(key, number) for number, key in enumerate(keys)], dtype=np.int64)
