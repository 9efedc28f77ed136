"""Build the core scaling of a served plan: its replicas, run times per cores, and actuators."""

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import Clock
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.observability.journal import Journal
from gearshift.placement import Replica
from gearshift.plans.workers import Worker, cores_in_gears, scaled_workers, shared_pool
from gearshift.policies.cores.demand import CORES_EFFECT_S, Scaling, SharedCores
from gearshift.policies.cores.look_ahead import DEFAULT_MARGIN
from gearshift.profiles.run_times import scaled_times_ns
from gearshift.runtime.actuators.base import Actuator, EmulatedActuator, Now
from gearshift.runtime.actuators.kubernetes import this_pod
from gearshift.runtime.backends.base import Backend
from gearshift.runtime.backends.local import LocalBackend
from gearshift.runtime.cores.local_cores import CorePool, LocalCores
from gearshift.runtime.cores.vertical import (
    Actuate,
    ScaledReplica,
    ScaledWorker,
    TellWorker,
    VerticalScaling,
)
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.rows.task import ServingTask

Times = tuple[NDArray[np.int64], list[int]]
"""A replica's times, see `scaled_times_ns`."""

log = logging.getLogger(__name__)


def make_scaling(
    task: ServingTask,
    settings: ServerSettings,
    backend: Backend,
    clock: Clock,
    journal: Journal,
    pod: Callable[[str, Now], Actuator] = this_pod,
) -> VerticalScaling | None:
    """Return what changes cores while `backend`, not started, serves `task`; None if nothing does.

    With scaler `static` only gears change cores.  `pod` makes the actuator that resizes this
    process's container, from its name and the clock.  Raises `InvalidInput` for a plan or profile
    that cannot be scaled, or more cores than there are.
    """
    if not changes_cores(task.plan, settings):
        return None
    require(
        len(task.signatures) == 1,
        f"the plan has pipelines {[each.name for each in task.signatures]}, and cores are scaled for one",
        remedy="serve without --scaler and --core-share, or split the plan",
    )
    workers = _scaled_workers(task, settings)
    pool = _pool(task, workers)
    cores = _cores(task, settings, pool, workers)
    actuate, tell_worker, close = _means(settings, backend, clock, pool, workers, cores, pod)
    scaling = Scaling(
        scaler=settings.scaler,
        period_s=settings.scaler_period_s,
        effect_s=min(CORES_EFFECT_S, settings.scaler_period_s / 2),
        margin=DEFAULT_MARGIN if settings.scaler_margin is None else settings.scaler_margin,
        slo_s=task.plan.pipelines[task.tables.pipeline.name].objective.latency_s,
    )
    times = scaled_times_ns(workers, task.plan, task.tables, task.profile, most_cores=cores, margin=scaling.margin)
    return VerticalScaling(
        [_scaled(worker, times) for worker in workers],
        actuate,
        shared=_shared(workers, times, scaling, cores),
        clock=clock,
        journal=journal,
        in_gear=cores_in_gears(workers, task.tables),
        tell_worker=tell_worker,
        close=close,
    )


def thread_counts(task: ServingTask, settings: ServerSettings) -> Sequence[int]:
    """Return the numbers of threads that workers may be set to, for their start."""
    return range(1, len(task.pool) + 1) if changes_cores(task.plan, settings) else ()


def changes_cores(plan: GearPlan, settings: ServerSettings) -> bool:
    """Whether cores change while serving: by a scaler, with gears, or as shares of processors."""
    return holds_cores(settings) or plan.hardware.pool_cores is not None


def holds_cores(settings: ServerSettings) -> bool:
    """Whether other means than the plan set cores: a scaler, or shares of processors."""
    return settings.scaler != "static" or settings.core_share < 1


def _scaled_workers(task: ServingTask, settings: ServerSettings) -> list[Worker]:
    require(
        task.backend != "ray",
        "cores are changed on this machine alone, and --backend ray has workers elsewhere",
        remedy="serve a plan whose gears change none, with --scaler static",
    )
    return scaled_workers(task.plan, task.tables, printed=settings.scaler == "paper")


