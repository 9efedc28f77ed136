"""The kernel's arrays as a run begins, from a plan's tables and a workload."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NEVER_NS
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.load import METER_KEEPS_ARRIVALS
from gearshift.policies.refine import LEVELS
from gearshift.profiles.run_times import Exits, FrontEnd, fastest_ns, most_refined
from gearshift.request import NO_DEADLINE_NS
from gearshift.simulator.kernel.load_scaling import first_gears, make_slowdown
from gearshift.simulator.kernel.queues import NONE, longer
from gearshift.simulator.kernel.state import BLOCK, Outcome, Pipeline, Plan, Run, Settings, State, record, records
from gearshift.workload import Workload

Ints = NDArray[np.int64]


def make_plan(
    tables: PlanTables, run_ns: Ints, expected_ns: Ints | None, exits: Exits | None, most_waiting: Sequence[int]
) -> Plan:
    pipelines, run_ns = tables.pipelines, np.ascontiguousarray(run_ns)
    return Plan(
        **{name: getattr(tables, name) for name in Plan._fields if hasattr(tables, name)},
        meter=np.array([pipeline.meter for pipeline in pipelines]),
        alpha=np.array([pipeline.alpha for pipeline in pipelines], dtype=np.float64),
        upshift_margin=np.array([pipeline.upshift_margin for pipeline in pipelines], dtype=np.float64),
        most_waiting=np.array(most_waiting, dtype=np.int64),
        first_gear=first_gears(tables),
        entries=_entries(tables),
        entry_begin=tables.graph.entry_begin,
        range_starts=np.concatenate([pipeline.range_starts for pipeline in pipelines]),
        run_ns=run_ns,
        expected_ns=run_ns if expected_ns is None else np.ascontiguousarray(expected_ns),
        fastest_ns=fastest_ns(tables, run_ns),
        segment_ns=np.zeros((0, 0, 0), dtype=np.int64) if exits is None else exits.segment_ns,
        exit_segment=np.zeros((0, 0), dtype=np.int64) if exits is None else exits.exit_segment,
    )


def _entries(tables: PlanTables) -> Ints:
    """The nodes with which requests of each pipeline begin, in topological order."""
    graph = tables.graph
    place = {node: at for at, node in enumerate(graph.order.tolist())}
    each = [graph.entries[begin:end].tolist() for begin, end in pairwise(graph.entry_begin.tolist())]
    return np.array([node for entries in each for node in sorted(entries, key=place.__getitem__)])


def make_settings(
    tables: PlanTables,
    front_end: FrontEnd,
    *,
    first_item: int,
    several: bool,
    by_deadline: bool,
    refuses: bool,
    by_exit: bool,
    knows_waits: bool,
    learns_slowdown: bool,
) -> Settings:
    return Settings(
        replicas=len(tables.replica_ids),
        models=len(tables.models),
        devices=len(tables.device_ids),
        most_stages=tables.most_stages,
        several=True if several else None,
        chooses=True if several and by_deadline else None,
        refines=True if tables.refine.refines else None,
        slowdown=learns_slowdown,
        first_item=first_item,
        by_deadline=True if by_deadline else None,
        refuses=refuses,
        by_exit=by_exit,
        knows_waits=knows_waits,
        arrival_ns=front_end.arrival_ns,
        answer_ns=front_end.answer_ns,
    )


def make_state(
    tables: PlanTables,
    workload: Workload,
    run_ns: Ints,
    deadline_ns: Ints,
    items: int,
    *,
    several: bool,
    learns_slowdown: bool,
) -> State:
    """The state as a run begins; `items` is how many may be made in graphs."""
    samples, devices, replicas = len(workload), len(tables.device_ids), len(tables.replica_ids)
    blocks = -(-devices // BLOCK)
    run, pipelines = record(Run), records(Pipeline, len(tables.pipelines))
    run.next_end_ns = run.next_timer_ns = run.halted_ns = NEVER_NS
    run.ended_first = run.ended_last = NONE
    rows = samples if items else 0
    pipelines.factor = 1.0
    first_row = first_rows(workload)
    return State(
        run=run,
        pipelines=pipelines,
        pipeline_of=tables.pipeline_of,
        node=_first_nodes(tables, workload, items) if several else np.zeros(0, dtype=np.int16),
        row=longer(np.arange(rows, dtype=np.int32), items),
        replica=np.full(rows + items, NONE, dtype=np.int32),
        bulk_gear=np.zeros(0, dtype=np.int16) if workload.bulk_gear is None else longer(workload.bulk_gear, items),
        row_waits=np.zeros(rows, dtype=np.int32),
        is_over=np.zeros(rows, dtype=np.int8),
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
        visited=np.zeros(samples + items, dtype=np.int64),
        touched=np.zeros(devices, dtype=np.int64),
        is_touched=np.zeros(devices, dtype=np.int8),
        kept_ns=np.zeros(len(pipelines) * METER_KEEPS_ARRIVALS, dtype=np.int64),
        deadline_ns=longer(deadline_ns, items if len(deadline_ns) else 0),
        answer_by_ns=answer_by_ns(tables, workload)
        if tables.chooses or tables.refine.refines
        else np.zeros(0, dtype=np.int64),
        waits_ns=np.zeros(int(np.diff(tables.choice_begin).max()), dtype=np.int64),
        gives_up_ns=np.full(replicas, NEVER_NS),
        free_ns=np.zeros(devices, dtype=np.int64),
        record=longer(workload.record, items),
        exit=np.zeros(replicas, dtype=np.int64),
        first_row=first_row,
        open_rows=np.bincount(first_row, minlength=samples if len(first_row) else 0),
        refining=make_refining(tables, samples, run_ns),
        run_factors=np.zeros(0) if workload.run_factors is None else workload.run_factors,
        run_factor=np.ones(replicas),
        slowdown=make_slowdown(tables, learns=learns_slowdown),
    )


class Refining(NamedTuple):
    """The tables of `RefineTables`, and the rows that wait to be refined, of all pipelines.

    Per row `until_ns`, when its time to refine ends, and `level`. Per replica, used of the first of
    those alike: `length`, the `most` rows that may wait, `release_ns` (when the next row is answered
    as it is) and `top`, no level above which has rows. Per replica `overrun_ns`, when its batch, if
    it refines, overruns, and `check_ns`, when to look next for rows to answer while it runs; per row
    `over`, whether that was done. `screened_last` per device. `row`, `left_ns` and `row_level` are of the
    rows that the next batch is chosen from.
    """

    queue_of: Any
    margin_ns: Any
    for_gain: Any
    gain_begin: Any
    gain_certainty: Any
    gains: Any
    greatest: Any
    until_ns: Any
    level: Any
    most: Any
    length: Any
    release_ns: Any
    overrun_ns: Any
    check_ns: Any
    over: Any
    top: Any
    first: Any
    last: Any
    first_at: Any
    last_at: Any
    next_at: Any
    previous_at: Any
    screened_last: Any
    row: Any
    left_ns: Any
    row_level: Any


def make_refining(tables: PlanTables, samples: int, run_ns: Ints) -> Refining:
    refine, replicas = tables.refine, len(tables.replica_ids)
    rows, queues = (samples, replicas) if refine.refines else (0, 0)
    looked_at = 2 * int(tables.largest_batch_size.max())
    return Refining(
        queue_of=refine.queue_of,
        margin_ns=refine.margin_ns,
        for_gain=refine.for_gain,
        gain_begin=refine.gain_begin,
        gain_certainty=refine.gain_certainty,
        gains=refine.gains,
        greatest=refine.greatest,
        until_ns=np.zeros(rows, dtype=np.int64),
        level=np.zeros(rows, dtype=np.int8),
        most=most_refined(tables, run_ns)[:queues],
        length=np.zeros(queues, dtype=np.int64),
        release_ns=np.full(queues, NEVER_NS),
        overrun_ns=np.full(queues, NEVER_NS),
        check_ns=np.full(queues, NEVER_NS),
        over=np.zeros(rows, dtype=np.int8),
        top=np.zeros(queues, dtype=np.int64),
        first=np.full(queues, NONE, dtype=np.int32),
        last=np.full(queues, NONE, dtype=np.int32),
        first_at=np.full(queues * LEVELS, NONE, dtype=np.int32),
        last_at=np.full(queues * LEVELS, NONE, dtype=np.int32),
        next_at=np.full(rows, NONE, dtype=np.int32),
        previous_at=np.full(rows, NONE, dtype=np.int32),
        screened_last=np.zeros(len(tables.device_ids), dtype=np.int8),
        row=np.zeros(looked_at, dtype=np.int32),
        left_ns=np.zeros(looked_at, dtype=np.int64),
        row_level=np.zeros(looked_at, dtype=np.int64),
    )


def _first_nodes(tables: PlanTables, workload: Workload, items: int) -> NDArray[np.int16]:
    """The node of each sample, with room for `items`."""
    first = np.array([pipeline.first_node for pipeline in tables.pipelines], dtype=np.int16)
    of_samples = np.zeros(len(workload), dtype=np.int16) if workload.pipeline is None else first[workload.pipeline]
    return longer(of_samples, items)


def answer_by_ns(tables: PlanTables, workload: Workload) -> Ints:
    """When the objective wants the answer of each sample."""
    within_ns = np.array([pipeline.answer_within_ns for pipeline in tables.pipelines], dtype=np.int64)
    of_samples = within_ns[0] if workload.pipeline is None else within_ns[workload.pipeline]
    return np.minimum(NO_DEADLINE_NS, workload.arrivals_ns + of_samples)


def first_rows(workload: Workload) -> Ints:
    """The first row of the request of each sample; empty where all requests have one row."""
    if workload.continues is None:
        return np.zeros(0, dtype=np.int64)
    return np.maximum.accumulate(np.where(workload.continues, 0, np.arange(len(workload))))


def make_outcome(tables: PlanTables, workload: Workload, largest_batch_size: int, log_rows: int, items: int) -> Outcome:
    samples, devices, replicas = len(workload), len(tables.device_ids), len(tables.replica_ids)
    most_shifts = (int(workload.duration_s * 10) * 2 + 1000) * len(tables.pipelines)
    return Outcome(
        finished_ns=np.full(samples, -1, dtype=np.int64),
        written_ns=np.full(samples, -1, dtype=np.int64),
        model=np.full(samples + items, -1, dtype=np.int8),
        gear=np.full(samples + items, -1, dtype=np.int16),
        ended=np.zeros(samples + items, dtype=np.int8),
        busy_ns=np.zeros(devices, dtype=np.int64),
        batches=np.zeros((replicas, largest_batch_size + 1), dtype=np.int64),
        arrived_in_gear=np.zeros(sum(pipeline.gears for pipeline in tables.pipelines), dtype=np.int64),
        shifts=np.zeros((most_shifts, 3), dtype=np.int64),
        log=np.zeros((log_rows, 5), dtype=np.int64),
    )
