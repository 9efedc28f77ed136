"""The arrays of the kernel for language models as a run begins."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NEVER_NS
from gearshift.language_workload import LanguageWorkload
from gearshift.policies.engines.deciding import DECIDES_AT_END, DECIDES_BY_ID
from gearshift.policies.next_step import NOT_IN_CASCADE
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, LanguageProfile
from gearshift.simulator.engines.kernel.state import (
    CERTAINTY,
    NONE,
    Engine,
    Outcome,
    Plan,
    Queue,
    Request,
    Run,
    Samples,
    State,
    records,
)


def make_plan(tables: EngineTables, curve_s: NDArray[np.float64]) -> Plan:
    gears, models, groups = len(tables.stage_count), len(tables.models), len(tables.device_groups)
    stage_of = np.full((gears, models), NOT_IN_CASCADE, dtype=np.int64)
    for gear, (row, stages) in enumerate(
        zip(tables.stage_models.reshape(gears, -1), tables.stage_count.tolist(), strict=True)
    ):
        stage_of[gear, row[:stages]] = np.arange(stages)
    members = np.argsort(tables.device, kind="stable")
    first_member = np.searchsorted(tables.device[members], np.arange(groups + 1))
    columns = {DECIDES_AT_END if at is None else at: column for column, at in enumerate(DECIDE_AT_TOKENS, CERTAINTY)}
    columns[DECIDES_BY_ID] = CERTAINTY
    return Plan(
        **{name: getattr(tables, name) for name in Plan._fields if hasattr(tables, name) and name not in OWN},
        models=models,
        replicas=len(tables.replicas),
        bins=len(tables.bin_edges),
        bin_edges=np.tile(tables.bin_edges, models),
        stage_of=stage_of.ravel(),
        certainty_of=np.array([columns[at] for at in tables.decide_at.tolist()]),
        curve_s=curve_s,
        members=members,
        first_member=first_member,
        factors=tables.sharing,
    )


OWN = ("models", "replicas", "bin_edges")
"""Fields of `Plan` that are not as in the tables."""


def make_samples(profile: LanguageProfile, workload: LanguageWorkload) -> Samples:
    answers, none = profile.answers, np.zeros(0, dtype=np.int64)
    made = np.concatenate(
        (
            answers.prompt_tokens[..., None],
            answers.output_tokens[..., None],
            np.zeros((*answers.prompt_tokens.shape, 1)),
            answers.certainty,
        ),
        axis=2,
        dtype=np.float64,
    )
    return Samples(
        arrivals_ns=workload.arrivals_ns,
        by_id=workload.by_id,
        row=workload.record,
        rows=len(answers.part),
        answers=made.reshape(-1, CERTAINTY + len(DECIDE_AT_TOKENS)),
        prompt_tokens=none if workload.prompt_tokens is None else workload.prompt_tokens,
        output_tokens=none if workload.output_tokens is None else workload.output_tokens,
    )


def make_engines(tables: EngineTables, longest_output: int) -> tuple[Any, NDArray[np.float64]]:
    """The engines (replicas,) at rest, and the times of their steps: each curve from 0 tokens on."""
    engines = records(Engine, len(tables.engines))
    slots = 1 << longest_output.bit_length()
    curves: dict[tuple[StepCurve, int], int] = {}
    rows: list[NDArray[np.float64]] = []
    for number, (engine, profile) in enumerate(zip(engines, tables.engines, strict=True)):
        for name in (
            "block_tokens",
            "watermark_blocks",
            "largest_batched_tokens",
            "largest_running",
            "per_kv_token_s",
            "per_attention_token_s",
            "overhead_per_step_s",
            "overhead_per_request_s",
        ):
            setattr(engine, name, getattr(profile, name))
        engine.overhead_per_prompt_s = profile.reading_s
        for name in ("oldest", "newest", "first_waiting", "last_waiting", "filling", "first_chunk"):
            setattr(engine, name, NONE)
        engine.model, engine.group = tables.replica_model[number], tables.device[number]
        engine.prefill_first = profile.scheduler == "prefill_first"
        engine.prefill_gives_token = profile.prefill_gives_token
        engine.reading_ns = tables.reading_ns[number]
        engine.prompt_token_ns = tables.prompt_token_ns[number]
        engine.output_token_ns = tables.output_token_ns[number]
        engine.free_blocks = profile.kv_blocks
        engine.first_slot, engine.slots = number * slots, slots
        engine.prefill_curve = _curve(curves, rows, profile.prefill, profile)
        engine.decode_curve = _curve(curves, rows, profile.decode, profile)
    engines.first_phase = np.cumsum([0, *(profile.block_tokens for profile in tables.engines[:-1])])
    return engines, np.concatenate(rows)


def _curve(
    curves: dict[tuple[StepCurve, int], int], rows: list[NDArray[np.float64]], curve: StepCurve, profile: EngineProfile
) -> int:
    """Where the times of a curve begin."""
    most = profile.largest_batched_tokens
    if (curve, most) not in curves:
        curves[curve, most] = sum(map(len, rows))
        rows.append(np.interp(np.arange(most + 1), curve.tokens, curve.step_s))
    return curves[curve, most]


def make_state(tables: EngineTables, engines: Any, n: int) -> State:
    run, queues, replicas = records(Run, 1)[0], records(Queue, len(tables.models)), len(engines)
    run.begun = run.free = queues.first = queues.last = NONE
    slots, groups = int(engines.slots.sum()), len(tables.device_groups)
    return State(
        run=run,
        queues=queues,
        engines=engines.copy(),
        requests=records(Request, n),
        phases=np.zeros(int(engines.block_tokens.sum()), dtype=np.int64),
        soonest=np.full(slots, NONE, dtype=np.int32),
        ends_ns=np.full(replicas, NEVER_NS),
        outstanding=np.zeros(replicas, dtype=np.int64),
        work_ns=np.zeros(replicas, dtype=np.int64),
        lost=np.zeros(replicas, dtype=np.bool_),
        at_work=np.zeros(replicas, dtype=np.int64),
        left_ns=np.zeros(replicas, dtype=np.int64),
        since_ns=np.zeros(replicas, dtype=np.int64),
        stretch=np.zeros(replicas),
        busy_since_ns=np.full(groups, NEVER_NS),
        last=np.full(groups, NONE, dtype=np.int64),
        touched=np.zeros(groups, dtype=np.int64),
        is_touched=np.zeros(groups, dtype=np.int8),
    )


def make_outcome(tables: EngineTables, n: int, *, shifts: int, log_rows: int) -> Outcome:
    return Outcome(
        model=np.zeros(n, dtype=np.int8),
        gear=np.zeros(n, dtype=np.int16),
        answered_ns=np.zeros(n, dtype=np.int64),
        finished_ns=np.zeros(n, dtype=np.int64),
        output_tokens=np.zeros(n, dtype=np.int32),
        decided_at_token=np.zeros(n, dtype=np.int32),
        discarded_tokens=np.zeros((n, len(tables.models)), dtype=np.int32),
        preempted=np.zeros(n, dtype=np.int32),
        busy_ns=np.zeros(len(tables.device_groups), dtype=np.int64),
        steps=np.zeros(len(tables.replicas), dtype=np.int64),
        shifts=np.zeros((shifts, 2), dtype=np.int64),
        log=np.zeros((log_rows, 5), dtype=np.int64),
    )
