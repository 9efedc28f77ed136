"""A serving task: a plan with its tables, profile and project, and the service made of them."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from gearshift.clock import Clock, WallClock, to_ns
from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.model import TensorSpec
from gearshift.models.config import Project, project_file, read_project
from gearshift.observability.cache_metrics import CacheMetrics
from gearshift.observability.journal import Journal, NoJournal
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_file import read_plan
from gearshift.plans.plan_tables import PlanTables, only_pipeline, plan_tables
from gearshift.profiles.backlog import Backlog, backlog_of
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import expected_ns, overheads_ns, run_times_ns
from gearshift.profiles.store import NAME_IT, read_profile
from gearshift.runtime.backends.base import Backend
from gearshift.runtime.backends.emulated import EMULATED_INPUTS, EmulatedBackend, emulated_outputs
from gearshift.runtime.backends.local import LocalBackend, assign_cores, available_cores, router_cores
from gearshift.runtime.backends.ray import RayBackend
from gearshift.runtime.backends.workers import WorkersBackend, WorkersOptions
from gearshift.runtime.cores.core_pool import pooled_cores
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.recovery import Recovery
from gearshift.runtime.router.status import ServedPlan
from gearshift.runtime.service.service import Service
from gearshift.runtime.watch.adapting import Adapting
from gearshift.runtime.watch.audit import make_audit
from gearshift.runtime.watch.cache_adaptation import AttendedBackend, CacheAdaptation
from gearshift.runtime.watch.load_drift import window_of
from gearshift.runtime.workers.ray_cluster import RayCluster
from gearshift.serving.door.bounds import most_waiting_bytes
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.operate.scaling import make_scaling, thread_counts
from gearshift.support.files import read_bytes

BackendKind = Literal["local", "emulated", "ray"]
Say = Callable[[str], None]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingTask:
    """A plan and everything needed to serve it.

    `served` names the plan's file, `profile_folder` the folder of its profile; `device_cores` are
    the devices' processors, `pool` those that a scaler distributes, `router_cores` those left to
    this process, if devices are on this machine.
    """

    served: ServedPlan
    plan: GearPlan
    tables: PlanTables
    profile: Profile
    backend: BackendKind
    profile_folder: Path
    project: Path | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    device_cores: dict[str, frozenset[int]] | None
    router_cores: frozenset[int] | None
    pool: tuple[int, ...] = ()

    def make_backend(
        self, settings: ServerSettings, say: Say, run_ns: Sequence[Sequence[int]] | None = None
    ) -> Backend:
        """Return the backend, not started; `run_ns` replaces the profiled run times."""
        if self.project is None:
            return EmulatedBackend(self.tables, self.plan, self.profile, run_ns=run_ns)
        counts = thread_counts(self, settings)
        options: WorkersOptions = {
            "project": self.project,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "longest_start_s": settings.longest_start_s,
            "warm_up": settings.warm_up,
            "run_ns": self.run_ns if run_ns is None else run_ns,
            "shortest_hang_s": max(settings.shortest_hang_s, longest_remote_s(read_project(self.project))),
            "probe_s": settings.probe_s,
            "thread_counts": counts,
            "awake_s": 0.0 if counts else settings.awake_s,  # a control group's quota is for the model
            "say": say,
        }
        if self.backend == "ray":
            cluster, host = RayCluster(settings.address), settings.advertise_host
            return RayBackend(self.tables, self.plan, cluster=cluster, advertise_host=host, **options)
        return LocalBackend(self.tables, self.plan, cores=self.device_cores, **options)

    def make_recovery(self, settings: ServerSettings) -> Recovery:
        return Recovery(
            self.tables.models,
            run_ns=self.run_ns,
            longest_retry_ns=to_ns(settings.longest_retry_s),
            refuse_lost_stage=settings.lost_stage == "refuse",
        )

    def make_adapting(
        self,
        settings: ServerSettings,
        journal: Journal | NoJournal,
        drifts: Callable[[], None],
        run_ns: Sequence[Sequence[int]],
    ) -> Adapting:
        """Return the watch on load and batch times; it calls `drifts` while load has drifted."""
        planned = self.plan.pipelines[self.tables.operator].planned_load
        share, seed = settings.audit_share, settings.audit_seed
        audit = make_audit(self.tables, self.plan, self.profile, share=share, seed=seed, run_ns=run_ns)
        as_profiled_ns = expected_ns(self.plan, self.tables, self.profile)
        if self.backend == "emulated":  # it emulates no overheads
            as_profiled_ns -= overheads_ns(self.plan, self.tables, self.profile)
        return Adapting(
            self.tables,
            window_s=settings.load_window_s or window_of(0.0 if planned is None else planned.over_s),
            run_ns=as_profiled_ns.tolist(),
            audit=audit if share > 0 else None,
            journal=journal,
            drifts=drifts,
        )

    def backlog(self, settings: ServerSettings) -> Backlog:
        """Return the most waiting samples, by the settings or the plan, and their capacity."""
        scaler_cores = None
        if settings.scaler != "static":
            begun_with = sum(replica.cores for replica in self.plan.placement.replicas)
            there = int(len(self.pool) / settings.core_share + 1e-9)
            scaler_cores = settings.scaler_cores or there or begun_with
        planned = backlog_of(self.plan, self.tables, self.profile, scaler_cores=scaler_cores)
        given = settings.most_waiting_requests
        most_waiting = max(planned.most_waiting, settings.most_rows or 0) if given is None else given
        return planned._replace(most_waiting=most_waiting)

    @property
    def run_ns(self) -> list[list[int]]:
        """Profiled nanoseconds (replicas, sizes); raises `InvalidInput` for larger batches."""
        run_ns: list[list[int]] = run_times_ns(self.plan, self.tables, self.profile).tolist()
        return run_ns


Read = Callable[[Path], ServingTask]


def longest_remote_s(project: Project) -> float:
    """Return twice the longest time that a worker may wait for a remote model's endpoint.

    Its samples fail by then, so the worker is not stuck.
    """
    waits_s = [2 * model.remote.longest_s for model in project.models.values() if model.remote is not None]
    return max(waits_s, default=0.0)


def read_task(
    plan_path: Path,
    backend: BackendKind,
    *,
    profile_path: Path | None = None,
    project_path: Path | None = None,
    available: Sequence[int] | None = None,
    scaled: bool = False,
    core_share: float = 1.0,
) -> ServingTask:
    """Read the plan with its profile and project, for the `available` processors.

    By default these are all of this process.  If cores change, by a scaler (`scaled`) or with the
    gears, each core of the profile is `core_share` of a processor.  Raises `InvalidInput` if a
    file is missing or does not fit.
    """
    plan = read_plan(plan_path)
    served = ServedPlan(path=str(plan_path), sha256=sha256(read_bytes(plan_path)).hexdigest())
    tables = plan_tables(plan, only_pipeline(plan))
    folder = profile_path or plan_path.parent / plan.profile.path
    profile = read_profile(folder, remedy=NAME_IT)
    require(
        profile.sha256 == plan.profile.sha256,
        f"the plan was made from another profile than the one in {folder}",
        where=str(plan_path),
        remedy="make the plan anew with `gearshift plan`, or name its profile",
    )
    emulated = backend == "emulated"
    pooled = scaled or plan.hardware.pool_cores is not None
    require(
        pooled or core_share == 1.0,
        f"a core is to be {core_share:g} of a processor, and nothing changes cores",
        remedy="serve with --scaler exact, which holds shares by quotas",
    )
    device_cores, pool, router = _processors(plan, backend, available, core_share if pooled else None)
    return ServingTask(
        served=served,
        plan=plan,
        tables=tables,
        profile=profile,
        backend=backend,
        profile_folder=folder,
        project=None if emulated else _project(folder, profile, project_path),
        inputs=EMULATED_INPUTS if emulated else profile.inputs,
        outputs=emulated_outputs(profile) if emulated else profile.outputs,
        device_cores=device_cores,
        router_cores=router,
        pool=pool,
    )


def _processors(
    plan: GearPlan, backend: BackendKind, available: Sequence[int] | None, core_share: float | None
) -> tuple[dict[str, frozenset[int]] | None, tuple[int, ...], frozenset[int] | None]:
    if backend != "local":
        return None, (), None
    if core_share is not None:
        return pooled_cores(plan.hardware, available or available_cores(), core_share)
    return assign_cores(plan.hardware, available), (), router_cores(plan.hardware, available)


def _project(folder: Path, profile: Profile, given: Path | None) -> Path:
    if given is None and profile.project is None:
        raise InvalidInput(
            "the profile was imported and names no project whose models could be loaded",
            where=str(folder),
            remedy="serve with --backend emulated, or name a project",
        )
    path = project_file(given or folder / str(profile.project)).resolve()
    require(path.is_file(), "no such file", where=str(path), remedy="name the project whose models were profiled")
    return path


def attended(task: ServingTask, backend: Backend, caches: CacheAdaptation | None) -> Backend:
    """Wrap the backend so that `caches` audits and adapts learned caches, if there are any."""
    models = cached_models(task)
    if not models or not isinstance(backend, WorkersBackend):
        return backend
    if caches is None or not caches.audits:
        log.warning(
            "nobody will tell should the learned caches of %s answer other than the whole model, as the share of "
            "answers to audit is 0; serve with --cache-audit-share 0.01", ", ".join(sorted(models)),
        )  # fmt: skip
    if caches is None:
        return backend
    caches.attend(models)
    return AttendedBackend(backend, task.tables, caches)


def cached_models(task: ServingTask) -> set[str]:
    return {curve.model for curve in task.profile.curves if curve.segment > 0} & set(task.tables.models)


def make_cache_adaptation(
    task: ServingTask, settings: ServerSettings, metrics: CacheMetrics, journal: Journal | NoJournal
) -> CacheAdaptation | None:
    """Return the audit and adaptation of learned caches; None if emulated or not asked for.

    Raises `InvalidInput` if a model to adapt is not a placed one with learned caches.
    """
    asked = [] if settings.adapt is None else [name.strip() for name in settings.adapt.split(",") if name.strip()]
    known = cached_models(task)
    for name in asked:
        require(
            name in known,
            f"adapt names {name!r}, which is no model of this plan with learned caches",
            remedy=f"name one of {', '.join(sorted(known))}" if known else "leave it out",
        )
    none_to_come = not known and settings.plans is None
    if task.project is None or none_to_come or (not asked and settings.cache_audit_share == 0):
        return None
    return CacheAdaptation(
        task.project,
        models=known,
        adapting=asked,
        settings={
            "learn_share": settings.adapt_share,
            "audit_share": settings.cache_audit_share,
            "window_s": settings.adapt_window_s,
            "interval_s": settings.adapt_interval_s,
            "half_life_s": settings.adapt_window_s / 2,
            "follow_classes": not settings.adapt_fixed_classes,
        },
        seed=settings.audit_seed,
        core=min(task.router_cores or available_cores()),
        metrics=metrics,
        journal=journal,
    )


def make_service(
    task: ServingTask,
    settings: ServerSettings,
    metrics: Metrics | None,
    journal: Journal | NoJournal,
    clock: Clock | None = None,
    drifts: Callable[[], None] = lambda: None,
    caches: CacheAdaptation | None = None,
) -> Service:
    operator = task.plan.pipelines[task.tables.operator]
    scales = settings.load_scaling == "on"
    clock = clock or WallClock()
    deadlines = DeadlineRules(task.tables, task.run_ns, settings.late, to_ns(task.profile.front_end_s))
    backend = task.make_backend(settings, log.warning, deadlines.run_ns)
    vertical = make_scaling(task, settings, backend, clock, journal)
    backlog = task.backlog(settings)
    return Service(
        task.tables if scales else replace(task.tables, scale_minutes=0),
        attended(task, backend, caches),
        most_waiting_requests=backlog.most_waiting,
        most_waiting_bytes=most_waiting_bytes(settings),
        capacity_qps=backlog.capacity_qps,
        default_priority=operator.default_priority,
        default_deadline_s=operator.objective.latency_s,
        accuracies=[math.nan if gear.predicted is None else gear.predicted.accuracy for gear in operator.gears],
        recovery=task.make_recovery(settings),
        adapting=task.make_adapting(settings, journal, drifts, deadlines.run_ns),
        deadlines=deadlines,
        vertical=vertical,
        clock=clock,
        metrics=metrics,
        journal=journal,
    )
