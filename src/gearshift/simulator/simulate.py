"""Simulating a gear plan on a workload: the compiled kernel between plain data."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.decisions import LogRow
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.plan_tables import PlanTables, only_operator, plan_tables
from gearshift.policies.load import METER_KEEPS_ARRIVALS
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import run_times_ns
from gearshift.result import ServingResult, summarise
from gearshift.simulator import kernel
from gearshift.simulator.load_scaling import make_scaling
from gearshift.simulator.queues import NONE, make_queues
from gearshift.workload import Workload

UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What became of each sample (n,): `finished_ns` (-1: refused), the `model` that answered, the `gear` in force.

    `busy_s` (devices,); `batches` (replicas, sizes) how often each ran; `arrived_in_gear` (gears,) samples;
    `shifts` (k, 2) of nanoseconds and the gear from then on; `log` of decisions, when asked for; `front_end_s` is part
    of every latency, and so is `communication_s` (n,), where samples came over a network.
    """

    tables: PlanTables
    workload: Workload
    finished_ns: NDArray[np.int64]
    model: NDArray[np.int8]
    gear: NDArray[np.int16]
    busy_s: NDArray[np.float64]
    batches: NDArray[np.int64]
    arrived_in_gear: NDArray[np.int64]
    shifts: NDArray[np.int64]
    log: list[LogRow]
    front_end_s: float = 0.0
    communication_s: NDArray[np.float64] | None = None

    @property
    def latency_s(self) -> NDArray[np.float64]:
        """Seconds per request from sending to its last row's answer, front end included; NaN for refused ones."""
        seconds = (self.finished_ns - self.workload.arrivals_ns) / NS_PER_S + self.front_end_s
        if self.communication_s is not None:
            seconds += self.communication_s
        seconds[self.finished_ns < 0] = np.nan
        if self.workload.continues is None:
            return seconds
        return np.asarray(np.maximum.reduceat(seconds, np.flatnonzero(~self.workload.continues)))

    @property
    def duration_s(self) -> float:
        """Until the trace has ended and the last answer is out."""
        return max(self.workload.duration_s, float(self.finished_ns.max()) / NS_PER_S)

    def quality(self, profile: Profile) -> NDArray[np.float64]:
        """Recorded quality of every answered sample's answer."""
        answered = self.finished_ns >= 0
        rows = profile.predictions.rows(self.tables.models)[self.model]
        quality: NDArray[np.float64] = profile.predictions.quality[rows, self.workload.record]
        return quality if answered.all() else quality[answered]

    def result(self, profile: Profile, *, latency_objective_s: float | None) -> ServingResult:
        """The figures of this run."""
        latency_s = self.latency_s
        answered = ~np.isnan(latency_s)
        return summarise(
            latency_s=latency_s[answered],
            quality=self.quality(profile),
            requests=len(latency_s),
            refused=int(np.count_nonzero(~answered)),
            latency_objective_s=latency_objective_s,
            duration_s=self.workload.duration_s,
            devices=len(self.tables.device_ids),
            utilisation={
                device: float(busy / self.duration_s)
                for device, busy in zip(self.tables.device_ids, self.busy_s, strict=True)
            },
            independent_samples=int(np.count_nonzero(np.bincount(self.workload.record))),
        )


def simulate(
    plan: GearPlan,
    profile: Profile,
    workload: Workload,
    *,
    most_waiting: int = UNBOUNDED,
    log_rows: int = 0,
) -> Simulation:
    """Serve `workload` by `plan` in virtual time.  Keeps no state from an earlier run.

    `most_waiting` bounds queued samples as the server's admission does; `log_rows` is how many decisions to keep.
    """
    tables = plan_tables(plan, only_operator(plan))
    certainty = np.ascontiguousarray(profile.predictions.certainty[profile.predictions.rows(tables.models)])
    return simulate_tables(
        tables,
        run_times_ns(plan, tables, profile),
        certainty,
        workload,
        front_end_s=profile.front_end_s,
        most_waiting=most_waiting,
        log_rows=log_rows,
    )


