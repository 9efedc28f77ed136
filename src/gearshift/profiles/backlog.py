"""The bound on waiting samples: as many as the cheapest gear answers within the objective."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S, to_ns
from gearshift.gear import SHARE_UNIT, GearPlan, PipelinePlan
from gearshift.plans.plan_tables import PipelineTables, PlanTables
from gearshift.profiles.expected_visits import StageVisits, expected_visits, visits_alone
from gearshift.profiles.run_times import cheapest_gear_ns, front_end_of
from gearshift.profiles.several import Profiles, as_one, profile_of
from gearshift.profiles.tuples import JointRecords

USABLE_SHARE = 0.8
"""Share of the latency objective: batches may exceed their median, and queues differ in length."""
ON_TRACE = 1.2
"""Factor on the longest queue of the plan's own trace: other seeds have somewhat longer queues."""
WHERE_NONE_S, MOST_WHERE_NONE = 10.0, 10_000
"""Without a latency objective: seconds of work that may wait, and the most samples."""
MOST = 1 << 30


class Backlog(NamedTuple):
    """The most samples that may wait, and the samples answered per second at that number."""

    most_waiting: int
    capacity_qps: float


class _Part(NamedTuple):
    """A replica's `share` of all items for each sample, in a stage that `reach` of all samples come to.

    `run_ns` (sizes,) is by batch size, up to the largest.
    """

    stage: int
    reach: float
    devices: list[int]
    share: float
    run_ns: NDArray[np.int64]

    def batch_ns(self, samples: float) -> float:
        size = min(samples * self.share, len(self.run_ns) - 1)
        return float(np.interp(max(1.0, size), np.arange(len(self.run_ns)), self.run_ns))

    def all_ns(self, samples: float) -> float:
        size = max(1.0, min(samples * self.share, len(self.run_ns) - 1))
        return samples * self.share / size * self.batch_ns(samples)


def backlog_of(
    plan: GearPlan,
    tables: PlanTables,
    profiles: Profiles,
    *,
    joint: Mapping[str, JointRecords] = {},
    pipeline: str | None = None,
    scaler_cores: int | None = None,
) -> Backlog:
    """The largest number of samples that may wait for a pipeline, with up to `scaler_cores` if scaled.

    It is the only one if none is named. Devices that it shares are taken to be its own, but for
    batches of the others that refine there. `profiles`
    are by operator where there are several. Of a graph `joint` has the joint records, and its
    items are as many as recorded request rows visit; without them, each node is visited once.

    The last sample to come waits for the running batch, and is in the last batch of all that wait:
    this may take `USABLE_SHARE` of the objective. Where stages take turns on a device, a sample
    waits in each, and so for longer than the average. Where the plan refines, only screening is
    work that must be done, as full batches to screen go first; of the batch that refines when a
    sample comes, half is left on average. The bound is at least `ON_TRACE` times the
    most that waited when the plan was tried on its trace, and at least what replicas need to start
    a batch.
    """
    of = tables.pipeline if pipeline is None else tables.pipeline_named(pipeline)
    profile = as_one(profiles)
    visits = _visits(plan.pipelines[of.name], tables, of, profiles, joint.get(of.name))
    run_ns = cheapest_gear_ns(plan, tables, profile, scaler_cores=scaler_cores)
    parts = _parts(tables, of, visits, run_ns)
    front_end = front_end_of(profile)
    router_ns, devices = front_end.arrival_ns + front_end.answer_ns, len(tables.device_ids)

    necessary = [part for part in parts if part.stage == 0] if tables.refine.refines else parts
    refining_ns = _refining_ns(tables, parts, run_ns) if tables.refine.refines else 0.0

    def on_device_ns(samples: float) -> NDArray[np.float64]:
        on_device = np.zeros(devices)
        for part in necessary:
            on_device[part.devices] += part.all_ns(samples)
        return on_device

    def busy_ns(samples: float) -> float:
        return max(float(on_device_ns(samples).max()), samples * router_ns)

    objective = plan.pipelines[of.name].objective
    objective_s = objective.latency_s
    longer = _longer(necessary, int(on_device_ns(1.0).argmax()), 1 - objective.percentile)
    within_ns = USABLE_SHARE * to_ns(WHERE_NONE_S if objective_s is None else objective_s)
    low, high = 0, MOST if objective_s is not None else MOST_WHERE_NONE
    while low < high:
        middle = (low + high + 1) // 2
        running_ns = max(refining_ns / 2, *(part.batch_ns(middle) for part in necessary))
        low, high = (middle, high) if running_ns + longer * busy_ns(middle) <= within_ns else (low, middle - 1)
    predicted = plan.predictions.get(of.name)
    on_trace = 0 if predicted is None else math.ceil(ON_TRACE * (predicted.most_waiting or 0))
    most = max(1, low, on_trace, _most_to_start(tables, of))
    return Backlog(most, most * NS_PER_S / max(1.0, busy_ns(most)))


