"""How plans of operators are served: their deployments, and what else a server asks of a kind."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import UNSET

from gearshift.errors import ModelFailed, SwapFailed, require
from gearshift.hardware import is_cuda, is_remote
from gearshift.model import zeros
from gearshift.models.loaded_from import changes
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.profiles.profile import Profile
from gearshift.runtime.actuators.cgroup import quota_cores, quota_warning
from gearshift.runtime.backends.local import available_cores
from gearshift.runtime.backends.workers_backend import WorkersBackend
from gearshift.runtime.service.service import Service
from gearshift.runtime.watch.cache_adaptation import CacheAdaptation
from gearshift.runtime.watch.drift import LiveTrace
from gearshift.serving.door.bounds import free_bytes
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.operate.kind import BackendKind, Deployment, Loading, ServedKind, Shared, Shown
from gearshift.serving.operate.shadow import Shadow
from gearshift.serving.pages.front_page import shown_tensors
from gearshift.serving.rows.assembly import make_cache_adaptation, make_service
from gearshift.serving.rows.scaling import holds_cores
from gearshift.serving.rows.task import ServingTask, read_task
from gearshift.support.numbers import counted

MIB = 1 << 20
LOADING = "loading models: {} of {} replicas are ready"
LONGEST_TRIAL_S = 60.0
"""Bound on the first request to a new plan."""


class RowsDeployment(Deployment[ServingTask]):
    """`caches` attends to learned caches, and goes on with the plan that takes over."""

    operated: Service

    def __init__(self, task: ServingTask, service: Service, caches: CacheAdaptation | None = None) -> None:
        self.task, self.operated, self.caches = task, service, caches

    @property
    def loading(self) -> Loading | None:
        backend = self.operated.driver.backend
        if not isinstance(backend, WorkersBackend):  # emulated replicas are there at once
            return None
        replicas = len(self.task.tables.replica_ids)
        about_s = expected_start_s(backend, self.task.profiles.values())
        return LOADING, lambda: (backend.replicas_loaded, replicas), about_s

    async def start(self) -> None:
        await self.operated.start()

    async def trial(self) -> None:
        """Have each pipeline answer a request of zeros, with all replicas ready before and after.

        A model may refuse zeros, as at the start of a server.
        """
        self.require_ready()
        try:
            async with asyncio.timeout(LONGEST_TRIAL_S):
                for each in self.task.signatures:
                    payload = {spec.name: zeros(spec, 1) for spec in each.inputs}
                    await self.operated.pipelines[each.name].infer(payload)
        except TimeoutError:
            raise ModelFailed(f"a first request was not answered within {LONGEST_TRIAL_S:g} s") from None
        self.require_ready()

    def take_over_from(self, before: "RowsDeployment") -> None:
        self.operated.take_over_from(before.operated)
        self.caches, before.caches = before.caches, None

    async def stop(self) -> None:
        await self.operated.stop()
        if self.caches is not None:
            await self.caches.stop()

    @property
    def traces(self) -> Mapping[str, LiveTrace]:
        return {name: pipeline.adapting.trace for name, pipeline in self.operated.pipelines.items()}

    def shadows(self, share: float) -> Mapping[str, Shadow]:
        return {name: Shadow(pipeline, share) for name, pipeline in self.operated.pipelines.items()}


def expected_start_s(backend: WorkersBackend, profiles: Iterable[Profile]) -> float:
    """How long the backend will take to start, if models load as fast as when they were profiled; 0 if unknown."""
    load_s: dict[tuple[str, str], float] = {}
    for curve in (curve for each in profiles for curve in each.curves):
        place = curve.model, curve.device_kind
        if curve.load_s is not UNSET:
            load_s[place] = max(load_s.get(place, 0.0), curve.load_s)
    return backend.expected_start_s(load_s)


class ServedRows(ServedKind[ServingTask, Metrics]):
    plural = "plans of operators"

    def read_task(
        self,
        plan_path: Path,
        *,
        settings: ServerSettings,
        backend: BackendKind,
        profile_path: Path | None = None,
        project_path: Path | None = None,
    ) -> ServingTask:
        task = read_task(
            plan_path,
            backend,
            profile_path=profile_path,
            project_path=project_path,
            available=available_cores(),
            scaled=holds_cores(settings),
            core_share=settings.core_share,
        )
        require_replannable(task, settings)
        return task

    def doubts(self, task: ServingTask) -> Iterator[str]:
        """Say which models may have been replaced since profiling, and if control groups allow fewer processors."""
        for operator in task.operators.values():
            if operator.project is not None:
                yield from changes(operator.profile.loaded_from, operator.project)
        if task.device_cores is not None:
            planned = task.plan.hardware.pool_cores or task.plan.hardware.cores
            if sentence := quota_warning(planned + 1, "the plan", quota=quota_cores()):
                yield sentence

    def require_compatible(self, before: ServingTask, after: ServingTask, where: str) -> None:
        """Raise `InvalidInput` unless pipelines, tensors and projects are the same, `SwapFailed` without memory for it.

        So someone who may put plans into the folder can choose among the projects' models, but run no
        other code.
        """
        new, old = ({each.name: each for each in one.signatures} for one in (after, before))
        require(
            new.keys() == old.keys(),
            "the plan serves another operator than the one in force"
            if len(new) == len(old) == 1
            else f"the plan serves the pipelines {sorted(new)}, the one in force {sorted(old)}",
            where=where,
        )
        for name, signature in new.items():
            for what in ("inputs", "outputs"):
                named = "" if len(new) == 1 else f" of {name!r}"
                require(
                    getattr(signature, what) == getattr(old[name], what),
                    f"the plan serves other {what}{named} than the one in force",
                    where=where,
                )
        known = set(before.projects.values())
        for project in after.projects.values():
            require(
                project in known,
                f"the plan's models are those of another project ({project}) than the one in force "
                f"({', '.join(map(str, sorted(known)))})",
                where=where,
                remedy="start a server with it",
            )
        needed, left = needed_bytes(after), free_bytes()
        if left is not None and needed > left:
            raise SwapFailed(
                f"its models take {needed / MIB:.0f} MiB beside those that serve, and {left / MIB:.0f} MiB are left; "
                "free memory, or start a server for the plan elsewhere"
            )

    def metrics(self, task: ServingTask) -> Metrics:
        return Metrics([each.name for each in task.signatures])

    def deploy(
        self, task: ServingTask, shared: Shared[Metrics], journal: Journal, before: RowsDeployment | None = None
    ) -> RowsDeployment:
        """A later deployment gets metrics, what is called at drift, and learned caches when it takes over."""
        settings, caches = shared.settings, None
        if before is None:
            caches = make_cache_adaptation(task, settings, shared.metrics.caches, journal)
            service = make_service(task, settings, shared.metrics, journal, shared.clock, shared.drifted, caches)
        else:
            service = make_service(task, settings, None, journal, shared.clock, caches=before.caches)
        service.held.elsewhere = shared.unsent
        return RowsDeployment(task, service, caches)

    def shown(self, task: ServingTask) -> Sequence[Shown]:
        return [shown_tensors(each) for each in task.signatures]

    def placed(self, task: ServingTask) -> str:
        tables = task.tables
        return f"{counted(len(tables.replica_ids), 'replica')} on {counted(len(tables.device_ids), 'device')}"


ROWS = ServedRows()


def require_replannable(task: ServingTask, settings: ServerSettings) -> None:
    """Raise `InvalidInput` if anything but an operator under its own name is to be planned anew in the background."""
    names = [each.name for each in task.signatures]
    require(
        settings.replan == "off" or len(names) == 1,
        f"replan is {settings.replan!r}, and the plan has pipelines {names}: one can be planned anew while serving",
        remedy="serve with --replan off; plan anew from a trace of each, and use `gearshift swap`",
    )
    nodes = {name: node.operator for name, node in task.plan.pipelines[names[0]].nodes.items()}
    require(
        settings.replan == "off" or nodes == {names[0]: names[0]},
        f"replan is {settings.replan!r}, and pipeline {names[0]!r} has the nodes {sorted(nodes)}: "
        "an operator under its own name can be planned anew while serving",
        remedy="serve with --replan off; plan anew from a trace, and use `gearshift swap`",
    )


def needed_bytes(task: ServingTask) -> int:
    """Return the profiled memory of the plan's local CPU models; 0 for other backends.

    The workers' own interpreters and libraries are not included.
    """
    if task.backend != "local":
        return 0
    profile, kinds = task.profile, {device.id: device.kind for device in task.plan.hardware.devices}
    needed = 0
    for replica in task.plan.placement.replicas:
        kind = kinds[replica.device_ids[0]]
        if not is_cuda(kind) and not is_remote(kind):
            curves = [c for c in profile.curves if (c.model, c.device_kind) == (replica.model, kind)]
            needed += max((curve.memory_bytes for curve in curves), default=0)
    return needed
