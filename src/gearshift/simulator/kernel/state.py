"""The arrays that the kernel reads and changes, its log, and the ends of batches."""

from functools import cache
from typing import Any, NamedTuple, TypeVar, get_type_hints

import numpy as np

from gearshift.clock import NEVER_NS
from gearshift.request import NOT_BULK
from gearshift.support.compiled import inlined

BLOCK = 16
"""Devices that keep their earliest end together, so that the next end is found quickly."""


class Run:
    """Where a run stands, one for all pipelines.

    Times: `next_end_ns`, `next_timer_ns` and `next_tick_ns` are the next of their kind; `free_ns`
    is when the router has done all that it has begun. `halted_ns` is the instant of the shift that
    halted the run, else `NEVER_NS`; `decided_ns` is when cores were decided since.

    Counts: samples `arrived` and `done`, items `made` in graphs, batches `started` (only where run
    times vary), rows in `log` and in `shifts`, and devices in `touched`. Items that have ended, and
    whose row has to go on, are chained by `Queues.next` from `ended_first` to `ended_last`.
    """

    next_end_ns: int
    next_timer_ns: int
    next_tick_ns: int
    free_ns: int
    halted_ns: int
    decided_ns: int
    arrived: int
    done: int
    made: int
    started: int
    ended_first: int
    ended_last: int
    touched: int
    logged: int
    shifts: int


class Pipeline:
    """Gear and meter of a pipeline.

    `waiting` samples are queued, or rows of which an item is; `most_waiting` did at once, just
    arrived ones included. `metered`
    ones have been counted, `metered_at_tick` of them by the last tick, which was taken up at
    `ticked_ns`; `arrived` was `arrived_at_tick` then. `factor` multiplies metered load.
    """

    gear: int
    eased_ticks: int
    waiting: int
    most_waiting: int
    arrived: int
    metered: int
    metered_at_tick: int
    arrived_at_tick: int
    ticked_ns: int
    factor: float


R = TypeVar("R", Run, Pipeline)


def records(kind: type[R], count: int) -> Any:
    """Records (count,) of the fields of `kind`, all 0: Python and compiled code change them in place."""
    fields: Any = kind
    return np.zeros(count, _layout(fields)).view(np.recarray)


@cache
def _layout(kind: Any) -> np.dtype[Any]:
    return np.dtype([(name, np.dtype(of)) for name, of in get_type_hints(kind).items()], align=True)


def record(kind: type[R]) -> R:
    made: R = records(kind, 1)[0]
    return made


class Plan(NamedTuple):
    """The arrays of `PlanTables`, with `run_ns` (replicas, sizes): how long a batch holds devices.

    `expected_ns`, of the same shape, is what slowdown is learnt against: with learned caches the mean.

    Per pipeline: `meter`, `alpha`, `upshift_margin`, and `most_waiting` samples that may wait. Its
    load ranges begin at `range_starts` from `first_gear[p]` to `first_gear[p + 1]`.

    `fastest_ns` (models,) is the time of one sample on a model's fastest replica. Only where
    models have learned caches: `segment_ns` (replicas, segments, sizes) and `exit_segment`
    (models, records), as in `Exits`.
    """

    meter: Any
    alpha: Any
    upshift_margin: Any
    most_waiting: Any
    first_gear: Any
    replica_model: Any
    model_begin: Any
    on_device: Any
    on_device_begin: Any
    spans: Any
    spans_begin: Any
    starvation_ns: Any
    first_row: Any
    choice_begin: Any
    prefixes: Any
    table_begin: Any
    table_ns: Any
    table_quality: Any
    margin_ns: Any
    entries: Any
    entry_begin: Any
    stage_count: Any
    stage_models: Any
    thresholds: Any
    stage_of: Any
    shares: Any
    minimum_queue_length: Any
    largest_batch_size: Any
    longest_wait_ns: Any
    range_starts: Any
    run_ns: Any
    expected_ns: Any
    fastest_ns: Any
    segment_ns: Any
    exit_segment: Any


