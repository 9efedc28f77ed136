"""Assemble the service of a task: backend, retries, watches, learned caches and bounds."""

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from gearshift.clock import Clock, WallClock, to_ns
from gearshift.errors import require
from gearshift.models.config import Project, read_project
from gearshift.observability.cache_metrics import CacheMetrics
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.profiles.backlog import Backlog, backlog_of
from gearshift.profiles.run_times import expected_ns, overheads_ns
from gearshift.runtime.backends.base import Backend
from gearshift.runtime.backends.emulated import EmulatedBackend
from gearshift.runtime.backends.local import LocalBackend, available_cores
from gearshift.runtime.backends.ray import RayBackend
from gearshift.runtime.backends.workers_backend import OperatorSource, WorkersBackend, WorkersOptions
from gearshift.runtime.faults.retries import Retries
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.service.served_pipeline import PipelineOptions
from gearshift.runtime.service.service import Service
from gearshift.runtime.watch.adapting import Adapting
from gearshift.runtime.watch.audit import make_audit
from gearshift.runtime.watch.cache_adaptation import CacheAdaptation
from gearshift.runtime.watch.drift import window_of
from gearshift.runtime.workers.ray_cluster import RayCluster
from gearshift.serving.door.bounds import most_waiting_bytes
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.rows.make_passing import known_joint_records, make_passing
from gearshift.serving.rows.scaling import make_scaling, thread_counts
from gearshift.serving.rows.task import ServingTask

log = logging.getLogger(__name__)


def make_service(
    task: ServingTask,
    settings: ServerSettings,
    metrics: Metrics | None,
    journal: Journal,
    clock: Clock | None = None,
    drifts: Callable[[], None] = lambda: None,
    caches: CacheAdaptation | None = None,
) -> Service:
    run_ns = task.run_ns
    scales = settings.load_scaling == "on"
    clock = clock or WallClock()
    deadlines = DeadlineRules(
        task.tables,
        run_ns,
        settings.late,
        to_ns(task.profile.front_end_s),
        expected_ns=expected_ns(task.plan, task.tables, task.profile).tolist() if cached_models(task) else None,
        learns_slowdown=_learns_slowdown(task, settings),
    )
    backend = make_backend(task, settings, deadlines.run_ns)
    vertical = make_scaling(task, settings, backend, clock, journal)
    attend_caches(task, backend, caches)
    return Service(
        task.tables if scales else task.tables.unscaled(),
        backend,
        pipelines={
            name: pipeline_options(task, name, settings, journal, drifts, deadlines.run_ns)
            for name in task.plan.pipelines
        },
        passing=make_passing(task),
        most_waiting_bytes=most_waiting_bytes(settings),
        retries=_retries(task, settings, run_ns),
        deadlines=deadlines,
        vertical=vertical,
        clock=clock,
        metrics=metrics,
        journal=journal,
    )


def pipeline_options(
    task: ServingTask,
    name: str,
    settings: ServerSettings,
    journal: Journal,
    drifts: Callable[[], None],
    run_ns: Sequence[Sequence[int]],
) -> PipelineOptions:
    pipeline, backlog = task.plan.pipelines[name], _backlog(task, name, settings)
    return PipelineOptions(
        most_waiting_requests=backlog.most_waiting,
        capacity_qps=backlog.capacity_qps,
        default_priority=pipeline.default_priority,
        answer_within_s=pipeline.objective.latency_s,
        accuracies=[math.nan if gear.predicted is None else gear.predicted.accuracy for gear in pipeline.gears],
        bulk_accuracy=(pipeline.objective if pipeline.asked is None else pipeline.asked.objective).accuracy,
        adapting=make_adapting(task, name, settings, journal, drifts, run_ns),
    )


def make_backend(task: ServingTask, settings: ServerSettings, run_ns: Sequence[Sequence[int]]) -> Backend:
    if task.backend == "emulated":
        return EmulatedBackend(task.tables, task.plan, task.profiles, run_ns=run_ns)
    counts = thread_counts(task, settings)
    longest_asked_s = max(longest_remote_s(read_project(project)) for project in set(task.projects.values()))
    options: WorkersOptions = {
        "operators": [
            OperatorSource(
                project=task.projects[name], inputs=profile.inputs, outputs=profile.outputs, models=profile.models
            )
            for name, profile in task.profiles.items()
        ],
        "longest_start_s": settings.longest_start_s,
        "warm_up": settings.warm_up,
        "run_ns": run_ns,
        "shortest_hang_s": max(settings.shortest_hang_s, longest_asked_s),
        "probe_s": settings.probe_s,
        "thread_counts": counts,
        "awake_s": 0.0 if counts else settings.awake_s,  # a control group's quota is for the model
        "say": log.warning,
    }
    if task.backend == "ray":
        cluster, host = RayCluster(settings.address), settings.advertise_host
        return RayBackend(task.tables, task.plan, cluster=cluster, advertise_host=host, **options)
    return LocalBackend(task.tables, task.plan, cores=task.device_cores, **options)


