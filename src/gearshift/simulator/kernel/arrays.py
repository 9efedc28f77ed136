"""The kernel's arrays as a run begins, from a plan's tables and a workload."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NEVER_NS
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.load import METER_KEEPS_ARRIVALS
from gearshift.profiles.run_times import Exits, FrontEnd, fastest_ns
from gearshift.simulator.kernel.load_scaling import first_gears
from gearshift.simulator.kernel.queues import NONE
from gearshift.simulator.kernel.state import BLOCK, Outcome, Pipeline, Plan, Run, Settings, State, record, records
from gearshift.workload import Workload

Ints = NDArray[np.int64]


def make_plan(tables: PlanTables, run_ns: Ints, exits: Exits | None, most_waiting: Sequence[int]) -> Plan:
    pipelines = tables.pipelines
    return Plan(
        **{name: getattr(tables, name) for name in Plan._fields if hasattr(tables, name)},
        meter=np.array([pipeline.meter for pipeline in pipelines]),
        alpha=np.array([pipeline.alpha for pipeline in pipelines], dtype=np.float64),
        upshift_margin=np.array([pipeline.upshift_margin for pipeline in pipelines], dtype=np.float64),
        most_waiting=np.array(most_waiting, dtype=np.int64),
        first_gear=first_gears(tables),
        range_starts=np.concatenate([pipeline.range_starts for pipeline in pipelines]),
        run_ns=np.ascontiguousarray(run_ns),
        fastest_ns=fastest_ns(tables, run_ns),
        segment_ns=np.zeros((0, 0, 0), dtype=np.int64) if exits is None else exits.segment_ns,
        exit_segment=np.zeros((0, 0), dtype=np.int64) if exits is None else exits.exit_segment,
    )


def make_settings(
    tables: PlanTables, front_end: FrontEnd, *, by_deadline: bool, refuses: bool, by_exit: bool
) -> Settings:
    return Settings(
        replicas=len(tables.replica_ids),
        models=len(tables.models),
        devices=len(tables.device_ids),
        most_stages=tables.most_stages,
        several=True if len(tables.pipelines) > 1 else None,
        by_deadline=True if by_deadline else None,
        refuses=refuses,
        by_exit=by_exit,
        arrival_ns=front_end.arrival_ns,
        answer_ns=front_end.answer_ns,
    )


def make_state(tables: PlanTables, workload: Workload, deadline_ns: Ints) -> State:
    samples, devices, replicas = len(workload), len(tables.device_ids), len(tables.replica_ids)
    blocks = -(-devices // BLOCK)
    run, pipelines = record(Run), records(Pipeline, len(tables.pipelines))
    run.next_end_ns = run.next_timer_ns = run.halted_ns = NEVER_NS
    pipelines.factor = 1.0
    first_row = first_rows(workload)
    return State(
        run=run,
        pipelines=pipelines,
        pipeline_of=np.zeros(0, dtype=np.int8) if workload.pipeline is None else workload.pipeline,
        gear_row=first_gears(tables)[:-1].copy(),
        minimum_queue_length=np.zeros(replicas, dtype=np.int64),
        largest_batch_size=np.zeros(replicas, dtype=np.int64),
        longest_wait_ns=np.zeros(replicas, dtype=np.int64),
        busy=np.zeros(devices, dtype=np.int8),
        ends_ns=np.full(blocks * BLOCK, NEVER_NS),
        block_ends_ns=np.full(blocks, NEVER_NS),
        ending=np.full(devices, NONE),
        wakes_ns=np.full(devices, NEVER_NS),
        batch=np.full(replicas, NONE),
        batch_length=np.zeros(replicas, dtype=np.int64),
        last=np.full(len(pipelines) * len(tables.models), NONE),
        following=np.full(len(pipelines) * replicas, NONE),
        due=np.zeros(len(pipelines) * replicas, dtype=np.int64),
        stride=np.zeros(len(pipelines) * replicas, dtype=np.int64),
        visited=np.zeros(samples, dtype=np.int64),
        touched=np.zeros(devices, dtype=np.int64),
        is_touched=np.zeros(devices, dtype=np.int8),
        kept_ns=np.zeros(len(pipelines) * METER_KEEPS_ARRIVALS, dtype=np.int64),
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
    most_shifts = (int(workload.duration_s * 10) * 2 + 1000) * len(tables.pipelines)
    return Outcome(
        finished_ns=np.full(samples, -1, dtype=np.int64),
        written_ns=np.full(samples, -1, dtype=np.int64),
        model=np.full(samples, -1, dtype=np.int8),
        gear=np.full(samples, -1, dtype=np.int16),
        ended=np.zeros(samples, dtype=np.int8),
        busy_ns=np.zeros(devices, dtype=np.int64),
        batches=np.zeros((replicas, largest_batch_size + 1), dtype=np.int64),
        arrived_in_gear=np.zeros(sum(pipeline.gears for pipeline in tables.pipelines), dtype=np.int64),
        shifts=np.zeros((most_shifts, 3), dtype=np.int64),
        log=np.zeros((log_rows, 5), dtype=np.int64),
    )