class Settings(NamedTuple):
    """Constants of a run.

    `by_deadline` is True where deadlines limit batches and drop samples, where batches shrink
    (`by_exit`) or where cores change, else None: None has its own type, so that the loop compiled
    for it contains no code for these. So are `several`, for plans of several nodes, `chooses` (with
    both, a node may have several implementations in a gear), and `refines`, for order by gain.
    `slowdown` is learnt. Samples from `first_item` on are items of graphs, made for the request rows before them.
    `refuses`: samples without any answer may be dropped, too. `knows_waits`: choices by the time
    left take waits off. `arrival_ns` and `answer_ns` are of the `FrontEnd`.
    """

    replicas: int
    models: int
    devices: int
    most_stages: int
    several: Any
    chooses: Any
    refines: Any
    slowdown: bool
    first_item: int
    by_deadline: Any
    refuses: bool
    by_exit: bool
    knows_waits: bool
    arrival_ns: int
    answer_ns: int


class State(NamedTuple):
    """The changing state of a run.

    Per device: `busy`, `ends_ns` (of the batch whose first device it is), `ending`, `wakes_ns`.
    `block_ends_ns`: the earliest of `ends_ns` per `BLOCK` devices. Per replica: `batch` (its first
    sample), `batch_length`, and the settings in force. Per sample: `visited` models as bits.
    Only with bulk work: `bulk_gear` per sample, the gear whose cascades it keeps, or `NOT_BULK`.
    Per pipeline: `gear_row`, the row of its gear in arrays by gear; its last arrivals `kept_ns`, a
    ring; and the rings of `policies/routing.py`, `last` per model and `following`, `due`, `stride`
    per replica. `touched` lists idle devices to start on after an event; `is_touched` says which
    are in it.

    Only where there are several nodes: `node` per sample, `pipeline_of` per node. Only in graphs:
    per item `row`, and `replica`, whose queue it is in, or `NONE`; per request row `row_waits`, how
    many of its items are queued, and `is_over`.

    Only with choices or refinement: `answer_by_ns` per request row, by the objective. Only with
    choices: `waits_ns` of those that are compared. Only with deadlines: `deadline_ns` per sample,
    `gives_up_ns` per replica (when the head of its queue is dropped) and `free_ns` per device (when
    its batch ends). Only where batches shrink: `record` per sample, `exit` per replica (the segment
    after which samples leave next). Only
    where requests have several rows: `first_row` per sample, and `open_rows` of the request of a
    first row. `refining` is in `kernel/refining.py`; its arrays are empty where nothing refines.
    `slowdown` is in `kernel/load_scaling.py`.
    Only where run times vary: `run_factors`, as in `Workload`, and the `run_factor` of each
    replica's batch.
    """

    run: Run
    pipelines: Any
    pipeline_of: Any
    node: Any
    row: Any
    replica: Any
    row_waits: Any
    bulk_gear: Any
    is_over: Any
    gear_row: Any
    minimum_queue_length: Any
    largest_batch_size: Any
    longest_wait_ns: Any
    busy: Any
    ends_ns: Any
    block_ends_ns: Any
    ending: Any
    wakes_ns: Any
    batch: Any
    batch_length: Any
    last: Any
    following: Any
    due: Any
    stride: Any
    visited: Any
    touched: Any
    is_touched: Any
    kept_ns: Any
    deadline_ns: Any
    answer_by_ns: Any
    waits_ns: Any
    gives_up_ns: Any
    free_ns: Any
    record: Any
    exit: Any
    first_row: Any
    open_rows: Any
    refining: Any
    run_factors: Any
    run_factor: Any
    slowdown: Any


class Outcome(NamedTuple):
    """The results of a run: per sample `finished_ns` (-1: refused), `model`, `gear` and `ended`.

    Items of graphs have the last three, too. `written_ns` (n,) is when the router has written the
    answer that was decided at `finished_ns`. `busy_ns` (devices,); `batches` (replicas, sizes);
    `arrived_in_gear` (gears,), by the plan's rows; `shifts` (capacity, 3) of time, gear and
    pipeline; `log` (capacity, 5) of decisions, empty when none is wanted.
    """

    finished_ns: Any
    written_ns: Any
    model: Any
    gear: Any
    ended: Any
    busy_ns: Any
    batches: Any
    arrived_in_gear: Any
    shifts: Any
    log: Any


@inlined
def pipeline_of(settings: Settings, state: State, sample: int) -> int:
    return 0 if settings.several is None else state.pipeline_of[state.node[sample]]


@inlined
def is_item(settings: Settings, sample: int) -> bool:
    """Whether this is an item of a graph, and no request row."""
    return settings.several is not None and sample >= settings.first_item


