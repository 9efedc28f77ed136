"""A plan of language models as flat arrays, which router and simulator read."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.clock import to_ns
from gearshift.errors import require
from gearshift.gear import SHARE_UNIT, Gear, GearPlan, LoadUnit
from gearshift.placement import Replica
from gearshift.plans.served import require_language_plan
from gearshift.policies.engines.deciding import DECIDES_AT_END, DECIDES_BY_ID
from gearshift.policies.engines.outstanding import LOAD_DRAIN_S, LOAD_OUTSTANDING_REQUESTS, LOAD_QUEUED_TOKENS
from gearshift.profiles.engines.engine_profile import EngineProfile, StepWork
from gearshift.profiles.engines.language_profile import BIN_EDGES, DECIDE_AT_TOKENS, LanguageProfile

LOAD_UNITS: dict[LoadUnit, int] = {
    "outstanding_requests": LOAD_OUTSTANDING_REQUESTS,
    "queued_tokens": LOAD_QUEUED_TOKENS,
    "drain_s": LOAD_DRAIN_S,
}
OUTSTANDING_PER_RUNNING = 2
"""Requests that an engine has at most, by default, for each that it can run at a time.

The next ones are at hand when some end. More would wait in the engine without being served sooner,
cost it memory and threads, and could not go elsewhere when gears shift.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineTables:
    """Models are numbered as in the profile, replicas by model and then as in the placement.

    Model m has replicas `replica_begin[m]` to `replica_begin[m + 1]`; replicas with the same
    `device` have an equal part of its time each, slowed beyond that by the factors of `sharing` from
    `replica * len(replicas)`; or, where some pair of them was not timed together, they take turns in
    steps: `in_turn` (groups,). Gear g's
    cascade is `stage_count[g]` entries of `stage_models`, `thresholds` and `decide_at` from
    `g * most_stages`; its settings are `shares` and `most_outstanding` from `g * len(replicas)`.
    `expected_output` has the bins of model m from `m * len(BIN_EDGES)`. `reading_ns` (for a
    prompt), `prompt_token_ns` and `output_token_ns` are of each replica at work, alone on its devices.
    """

    pipeline: str
    models: tuple[str, ...]
    replicas: tuple[str, ...]
    engines: tuple[EngineProfile, ...]
    """One for each replica, with the key-value blocks of its placement."""
    device_ids: tuple[str, ...]
    """All of the plan's hardware."""
    device_groups: tuple[tuple[str, ...], ...]
    """The devices of each number in `device`."""
    replica_model: NDArray[np.int64]
    replica_begin: NDArray[np.int64]
    device: NDArray[np.int64]
    sharing: NDArray[np.float64]
    in_turn: NDArray[np.bool_]
    reading_ns: NDArray[np.int64]
    prompt_token_ns: NDArray[np.int64]
    output_token_ns: NDArray[np.int64]
    slots: NDArray[np.int64]
    """Requests that each replica decodes at a time when it is full."""
    most_stages: int
    stage_count: NDArray[np.int64]
    stage_models: NDArray[np.int64]
    thresholds: NDArray[np.float64]
    decide_at: NDArray[np.int64]
    range_starts: NDArray[np.float64]
    shares: NDArray[np.int64]
    most_outstanding: NDArray[np.int64]
    load_unit: int
    upshift_margin: float
    bin_edges: NDArray[np.int64]
    expected_output: NDArray[np.int64]
    overhead_ns: int


