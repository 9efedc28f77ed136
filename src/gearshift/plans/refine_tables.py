"""The parts of a plan that refine, as flat arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.cascade import ExpectedGain
from gearshift.clock import to_ns
from gearshift.gear import GearPlan, PipelinePlan
from gearshift.placement import Replica

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefineTables:
    """Refinement of a plan; arrays are empty where it has none (`refines`).

    Replica r waits for rows in the queues of `queue_of[r]`, the first replica that is like it; in
    other plans each has its own. Per gear: `margin_ns`, and `for_gain`, 1 where batches are for the
    most gain per second. What model m gains over a kept answer of model k in pipeline p is in the
    table from `gain_begin[(p * models + k) * models + m]` to the next of `gain_begin`:
    `gain_certainty`, which rises, and `gains`, times the worth of the pipeline. `greatest`
    (pipelines,) is the largest of `gains` of a pipeline and those that it shares devices with, so
    that their levels compare.
    """

    refines: bool
    queue_of: Ints
    margin_ns: Ints
    for_gain: Ints
    gain_begin: Ints
    gain_certainty: Floats
    gains: Floats
    greatest: Floats


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
            greatest=no_gain,
        )
    gears = [gear for pipeline in pipelines for gear in pipeline.gears]
    in_order = [gain for pipeline in pipelines for gain in _by_pair(pipeline, index)]
    tables = [gain for gain in in_order if gain is not None]
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
        gains=np.array([gain for pipeline in pipelines for gain in _weighed(pipeline, index)], dtype=np.float64),
        greatest=np.array([max(gains, default=0.0) for gains in _comparable(plan, index)], dtype=np.float64),
    )


def _by_pair(pipeline: PipelinePlan, index: Mapping[str, int]) -> list[ExpectedGain | None]:
    """The gains of a pipeline by kept and later model, None where it has none."""
    pairs = {(gain.kept, gain.later): gain for gain in (() if pipeline.gains is UNSET else pipeline.gains)}
    return [pairs.get((kept, later)) for kept in index for later in index]


def _weighed(pipeline: PipelinePlan, index: Mapping[str, int]) -> list[float]:
    """The gains of a pipeline, one table after another, times its worth."""
    worth = 1.0 if pipeline.worth is UNSET else pipeline.worth
    return [worth * each for table in _by_pair(pipeline, index) if table is not None for each in table.gain]


def _comparable(plan: GearPlan, index: Mapping[str, int]) -> list[list[float]]:
    """By pipeline, the weighed gains of all that share devices with it, or with one that does."""
    devices_of = _devices_of(plan)
    groups: list[tuple[set[str], set[str]]] = []  # pipelines, and the devices that they have together
    for name in plan.pipelines:
        names, devices = {name}, set(devices_of[name])
        apart = []
        for group in groups:
            if group[1] & devices:
                names, devices = names | group[0], devices | group[1]
            else:
                apart.append(group)
        groups = [*apart, (names, devices)]
    of_group = {name: names for names, _ in groups for name in names}
    weighed = {name: _weighed(pipeline, index) for name, pipeline in plan.pipelines.items()}
    return [[gain for other in sorted(of_group[name]) for gain in weighed[other]] for name in plan.pipelines]


def _devices_of(plan: GearPlan) -> dict[str, set[str]]:
    """By pipeline, the devices of replicas that some gear of it uses, and of those that share their queues."""
    replicas = plan.placement.replicas
    queue_of = alike(plan, replicas).tolist()
    of_queue: dict[int, set[str]] = {}
    for replica, queue in zip(replicas, queue_of, strict=True):
        of_queue.setdefault(queue, set()).update(replica.device_ids)
    spans = {replica.id: of_queue[queue] for replica, queue in zip(replicas, queue_of, strict=True)}
    return {
        name: {
            device
            for gear in pipeline.gears
            for settings in gear.replicas
            if settings.load_share > 0
            for device in spans[settings.replica]
        }
        for name, pipeline in plan.pipelines.items()
    }


def alike(plan: GearPlan, replicas: Sequence[Replica]) -> Ints:
    """Per replica, the first one that runs the same model on the same kind of device."""
    kinds = {device.id: device.kind for device in plan.hardware.devices}
    first: dict[tuple[object, ...], int] = {}
    keys = [(each.model, kinds[each.device_ids[0]], each.tensor_parallel, each.cores) for each in replicas]
    return np.array([first.setdefault(key, number) for number, key in enumerate(keys)], dtype=np.int64)
