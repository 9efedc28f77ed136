"""The runtime on a manual clock: the real router with emulated devices, at full speed."""

import heapq
import itertools
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NEVER_NS, NS_PER_S
from gearshift.decisions import Ending, LogRow
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.cores.demand import SharedCores
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.profiles.run_times import NO_FRONT_END, Exits, FrontEnd
from gearshift.request import LEAST_URGENT, NO_DEADLINE_NS, NOT_BULK, Late, Request, Sample
from gearshift.runtime.backends.emulated import Leaving, ProfiledExits
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.router import Router
from gearshift.workload import Workload
from tests.conformance.emulated_cores import EmulatedCores
from tests.conformance.recorded_passing import RecordedPassing
from tests.manual_clock import ManualClock


@dataclass(frozen=True, slots=True)
class VirtualRun:
    """The decision log, and per sample (n,) its finish time, answering model and ending.

    `written_ns` is when the router had written the decisions made at `finished_ns`.
    """

    log: list[LogRow]
    finished_ns: NDArray[np.int64]
    written_ns: NDArray[np.int64]
    model: NDArray[np.int64]
    ended: NDArray[np.int64]


def run_virtually(
    tables: PlanTables,
    run_ns: list[NDArray[np.int64]],
    certainty: NDArray[np.float64],
    workload: Workload,
    late: Late = "refuse",
    exits: Exits | None = None,
    core_run_ns: NDArray[np.int64] | None = None,
    effect_s: float = 0.0,
    shared: SharedCores | None = None,
    front_end: FrontEnd = NO_FRONT_END,
    passing: RecordedPassing | None = None,
    learns_slowdown: bool | None = None,
    expected_ns: NDArray[np.int64] | None = None,
) -> VirtualRun:
    """Serve `workload` with the real router; replica r holds its devices `run_ns[r][size]`.

    With `exits`, samples leave their batches at their recorded exits, and batches shrink. With
    `core_run_ns` (replicas, cores + 1, sizes) in place of `run_ns`, replicas have the cores of the
    gear in force, additional ones from `effect_s` after they are requested; with `shared` a
    scaler chooses the number. `certainty` is (models, records) in the order of
    `tables.models`. At one instant batches finish first (by their first device), then the meter
    ticks, then a scaler chooses, then samples arrive, then cores take effect, then longest waits
    end. Events due while the router is busy, by `front_end`, wait for it. In graphs `passing` has the
    records of items. The `run_factors` of the workload multiply times of batches, as they start, and what
    they take is compared with `expected_ns` (replicas, sizes), by default `run_ns`.
    """
    clock = ManualClock()
    log: list[LogRow] = []
    finished_ns = np.full(len(workload), -1, dtype=np.int64)
    written_ns = finished_ns.copy()
    first_row = np.arange(len(workload)).tolist()
    if workload.continues is not None:
        first_row = np.maximum.accumulate(np.where(workload.continues, 0, first_row)).tolist()
    open_rows = Counter(first_row)
    model = np.full(len(workload), -1, dtype=np.int64)
    ended = np.zeros(len(workload), dtype=np.int64)
    ends: list[tuple[int, int, int, Leaving]] = []
    times = [row.tolist() for row in run_ns]
    effect_ns = round(effect_s * NS_PER_S)
    cores = EmulatedCores(tables, core_run_ns, times, effect_ns, shared, log=log.append, now=clock.now_ns)
    expected = None if expected_ns is None else expected_ns.tolist()
    rules = DeadlineRules(tables, times, late, expected_ns=expected, learns_slowdown=learns_slowdown)
    profiled = ProfiledExits(times, exits, tables.replica_model.tolist())
    answered, free_ns = 0, 0
    factors = itertools.cycle([1.0] if workload.run_factors is None else workload.run_factors.tolist())

    def record_of(sample: Sample) -> int:
        return int(workload.record[sample.sequence]) if passing is None else passing.record(sample)

    def start(replica: int, samples: list[Sample], reason: int) -> None:
        first_device = int(tables.spans[tables.spans_begin[replica]])
        records = [record_of(sample) for sample in samples]
        factor, end_ns, before_ns = next(factors), clock.now_ns(), 0
        for leaving in profiled.of_batch(replica, samples, records):
            end_ns += int((leaving.after_ns - before_ns) * factor + 0.5)
            before_ns = leaving.after_ns
            heapq.heappush(ends, (end_ns, first_device, replica, leaving))

    def take_answer(sample: Sample) -> None:
        nonlocal answered, free_ns
        answered += 1
        first = first_row[sample.sequence]
        open_rows[first] -= 1
        if sample.error:
            ended[sample.sequence] = sample.ending
            return
        ended[sample.sequence] = Ending.DEGRADED if sample.degraded_by else sample.ending
        if not open_rows[first]:
            free_ns += front_end.answer_ns
        finished_ns[sample.sequence], written_ns[sample.sequence] = clock.now_ns(), free_ns
        model[sample.sequence] = sample.model

    def shifted(pipeline: int, before: int, gear: int) -> None:
        cores.shifted(gear, router.by_deadline)

    router = Router(
        tables,
        start=start,
        answered=take_answer,
        log=log.append,
        shifted=shifted,
        deadlines=rules,
        passing=passing,
        numbers=itertools.count(len(workload)),
    )
    router.by_deadline.told = cores.came
    samples = _samples(workload, tables)
    arrived, next_tick_ns = 0, METER_WINDOW_NS
    while answered < len(samples):
        arrival_ns = samples[arrived].request.arrived_ns if arrived < len(samples) else NEVER_NS
        end_ns = ends[0][0] if ends else NEVER_NS
        others_ns = cores.next_period_ns, cores.next_ns, router.next_timer_ns()
        due_ns = min(end_ns, next_tick_ns, arrival_ns, *others_ns)
        arrives = due_ns == arrival_ns and due_ns not in (end_ns, next_tick_ns, cores.next_period_ns)
        now_ns = free_ns = max(due_ns, free_ns) + (front_end.arrival_ns if arrives else 0)
        clock.move_to(now_ns)
        if end_ns == due_ns:
            _, _, replica, leaving = heapq.heappop(ends)
            for sample in leaving.samples:
                sample.certainty = float(certainty[tables.replica_model[replica], record_of(sample)])
            router.stage_ended(replica, leaving.samples, now_ns)
            if leaving.last:
                router.executor_free(replica, now_ns)
        elif next_tick_ns == due_ns:
            router.tick(now_ns)
            next_tick_ns += METER_WINDOW_NS
        elif cores.next_period_ns == due_ns:
            cores.period(router.gear, router.by_deadline)
        elif arrives:
            rows = open_rows[arrived]
            router.arrive(samples[arrived : arrived + rows], now_ns)
            arrived += rows
        else:
            cores.take_effect(now_ns, router.by_deadline)
            router.timer(now_ns)
    return VirtualRun(log=log, finished_ns=finished_ns, written_ns=written_ns, model=model, ended=ended)