def simulate_tables(
    tables: PlanTables,
    run_ns: NDArray[np.int64],
    certainty: NDArray[np.float64],
    workload: Workload,
    *,
    front_end_s: float = 0.0,
    most_waiting: int = UNBOUNDED,
    log_rows: int = 0,
) -> Simulation:
    """As `simulate`, with the plan already resolved; `certainty` is (models, records) in the order of the tables."""
    records = certainty.shape[1]
    require(
        int(workload.record.max()) < records,
        f"the workload names sample {int(workload.record.max())}, but there are records of {records} samples",
        remedy="draw the workload from this profile",
    )
    n, devices, replicas = len(workload), len(tables.device_ids), len(tables.replica_ids)
    empty = np.zeros(0, dtype=np.int64)
    deadline_ns, priority = workload.deadline_ns, workload.priority
    by_urgency = deadline_ns is not None or priority is not None
    if by_urgency:
        deadline_ns = np.full(n, UNBOUNDED) if deadline_ns is None else deadline_ns
        priority = np.zeros(n, dtype=np.int64) if priority is None else priority
    queues = make_queues(
        n, replicas, empty if priority is None else priority, empty if deadline_ns is None else deadline_ns, by_urgency
    )
    plan = kernel.Plan(
        **{name: getattr(tables, name) for name in kernel.Plan._fields if name != "run_ns"},
        run_ns=np.ascontiguousarray(run_ns),
    )
    settings = kernel.Settings(
        replicas=replicas,
        models=len(tables.models),
        devices=devices,
        most_stages=tables.most_stages,
        meter=tables.meter,
        alpha=tables.alpha,
        upshift_margin=tables.upshift_margin,
        starvation_ns=tables.starvation_ns,
        most_waiting=most_waiting,
    )
    blocks = -(-devices // kernel.BLOCK)
    numbers = np.zeros(kernel.NUMBERS, dtype=np.int64)
    numbers[kernel.NEXT_END_NS] = numbers[kernel.NEXT_WAKE_NS] = kernel.NEVER_NS
    state = kernel.State(
        numbers=numbers,
        busy=np.zeros(devices, dtype=np.int8),
        ends_ns=np.full(blocks * kernel.BLOCK, kernel.NEVER_NS),
        block_ends_ns=np.full(blocks, kernel.NEVER_NS),
        ending=np.full(devices, NONE),
        wakes_ns=np.full(devices, kernel.NEVER_NS),
        batch=np.full(replicas, NONE),
        batch_length=np.zeros(replicas, dtype=np.int64),
        last=np.full(len(tables.models), NONE),
        following=np.full(replicas, NONE),
        due=np.zeros(replicas, dtype=np.int64),
        stride=np.zeros(replicas, dtype=np.int64),
        visited=np.zeros(n, dtype=np.int64),
        touched=np.zeros(devices, dtype=np.int64),
        is_touched=np.zeros(devices, dtype=np.int8),
        kept_ns=np.zeros(METER_KEEPS_ARRIVALS, dtype=np.int64),
    )
    most_shifts = int(workload.duration_s * 10) * 2 + 1000
    out = kernel.Outcome(
        finished_ns=np.full(n, -1, dtype=np.int64),
        model=np.full(n, -1, dtype=np.int8),
        gear=np.full(n, -1, dtype=np.int16),
        busy_ns=np.zeros(devices, dtype=np.int64),
        batches=np.zeros(run_ns.shape, dtype=np.int64),
        arrived_in_gear=np.zeros(tables.gears, dtype=np.int64),
        shifts=np.zeros((most_shifts, 2), dtype=np.int64),
        log=np.zeros((log_rows, 5), dtype=np.int64),
    )
    continues = np.zeros(0, dtype=np.bool_) if workload.continues is None else workload.continues
    scaling, arrivals_ns = make_scaling(tables), workload.arrivals_ns
    kernel.run(
        plan, settings, state, queues, scaling, out, arrivals_ns, continues, workload.record, np.asarray(certainty)
    )
    kept = min(int(numbers[kernel.LOGGED]), log_rows)
    return Simulation(
        tables=tables,
        workload=workload,
        finished_ns=out.finished_ns,
        model=out.model,
        gear=out.gear,
        busy_s=out.busy_ns / NS_PER_S,
        batches=out.batches,
        arrived_in_gear=out.arrived_in_gear,
        shifts=out.shifts[: numbers[kernel.SHIFTS]],
        log=[tuple(row) for row in out.log[:kept].tolist()],
        front_end_s=front_end_s,
    )