def engine_tables(plan: GearPlan, profile: LanguageProfile) -> EngineTables:
    """Resolve a plan of language models; raises `InvalidInput` for what it lacks, or has and engines do not serve."""
    require_language_plan(plan)
    name, pipeline = next(iter(plan.pipelines.items()))
    models = profile.models
    unknown = sorted({replica.model for replica in plan.placement.replicas} - set(models))
    require(not unknown, f"the plan places models {unknown}, and the profile has {list(models)}")
    kinds = {device.id: device.kind for device in plan.hardware.devices}
    placed = sorted(plan.placement.replicas, key=lambda replica: models.index(replica.model))
    groups: dict[tuple[str, ...], int] = {}
    for replica in placed:
        mine = tuple(sorted(replica.device_ids))
        split = [other for other in groups if other != mine and set(other) & set(mine)]
        require(not split, f"replica {replica.id!r} shares only a part of its devices with another")
        groups.setdefault(mine, len(groups))
    engines = []
    for replica in placed:
        engine = profile.engine(
            replica.model, device_kind=kinds[replica.device_ids[0]], tensor_parallel=replica.tensor_parallel
        )
        if replica.kv_tokens is not UNSET:
            engine = msgspec.structs.replace(engine, kv_blocks=max(1, replica.kv_tokens // engine.block_tokens))
        engines.append(engine)
    cascades = [gear.cascade for gear in pipeline.gears]
    most_stages = max(len(cascade.models) for cascade in cascades)
    gears = len(cascades)
    stage_models = np.zeros((gears, most_stages), dtype=np.int64)
    thresholds = np.zeros((gears, most_stages))
    decide_at = np.full((gears, most_stages), DECIDES_AT_END, dtype=np.int64)
    for g, cascade in enumerate(cascades):
        stages = len(cascade.models)
        stage_models[g, :stages] = [models.index(model) for model in cascade.models]
        thresholds[g, : stages - 1] = cascade.thresholds
        if cascade.decide_at_tokens is not UNSET:
            for at in cascade.decide_at_tokens:
                known = at == 0 or at in DECIDE_AT_TOKENS
                require(known, f"a gear decides at token {at}, and certainty is recorded at {DECIDE_AT_TOKENS}")
            decide_at[g, : stages - 1] = [DECIDES_AT_END if at is None else at for at in cascade.decide_at_tokens]
            by_id = [at == DECIDES_BY_ID for at in cascade.decide_at_tokens]
            first = sorted(by_id, reverse=True) == by_id
            require(first, f"cascade {cascade} decides by certainty before a stage that decides by the request's id")
    rates = [work_rates(one, profile) for one in engines]
    device = np.array([groups[tuple(sorted(replica.device_ids))] for replica in placed])
    sharing = _sharing(engines, profile)
    unknown_beside = np.isnan(sharing) & (device[:, None] == device) & ~np.eye(len(placed), dtype=bool)
    return EngineTables(
        pipeline=name,
        models=models,
        replicas=tuple(replica.id for replica in placed),
        engines=tuple(engines),
        device_ids=tuple(kinds),
        device_groups=tuple(groups),
        replica_model=np.array([models.index(replica.model) for replica in placed]),
        replica_begin=np.searchsorted([models.index(one.model) for one in placed], np.arange(len(models) + 1)),
        device=device,
        sharing=np.where(np.isnan(sharing), 1.0, sharing).ravel(),
        in_turn=np.array([bool(unknown_beside[device == group].any()) for group in range(len(groups))]),
        reading_ns=np.array([to_ns(one.reading_s) for one in engines]),
        prompt_token_ns=np.array([to_ns(prompt_s) for prompt_s, _ in rates]),
        output_token_ns=np.array([to_ns(output_s) for _, output_s in rates]),
        slots=np.array([slots_of(one, profile)[0] for one in engines]),
        most_stages=most_stages,
        stage_count=np.array([len(cascade.models) for cascade in cascades]),
        stage_models=stage_models.ravel(),
        thresholds=thresholds.ravel(),
        decide_at=decide_at.ravel(),
        range_starts=np.array([gear.load_range.from_ for gear in pipeline.gears]),
        shares=_shares(pipeline.gears, placed),
        most_outstanding=_most_outstanding(pipeline.gears, placed, engines),
        load_unit=LOAD_UNITS[pipeline.load_unit],
        upshift_margin=pipeline.upshift_margin,
        bin_edges=np.array(BIN_EDGES),
        expected_output=np.concatenate([profile.answers.expected_output_tokens(model) for model in models]),
        overhead_ns=to_ns(profile.overhead_s),
    )


def work_rates(engine: EngineProfile, profile: LanguageProfile) -> tuple[float, float]:
    """Seconds of the engine for one token of a prompt, and for one of an answer, when it has much to do.

    A prompt is computed in steps as large as may be (beside its reading); answers come from all of the engine's slots.
    """
    at_once, context = slots_of(engine, profile)
    decoding = StepWork(prompt_tokens=0, prompts=0, decoding=at_once, kv_tokens=at_once * context, attention_pairs=0)
    chunk = engine.largest_batched_tokens
    filling = StepWork(prompt_tokens=chunk, prompts=1, decoding=0, kv_tokens=0, attention_pairs=0)
    return engine.step_s(filling) / chunk, engine.step_s(decoding) / at_once


def slots_of(engine: EngineProfile, profile: LanguageProfile) -> tuple[int, int]:
    """How many requests decode at a time as memory and the engine's bound allow, at the mean context of recorded ones.

    And that context, in tokens.
    """
    row = profile.answers.models.index(engine.model)
    prompts, outputs = profile.answers.prompt_tokens[row], profile.answers.output_tokens[row]
    context = int(np.ceil((prompts + outputs / 2).mean()))
    at_once = max(1, min(engine.largest_running, engine.kv_blocks * engine.block_tokens // max(1, context)))
    return at_once, context


def _sharing(engines: Sequence[EngineProfile], profile: LanguageProfile) -> NDArray[np.float64]:
    """The factor of each replica beside each other (replicas, replicas); NaN where none is known."""
    rows = [[profile.factor_of(one, other) for other in engines] for one in engines]
    return np.array([[np.nan if factor is None else factor for factor in row] for row in rows])


def _shares(gears: tuple[Gear, ...], placed: Sequence[Replica]) -> NDArray[np.int64]:
    """The share of each gear's replicas (gears x replicas,)."""
    rows = []
    for gear in gears:
        said = {one.replica: round(one.load_share * SHARE_UNIT) for one in gear.replicas}
        rows.append([said.get(one.id, 0) for one in placed])
    return np.array(rows, dtype=np.int64).ravel()


def default_most_outstanding(engine: EngineProfile) -> int:
    """The requests that an engine has at most in a gear that says nothing else."""
    return OUTSTANDING_PER_RUNNING * engine.largest_running


def _most_outstanding(
    gears: tuple[Gear, ...], placed: Sequence[Replica], engines: Sequence[EngineProfile]
) -> NDArray[np.int64]:
    """The bound of each gear's replicas (gears x replicas,)."""
    rows = []
    for gear in gears:
        said = {one.replica: one.most_outstanding for one in gear.replicas if one.most_outstanding is not UNSET}
        rows.append(
            [said.get(one.id, default_most_outstanding(engine)) for one, engine in zip(placed, engines, strict=True)]
        )
    return np.array(rows, dtype=np.int64).ravel()