def _learns_slowdown(task: ServingTask, settings: ServerSettings) -> bool:
    """By default wherever run times are expected to be as profiled, and of plans that refine always."""
    if settings.slowdown != "auto":
        return settings.slowdown == "on"
    varies = cached_models(task) or settings.scaler != "static" or task.plan.hardware.pool_cores is not None
    return task.tables.refine.refines or not varies


def _retries(task: ServingTask, settings: ServerSettings, run_ns: Sequence[Sequence[int]]) -> Retries:
    return Retries(
        task.tables.models,
        run_ns=run_ns,
        longest_retry_ns=to_ns(settings.longest_retry_s),
        refuse_lost_stage=settings.lost_stage == "refuse",
    )


def make_adapting(
    task: ServingTask,
    name: str,
    settings: ServerSettings,
    journal: Journal,
    drifts: Callable[[], None],
    run_ns: Sequence[Sequence[int]],
) -> Adapting:
    """Return the watch on a pipeline's load and batch times; it calls `drifts` while load has drifted."""
    pipeline, number = task.plan.pipelines[name], task.tables.pipeline_named(name).number
    planned, profile = pipeline.planned_load, task.profiles[pipeline.nodes[pipeline.output].operator]
    share, seed = settings.audit_share, settings.audit_seed
    audit = make_audit(task.tables, task.plan, profile, share=share, seed=seed, run_ns=run_ns, pipeline=name)
    as_profiled_ns = expected_ns(task.plan, task.tables, task.profile)
    if task.backend == "emulated":  # it emulates no overheads
        as_profiled_ns -= overheads_ns(task.plan, task.tables, task.profile)
    return Adapting(
        task.tables,
        number,
        window_s=settings.load_window_s or window_of(0.0 if planned is None else planned.over_s),
        run_ns=as_profiled_ns.tolist(),
        audit=audit if share > 0 else None,
        journal=journal,
        drifts=drifts,
    )


def _backlog(task: ServingTask, name: str, settings: ServerSettings) -> Backlog:
    """Return the most waiting samples of a pipeline, by the settings or the plan, and their capacity."""
    scaler_cores = None
    if settings.scaler != "static":
        begun_with = sum(replica.cores for replica in task.plan.placement.replicas)
        there = int(len(task.pool) / settings.core_share + 1e-9)
        scaler_cores = settings.scaler_cores or there or begun_with
    joint = known_joint_records(task, name)
    planned = backlog_of(task.plan, task.tables, task.profiles, joint=joint, pipeline=name, scaler_cores=scaler_cores)
    given = settings.most_waiting_requests
    most_waiting = max(planned.most_waiting, settings.most_rows or 0) if given is None else given
    return planned._replace(most_waiting=most_waiting)


def longest_remote_s(project: Project) -> float:
    """Return twice the longest time that a worker may wait for a remote model's endpoint.

    Its samples fail by then, so the worker is not stuck.
    """
    waits_s = [2 * model.remote.longest_s for model in project.models.values() if model.remote is not None]
    return max(waits_s, default=0.0)


def attend_caches(task: ServingTask, backend: Backend, caches: CacheAdaptation | None) -> None:
    """Have `caches` audit and adapt the learned caches of the backend's models, if there are any."""
    models = projects_of_cached(task)
    if not models or not isinstance(backend, WorkersBackend):
        return
    if caches is None or not caches.audits:
        log.warning(
            "nobody will tell should the learned caches of %s answer other than the whole model, as the share of "
            "answers to audit is 0; serve with --cache-audit-share 0.01", ", ".join(sorted(models)),
        )  # fmt: skip
    if caches is not None:
        caches.attend(models, backend, task.tables)


def cached_models(task: ServingTask) -> set[str]:
    return {curve.model for curve in task.profile.curves if curve.segment > 0} & set(task.tables.models)


def projects_of_cached(task: ServingTask) -> dict[str, Path]:
    """The project of each placed model with learned caches; empty if operators are emulated."""
    known = cached_models(task)
    return {
        model: project
        for name, project in task.projects.items()
        for model in task.profiles[name].models
        if model in known
    }


def make_cache_adaptation(
    task: ServingTask, settings: ServerSettings, metrics: CacheMetrics, journal: Journal
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
    if task.backend == "emulated" or none_to_come or (not asked and settings.cache_audit_share == 0):
        return None
    return CacheAdaptation(
        projects_of_cached(task),
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
