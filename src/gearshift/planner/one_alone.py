"""One model in place of a node's cascades: what the same devices would do with it, by simulation of the traces."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec

from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput, require
from gearshift.gear import Gear, GearPlan, PipelinePlan, ReplicaSettings
from gearshift.hardware import Hardware
from gearshift.placement import Placement, Replica
from gearshift.planner.joint.candidates import candidate_with, query_of, work_of
from gearshift.planner.joint.steady import SteadyTuples
from gearshift.planner.joint.tried import Trying
from gearshift.planner.space.beside import models_of, with_settings
from gearshift.planner.space.hosts import bytes_per_device, replica_on, ways
from gearshift.planner.space.request import Progress, silent
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.profiles.tuples import JointRecords
from gearshift.result import ServingResult
from gearshift.workload import Trace

NO_LIMIT_S = 1e6


class OneAlone(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that each have one model in every gear, on the plan's devices; other nodes are as in the plan.

    `models` are by node. Where there is no such plan, `reason` says why.
    """

    models: dict[str, str]
    predicted: ServingResult | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        """For example "large alone"."""
        return f"{' and '.join(dict.fromkeys(self.models.values()))} alone"


def each_alone(
    plan: GearPlan,
    profiles: Mapping[str, Profile],
    joint: Mapping[str, JointRecords],
    traces: Mapping[str, Trace],
    *,
    progress: Progress = silent,
) -> dict[str, tuple[OneAlone, ...]]:
    """For each pipeline, each model of each node that has several, alone; and the largest of all those nodes together.

    Each is simulated on all traces, with the records of part B, as the plan is. The model is on every
    device that has room for it once models that no cascade needs any more are gone. Batches are the
    best that are found for each range on part A; rows wait in the order of the plan's gears. On a host
    whose cores models share there is none.
    """
    if plan.hardware.pool_cores is not None:
        return dict.fromkeys(plan.pipelines, ())
    trying = Trying(plan, profiles, joint, traces)
    wanted = [(name, models) for name, pipeline in plan.pipelines.items() for models in _choices(pipeline, profiles)]
    found: dict[str, list[OneAlone]] = {name: [] for name in plan.pipelines}
    for done, (name, models) in enumerate(wanted):
        progress(f"{name} with {' and '.join(models.values())} alone", done / len(wanted))
        found[name].append(_alone(trying, name, models))
    return {name: tuple(each) for name, each in found.items()}


def _choices(pipeline: PipelinePlan, profiles: Mapping[str, Profile]) -> Iterator[dict[str, str]]:
    of_nodes = {name: profiles[node.operator] for name, node in pipeline.nodes.items()}
    several = {name: profile for name, profile in of_nodes.items() if len(profile.models) > 1}
    for name, profile in several.items():
        for model in profile.models:
            yield {name: model}
    if len(several) > 1:
        work_s = {name: work_of(profile) for name, profile in several.items()}
        yield {name: max(work_s[name], key=lambda model: work_s[name][model]) for name in several}


def _alone(trying: Trying, name: str, models: dict[str, str]) -> OneAlone:
    try:
        made = _restricted(trying, name, models)
        run = trying.replay(made, part=PART_B)
    except InvalidInput as error:
        return OneAlone(models=models, reason=str(error))
    latency_s = made.pipelines[name].objective.latency_s
    return OneAlone(models=models, predicted=run.result(trying.profiles, latency_objective_s=latency_s, pipeline=name))


def _restricted(trying: Trying, name: str, models: Mapping[str, str]) -> GearPlan:
    """The plan whose nodes of `models` have these alone; raises `InvalidInput` where one fits on no device."""
    plan, pipeline = trying.plan, trying.plan.pipelines[name]
    cascades = [
        {node: Cascade(models=(models[node],)) if node in models else of[-1] for node, of in gear.cascades.items()}
        for gear in pipeline.gears
    ]
    needed = {model for each in cascades for cascade in each.values() for model in cascade.models}
    needed |= {model for other, one in plan.pipelines.items() if other != name for model in models_of(one)}
    placement = _placed(plan, sorted(needed), set(models.values()), trying.together)
    request = trying.request(name, pipeline.objective.latency_s or NO_LIMIT_S)
    query = query_of(request, request.profiles, request.records, part=PART_A)
    steady, gears = SteadyTuples(request, placement), list[Gear]()
    for gear, each in zip(pipeline.gears, cascades, strict=True):
        candidate = candidate_with(request, each, query=query)
        predicted_qps = None if gear.predicted is None else gear.predicted.load_qps
        load_qps = gear.load_range.to or predicted_qps or trying.traces[name].peak_qps
        settings = steady.settings(candidate, steady.size(candidate, load_qps))
        made = request.gear(gear.load_range, each, settings)
        gears.append(
            msgspec.structs.replace(
                made, order=gear.order, answer_by_margin_s=gear.answer_by_margin_s, refine_for=gear.refine_for
            )
        )
    changed = msgspec.structs.replace(pipeline, gears=tuple(gears), planned_load=None)
    pipelines = with_settings(plan.pipelines, partial(_all_of, placement)) | {name: changed}
    return msgspec.structs.replace(plan, placement=placement, pipelines=pipelines, predictions={})


def _all_of(placement: Placement, settings: Sequence[ReplicaSettings]) -> tuple[ReplicaSettings, ...]:
    """Settings of all replicas of a placement, of which those without any rest."""
    known = {one.replica: one for one in settings}
    return tuple(
        known.get(each.id, ReplicaSettings(replica=each.id, load_share=0.0, cores=each.cores))
        for each in placement.replicas
    )


def _placed(plan: GearPlan, needed: Sequence[str], alone: set[str], together: Profile) -> Placement:
    """The plan's replicas of the models `needed`, and more of those `alone` wherever there is room."""
    replicas = [replica for replica in plan.placement.replicas if replica.model in needed]
    left = _free_bytes(replicas, plan.hardware, together)
    for model in sorted(alone):
        there = {device for replica in replicas if replica.model == model for device in replica.device_ids}
        for device in plan.hardware.devices:
            found = [way for way in ways(together, kind=device.kind, cores=device.cores) if way.model == model]
            way = next((way for way in found if way.tensor_parallel == 1), None)
            if way is not None and device.id not in there and bytes_per_device(way) <= left[device.id]:
                left[device.id] -= bytes_per_device(way)
                replicas.append(replica_on(way, [device]))
    lacking = sorted(alone - {replica.model for replica in replicas})
    require(not lacking, f"there is no room for model {', '.join(lacking)} on any device")
    return Placement(replicas=tuple(replicas))


def _free_bytes(replicas: Sequence[Replica], hardware: Hardware, together: Profile) -> dict[str, int]:
    kinds = {device.id: device.kind for device in hardware.devices}
    left = {device.id: device.memory_bytes for device in hardware.devices}
    for replica in replicas:
        kind, parallel = kinds[replica.device_ids[0]], replica.tensor_parallel
        curve = together.curve(replica.model, device_kind=kind, tensor_parallel=parallel, cores=replica.cores)
        for device in replica.device_ids:
            left[device] -= bytes_per_device(curve)
    return left