def _pool(task: ServingTask, workers: Sequence[Worker]) -> CorePool:
    """Return the processors left by the router and unscaled devices, with their first holders."""
    cores = task.device_cores or {}
    held = {
        number: sorted(frozenset().union(*(cores.get(device, ()) for device in replica.device_ids)), reverse=True)
        for number, replica in map(_lead, workers)
    }
    scaled = {device for worker in workers for device in _lead(worker)[1].device_ids}
    taken = frozenset().union(*(mine for device, mine in cores.items() if device not in scaled))
    return CorePool(sorted(set(task.pool) - taken), held)


def _means(
    settings: ServerSettings,
    backend: Backend,
    clock: Clock,
    pool: CorePool,
    workers: Sequence[Worker],
    cores: int,
    pod: Callable[[str, Now], Actuator],
) -> tuple[Actuate, TellWorker, Callable[[], None]]:
    container = None
    if settings.actuator == "kubernetes":
        _require_one_worker(settings, backend, workers)
        container = pod(settings.container, clock.now_ns)
    if not isinstance(backend, LocalBackend):
        first = dict(map(_lead, workers))
        return (
            lambda number: EmulatedActuator(cores=first[number].cores, most=cores, now=clock.now_ns),
            lambda number, cores: None,
            lambda: None,
        )
    require(
        settings.core_share == 1 or len(workers) == 1,
        f"--core-share is {settings.core_share:g}, and {len(workers)} workers would share processors",
        remedy="serve one worker so, or whole cores",
    )
    backend.held_by = pool.held_by
    local = LocalCores(
        backend, pool, core_share=settings.core_share, say=log.warning, now=clock.now_ns, container=container
    )
    return local.actuator, local.tell, local.close


def _require_one_worker(settings: ServerSettings, backend: Backend, workers: Sequence[Worker]) -> None:
    for holds, what, remedy in (
        (
            isinstance(backend, LocalBackend) and settings.core_share == 1,
            "a pod is resized for a worker of its own, by whole cores",
            "serve with --backend local and --core-share 1",
        ),
        (
            len(workers) == 1,
            f"the container that is resized would hold {len(workers)} workers",
            "serve a plan of one device, or with --actuator processors",
        ),
        (
            settings.scaler_cores is not None,
            "it does not say how many cores the worker may have at most",
            "give --scaler-cores, one fewer than the node may give the pod",
        ),
    ):
        require(holds, what, where="--actuator kubernetes", remedy=remedy)


def _cores(task: ServingTask, settings: ServerSettings, pool: CorePool, workers: Sequence[Worker]) -> int:
    if task.backend == "emulated":
        return shared_pool(workers, task.tables, settings.scaler_cores or task.plan.hardware.pool_cores)
    there = int(len(pool) / settings.core_share + 1e-9)
    cores = settings.scaler_cores or there
    require(
        cores <= there,
        f"--scaler-cores is {cores}, and {there} are left beside the router",
        remedy=f"give up to {there}",
    )
    return shared_pool(workers, task.tables, cores)


def _lead(worker: Worker) -> tuple[int, Replica]:
    return next(iter(worker.items()))


def _shared(workers: Sequence[Worker], times: Mapping[int, Times], scaling: Scaling, cores: int) -> SharedCores:
    """Return the cores that all workers share; replicas are numbered worker by worker."""
    replicas = [(number, replica.cores) for worker in workers for number, replica in worker.items()]
    count = itertools.count()
    tables = [times[number] for number, _ in replicas]
    return SharedCores(
        scaling,
        cores,
        run_ns=[planned for _, planned in tables],
        most=[len(medians) - 1 for medians, _ in tables],
        largest=tables[0][0].shape[1] - 1,
        workers=[[next(count) for _ in worker] for worker in workers],
        first=[cores for _, cores in replicas],
    )


def _scaled(worker: Worker, times: Mapping[int, Times]) -> ScaledWorker:
    replicas = (ScaledReplica(number, replica.id, times[number][0].tolist()) for number, replica in worker.items())
    return ScaledWorker(tuple(replicas), _lead(worker)[1].cores)