def _visits(
    pipeline: PipelinePlan, tables: PlanTables, of: PipelineTables, profiles: Profiles, joint: JointRecords | None
) -> dict[str, list[StageVisits]]:
    """By node, of the stages in the gear of the highest loads."""
    cascades = {name: tables.cascade(of.gears - 1, of.first_node + place) for place, name in enumerate(of.nodes)}
    if joint is None:
        predictions = as_one(profiles).predictions
        return {name: visits_alone(cascade, predictions) for name, cascade in cascades.items()}
    records = {name: profile_of(node.operator, profiles).predictions for name, node in pipeline.nodes.items()}
    return expected_visits(pipeline.nodes, pipeline.edges, cascades, records, joint)


def _parts(
    tables: PlanTables, of: PipelineTables, visits: Mapping[str, list[StageVisits]], run_ns: NDArray[np.int64]
) -> list[_Part]:
    gear, replicas = of.first_gear + of.gears - 1, len(tables.replica_ids)
    shares = tables.shares.reshape(-1, replicas)[gear]
    largest = tables.largest_batch_size.reshape(-1, replicas)[gear]
    parts, first_stage = list[_Part](), 0
    for place, node in enumerate(of.nodes):
        cascade = tables.cascade(of.gears - 1, of.first_node + place)
        for stage, (name, visited) in enumerate(zip(cascade.models, visits[node], strict=True)):
            model = tables.models.index(name)
            for replica in range(tables.model_begin[model], tables.model_begin[model + 1]):
                if shares[replica] > 0:
                    spans = tables.spans[tables.spans_begin[replica] : tables.spans_begin[replica + 1]].tolist()
                    share = visited.items * float(shares[replica]) / SHARE_UNIT
                    times_ns = run_ns[replica, : largest[replica] + 1]
                    parts.append(_Part(first_stage + stage, visited.rows, spans, share, times_ns))
        first_stage += len(cascade.models)
    return parts


def _refining_ns(tables: PlanTables, parts: list[_Part], run_ns: NDArray[np.int64]) -> float:
    """The longest batch of any pipeline that refines on a device on which this one screens."""
    screens, replicas = {device for part in parts if part.stage == 0 for device in part.devices}, len(run_ns)
    longest = 0
    for pipeline in tables.pipelines:
        row = pipeline.first_gear + pipeline.gears - 1
        shares, largest = (flat.reshape(-1, replicas)[row] for flat in (tables.shares, tables.largest_batch_size))
        for model in tables.cascade(pipeline.gears - 1, pipeline.first_node).models[1:]:
            number = tables.models.index(model)
            for replica in range(tables.model_begin[number], tables.model_begin[number + 1]):
                spans = {*tables.spans[tables.spans_begin[replica] : tables.spans_begin[replica + 1]].tolist()}
                if shares[replica] > 0 and screens & spans:
                    longest = max(longest, int(run_ns[replica, : largest[replica] + 1].max()))
    return float(longest)


def _longer(parts: list[_Part], device: int, few: float) -> float:
    """How much longer than the average a sample waits that passes all queues of a device.

    Stages that a share `few` of samples or less reach do not count.
    """
    reach = {part.stage: part.reach for part in parts if device in part.devices}
    return max(1.0, sum(share > few for share in reach.values()) / sum(reach.values()))


def _most_to_start(tables: PlanTables, of: PipelineTables) -> int:
    """The sum of queue lengths at which all replicas start a batch, in the gear with the most."""
    own, replicas = slice(of.first_gear, of.first_gear + of.gears), len(tables.replica_ids)
    used = tables.shares.reshape(-1, replicas)[own] > 0
    return int((tables.minimum_queue_length.reshape(-1, replicas)[own] * used).sum(axis=1).max())