def _samples(workload: Workload, tables: PlanTables) -> list[Sample]:
    n = len(workload)
    deadlines = [NO_DEADLINE_NS] * n if workload.deadline_ns is None else workload.deadline_ns.tolist()
    priorities = [LEAST_URGENT] * n if workload.priority is None else workload.priority.tolist()
    pipelines = [0] * n if workload.pipeline is None else workload.pipeline.tolist()
    by_objective = tables.chooses or tables.refine.refines
    bulk_gears = [NOT_BULK] * n if workload.bulk_gear is None else workload.bulk_gear.tolist()
    within_ns = [pipeline.answer_within_ns for pipeline in tables.pipelines]
    return [
        Sample(
            request=Request(
                id=i,
                operator=tables.pipelines[pipelines[i]].name,
                arrived_ns=at_ns,
                deadline_ns=deadline_ns,
                answer_by_ns=min(NO_DEADLINE_NS, at_ns + within_ns[pipelines[i]]) if by_objective else NO_DEADLINE_NS,
                priority=priority,
                pipeline=pipelines[i],
                bulk_gear=bulk_gears[i],
            ),
            row=0,
            sequence=i,
        )
        for i, (at_ns, deadline_ns, priority) in enumerate(
            zip(workload.arrivals_ns.tolist(), deadlines, priorities, strict=True)
        )
    ]
