"""The kernel's arrays as a run begins, from a plan's tables and a workload."""

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NEVER_NS
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.load import METER_KEEPS_ARRIVALS
from gearshift.profiles.run_times import Exits, FrontEnd, fastest_ns
from gearshift.simulator.kernel.queues import NONE
from gearshift.simulator.kernel.state import BLOCK, Outcome, Pipeline, Plan, Run, Settings, State, record
from gearshift.workload import Workload

Ints = NDArray[np.int64]


def make_plan(tables: PlanTables, run_ns: Ints, exits: Exits | None) -> Plan:
    return Plan(
        **{name: getattr(tables, name) for name in Plan._fields if hasattr(tables, name)},
        range_starts=tables.pipeline.range_starts,
        run_ns=np.ascontiguousarray(run_ns),
        fastest_ns=fastest_ns(tables, run_ns),
        segment_ns=np.zeros((0, 0, 0), dtype=np.int64) if exits is None else exits.segment_ns,
        exit_segment=np.zeros((0, 0), dtype=np.int64) if exits is None else exits.exit_segment,
    )


def make_settings(
    tables: PlanTables, front_end: FrontEnd, *, most_waiting: int, by_deadline: bool, refuses: bool, by_exit: bool
) -> Settings:
    return Settings(
        replicas=len(tables.replica_ids),
        models=len(tables.models),
        devices=len(tables.device_ids),
        most_stages=tables.most_stages,
        meter=tables.pipeline.meter,
        alpha=tables.pipeline.alpha,
        upshift_margin=tables.pipeline.upshift_margin,
        starvation_ns=tables.pipeline.starvation_ns,
        most_waiting=most_waiting,
        by_deadline=True if by_deadline else None,
        refuses=refuses,
        by_exit=by_exit,
        arrival_ns=front_end.arrival_ns,
        answer_ns=front_end.answer_ns,
    )


def make_state(tables: PlanTables, workload: Workload, deadline_ns: Ints) -> State:
    samples, devices, replicas = len(workload), len(tables.device_ids), len(tables.replica_ids)
    blocks = -(-devices // BLOCK)
    run, pipeline = record(Run), record(Pipeline)
    run.next_end_ns = run.next_timer_ns = run.halted_ns = NEVER_NS
    pipeline.factor = 1.0
    first_row = first_rows(workload)
    return State(
        run=run,
        pipeline=pipeline,
        busy=np.zeros(devices, dtype=np.int8),
        ends_ns=np.full(blocks * BLOCK, NEVER_NS),
        block_ends_ns=np.full(blocks, NEVER_NS),
        ending=np.full(devices, NONE),
        wakes_ns=np.full(devices, NEVER_NS),
        batch=np.full(replicas, NONE),
        batch_length=np.zeros(replicas, dtype=np.int64),
        last=np.full(len(tables.models), NONE),
        following=np.full(replicas, NONE),
        due=np.zeros(replicas, dtype=np.int64),
        stride=np.zeros(replicas, dtype=np.int64),
        visited=np.zeros(samples, dtype=np.int64),
        touched=np.zeros(devices, dtype=np.int64),
        is_touched=np.zeros(devices, dtype=np.int8),
        kept_ns=np.zeros(METER_KEEPS_ARRIVALS, dtype=np.int64),
        deadline_ns=deadline_ns,
        gives_up_ns=np.full(replicas, NEVER_NS),
        free_ns=np.zeros(devices, dtype=np.int64),
        record=workload.record,
        exit=np.zeros(replicas, dtype=np.int64),
        first_row=first_row,
        open_rows=np.bincount(first_row, minlength=samples if len(first_row) else 0),
    )


def first_rows(workload: Workload) -> Ints:
    """The first row of the request of each sample; empty where all requests have one row."""
    if workload.continues is None:
        return np.zeros(0, dtype=np.int64)
    return np.maximum.accumulate(np.where(workload.continues, 0, np.arange(len(workload))))


def make_outcome(tables: PlanTables, workload: Workload, largest_batch_size: int, log_rows: int) -> Outcome:
    samples, devices, replicas = len(workload), len(tables.device_ids), len(tables.replica_ids)
    most_shifts = int(workload.duration_s * 10) * 2 + 1000
    return Outcome(
        finished_ns=np.full(samples, -1, dtype=np.int64),
        written_ns=np.full(samples, -1, dtype=np.int64),
        model=np.full(samples, -1, dtype=np.int8),
        gear=np.full(samples, -1, dtype=np.int16),
        ended=np.zeros(samples, dtype=np.int8),
        busy_ns=np.zeros(devices, dtype=np.int64),
        batches=np.zeros((replicas, largest_batch_size + 1), dtype=np.int64),
        arrived_in_gear=np.zeros(tables.pipeline.gears, dtype=np.int64),
        shifts=np.zeros((most_shifts, 2), dtype=np.int64),
        log=np.zeros((log_rows, 5), dtype=np.int64),
    )