@inlined
def is_bulk(settings: Settings, state: State, sample: int) -> bool:
    return settings.several is not None and state.bulk_gear.shape[0] > 0 and state.bulk_gear[sample] != NOT_BULK


@inlined
def gear_of(settings: Settings, state: State, number: int, sample: int) -> Any:
    """The gear whose cascades a sample of pipeline `number` takes: the one in force, or one that bulk work keeps."""
    if is_bulk(settings, state, sample):
        return state.bulk_gear[sample]
    return state.pipelines[number].gear


@inlined
def waits(settings: Settings, state: State, sample: int, replica: int) -> None:
    """Count a sample that begins to wait; a request row counts once, however many items wait, bulk work not at all."""
    pipeline = state.pipelines[pipeline_of(settings, state, sample)]
    if is_item(settings, sample):
        row = state.row[sample]
        state.replica[sample] = replica
        state.row_waits[row] += 1
        if state.row_waits[row] != 1:
            return
    if not is_bulk(settings, state, sample):
        pipeline.waiting += 1


@inlined
def waits_no_more(settings: Settings, state: State, sample: int) -> None:
    pipeline = state.pipelines[pipeline_of(settings, state, sample)]
    if is_item(settings, sample):
        row = state.row[sample]
        state.replica[sample] = -1
        state.row_waits[row] -= 1
        if state.row_waits[row] != 0:
            return
    if not is_bulk(settings, state, sample):
        pipeline.waiting -= 1


@inlined
def goes_on(state: State, q_next: Any, item: int) -> None:
    """Put an item on the list of those that have ended."""
    q_next[item] = -1
    if state.run.ended_first == -1:
        state.run.ended_first = item
    else:
        q_next[state.run.ended_last] = item
    state.run.ended_last = item


@inlined
def write(state: State, out: Outcome, now_ns: int, kind: int, a: int, b: int, c: int) -> None:
    if out.log.shape[0] > 0:
        row = state.run.logged
        if row < out.log.shape[0]:
            out.log[row, 0] = now_ns
            out.log[row, 1] = kind
            out.log[row, 2] = a
            out.log[row, 3] = b
            out.log[row, 4] = c
        state.run.logged = row + 1


@inlined
def visits_of(state: State, sample: int) -> int:
    """The number of models that a sample has visited."""
    visits = 0
    bits = state.visited[sample]
    while bits != 0:
        bits &= bits - 1
        visits += 1
    return visits


@inlined
def leave_request(state: State, sample: int) -> bool:
    if state.first_row.shape[0] == 0:
        return True
    first = state.first_row[sample]
    state.open_rows[first] -= 1
    return bool(state.open_rows[first] == 0)


@inlined
def finish(settings: Settings, state: State, out: Outcome, sample: int, now_ns: int) -> None:
    """Finish a sample; with its request's last row the router writes, after all its work."""
    out.finished_ns[sample] = now_ns
    if leave_request(state, sample):
        state.run.free_ns += settings.answer_ns
    out.written_ns[sample] = state.run.free_ns


@inlined
def lasts_ns(state: State, replica: int, run_ns: int) -> int:
    """The real run time of a replica's batch."""
    if state.run_factors.shape[0] == 0:
        return run_ns
    return int(run_ns * state.run_factor[replica] + 0.5)


@inlined
def note_end(state: State, lead: int, end_ns: int) -> None:
    state.ends_ns[lead] = end_ns
    state.block_ends_ns[lead // BLOCK] = min(state.block_ends_ns[lead // BLOCK], end_ns)
    state.run.next_end_ns = min(state.run.next_end_ns, end_ns)


@inlined
def next_lead(state: State) -> int:
    block = 0
    while state.block_ends_ns[block] != state.run.next_end_ns:
        block += 1
    lead = block * BLOCK
    while state.ends_ns[lead] != state.run.next_end_ns:
        lead += 1
    return lead


@inlined
def forget_end(state: State, lead: int) -> None:
    state.ends_ns[lead] = NEVER_NS
    first = lead // BLOCK * BLOCK
    block_end_ns = NEVER_NS
    for device in range(first, first + BLOCK):
        block_end_ns = min(block_end_ns, state.ends_ns[device])
    state.block_ends_ns[lead // BLOCK] = block_end_ns
    next_end_ns = NEVER_NS
    for block_end_ns in state.block_ends_ns:
        next_end_ns = min(next_end_ns, block_end_ns)
    state.run.next_end_ns = next_end_ns
