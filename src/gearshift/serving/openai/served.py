"""How plans of language models are served: their deployments, and what else a server asks of a kind."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from gearshift.clock import to_ns
from gearshift.errors import ModelFailed, require
from gearshift.gear import GearPlan
from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.profiles.engines.backlog import language_backlog
from gearshift.runtime.backends.local import available_cores
from gearshift.runtime.engines.answers.drift import AnswerDrift
from gearshift.runtime.engines.replicas.engine_replica import EngineReplica
from gearshift.runtime.engines.replicas.identity import said_before
from gearshift.runtime.engines.routing.first_token_promise import FirstTokenPromise
from gearshift.runtime.engines.routing.rate_limits import Limits, RateLimits
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.runtime.service.room import HeldBytes
from gearshift.runtime.watch.drift import LiveTrace
from gearshift.serving.door.bounds import most_waiting_bytes
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.http.application import Found
from gearshift.serving.openai.handlers import OpenAIHandlers
from gearshift.serving.openai.language_task import CHATS, LanguageTask, make_replicas, read_language_task, served_path
from gearshift.serving.openai.operated import OperatedLanguage
from gearshift.serving.operate.kind import BackendKind, Deployment, Loading, ServedKind, Shared, Shown
from gearshift.support.event_loop import most_open_files

STARTING = "starting engines: {} of {} answer"
OTHER_FILES = 512
"""Open files beside those of requests: engines' pipes, kept connections, logs."""


class LanguageDeployment(Deployment[LanguageTask]):
    """Engines of `before` that the plan has too are adopted as they are."""

    operated: OperatedLanguage

    def __init__(
        self,
        task: LanguageTask,
        shared: Shared[LanguageMetrics],
        journal: Journal,
        before: "LanguageDeployment | None" = None,
    ) -> None:
        settings = shared.settings
        self.task = task
        self.all: Sequence[EngineReplica] = make_replicas(task, settings, () if before is None else before.all)
        self._starting: Sequence[asyncio.Future[None]] = ()
        backlog = language_backlog(task.plan, task.tables, task.profile)
        is_told = task.project is not None or task.profile.certainty != "judge"  # which no engine emulates
        self.operated = OperatedLanguage(
            task.tables,
            self,
            certainty_of=lambda model, so_far, prompt_tokens, decide_at: task.profile.certainty_of(
                model, so_far, prompt_tokens=prompt_tokens, decide_at=decide_at
            ),
            likeliest_other=task.profile.certainty in ("margin", "judge"),
            most_waiting=settings.most_waiting_requests or backlog.most_waiting,
            held=HeldBytes(most_waiting_bytes(settings)) if before is None else before.operated.held,
            promise=_promise(task.plan, settings),
            limits=_limits(task),
            longest_retry_s=settings.longest_retry_s,
            shortest_hang_s=settings.shortest_hang_s,
            before_of={model: said_before(model, task.profile.notes) for model in task.tables.models}
            if task.project is not None
            else None,
            drift=AnswerDrift(task.profile.answers) if is_told else None,
            clock=shared.clock,
            metrics=shared.metrics,
            journal=journal,
        )
        self.operated.plan = task.plan
        self.operated.held.elsewhere = shared.unsent
        if before is None:
            self.handlers = OpenAIHandlers(
                self.operated,
                largest_body_bytes=settings.largest_body_bytes,
                times=shared.times,
                tracing=shared.tracing,
            )

    def suspect(self, replica: int, fault: Fault) -> None:
        """As `served_engines.Engines`."""
        self.all[replica].suspect(fault)

    @property
    def loading(self) -> Loading:
        return STARTING, self._answering, 0.0

    def _answering(self) -> tuple[int, int]:
        """How many of the engines answer, of how many."""
        waited_for = sum(not one.done() for one in self._starting)
        return len(self.all) - waited_for, len(self.all)

    async def start(self) -> None:
        """Start the engines that do not run yet."""
        self._starting = starting = [asyncio.ensure_future(engine.start()) for engine in self._own]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            for one in starting:
                one.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            await self._stop_own()
            raise

    def serve(self) -> None:
        for number, engine in enumerate(self.all):
            engine.watch(self.operated, number)
        self.operated.start()

    def require_ready(self) -> None:
        lost = [engine.id for engine in self.all if engine.is_lost]
        if lost:
            raise ModelFailed(f"the engines of its replicas {lost}, which run already, do not answer")

    def take_over_from(self, before: "LanguageDeployment") -> None:
        self.operated.take_over_from(before.operated)
        self.serve()
        before.operated.hand_over_to(self.operated)
        self.handlers = before.handlers
        self.handlers.put_in_force(self.operated)

    async def stop(self) -> None:
        self.operated.stop()
        for engine in self.all:
            engine.leave(self.operated)
        await self._stop_own()

    @property
    def traces(self) -> Mapping[str, LiveTrace]:
        return {self.operated.name: self.operated.trace}

    async def _stop_own(self) -> None:
        await asyncio.gather(*(engine.stop() for engine in self._own))

    @property
    def _own(self) -> list[EngineReplica]:
        """The engines that no service watches."""
        return [engine for engine in self.all if not engine.is_watched]


class ServedLanguage(ServedKind[LanguageTask, LanguageMetrics]):
    plural = "language models"
    lacks = frozenset(("front_ends", "grpc_port", "replan", "scaler", "adapt", "slowdown", "shadow"))
    unit = "request"
    path = "/v1"

    def fitted(self, settings: ServerSettings) -> tuple[ServerSettings, str]:
        return with_files_for_engines(settings, most_open_files())

    def read_task(
        self,
        plan_path: Path,
        *,
        settings: ServerSettings,
        backend: BackendKind,
        profile_path: Path | None = None,
        project_path: Path | None = None,
    ) -> LanguageTask:
        return read_language_task(
            plan_path, backend, profile_path=profile_path, project_path=project_path, available=available_cores()
        )

    def require_compatible(self, before: LanguageTask, after: LanguageTask, where: str) -> None:
        """Raise `InvalidInput` unless the plan serves the same pipeline with engines of the same project.

        So someone who may put plans into the folder can choose among the project's engines, but run
        nothing else.
        """
        require(
            after.tables.pipeline == before.tables.pipeline,
            f"the plan serves {after.tables.pipeline!r}, and the one in force {before.tables.pipeline!r}",
            where=where,
        )
        require(
            after.project_path == before.project_path,
            f"the plan's engines are those of another project ({after.project_path}) than the one in force "
            f"({before.project_path})",
            where=where,
            remedy="start a server with it",
        )

    def metrics(self, task: LanguageTask) -> LanguageMetrics:
        return LanguageMetrics(task.tables.pipeline, task.tables.models, task.tables.replicas)

    def deploy(
        self, task: LanguageTask, shared: Shared[LanguageMetrics], journal: Journal, before: Any = None
    ) -> LanguageDeployment:
        return LanguageDeployment(task, shared, journal, before)

    def routes(self, deployment: LanguageDeployment) -> Sequence[Found]:
        return deployment.handlers.routes

    def shown(self, task: LanguageTask) -> Sequence[Shown]:
        return [shown_at(served_path(task), task.tables.pipeline)]

    def placed(self, task: LanguageTask) -> str:
        placed = [task.tables.models[model] for model in task.tables.replica_model]
        counts = [f"{placed.count(model)} of {model}" for model in task.tables.models if model in placed]
        return f"engines: {', '.join(counts)}"


LANGUAGE_MODELS = ServedLanguage()


def shown_at(path: str, pipeline: str) -> Shown:
    asked = {"messages": [{"role": "user", "content": "Hello"}]} if path == CHATS else {"prompt": "Hello"}
    return Shown(pipeline, "<p>language models</p>", path, {"model": pipeline, **asked})


def with_files_for_engines(settings: ServerSettings, files: int) -> tuple[ServerSettings, str]:
    """With as many connections of clients as can each have one to an engine beside it, and why they are fewer."""
    most = max(1, (files - OTHER_FILES) // 2)
    if settings.most_connections <= most:
        return settings, ""
    doubt = (
        f"most_connections is {settings.most_connections}, and is taken as {most}: {files} files may be open, and each "
        "request may need one to its client and one to an engine; raise the bound (ulimit -n)"
    )
    return msgspec.structs.replace(settings, most_connections=most), doubt


def _promise(plan: GearPlan, settings: ServerSettings) -> FirstTokenPromise:
    """By the plan's objective where that is of first tokens or of whole answers."""
    objective = plan.pipeline.objective
    of_whole = objective.metric in (UNSET, "latency", "total")
    is_known = objective.latency_s is not None and objective.metric != "per_token"
    return FirstTokenPromise(
        to_ns(objective.latency_s) if is_known and objective.latency_s is not None else None,
        of_whole=of_whole,
        gives_late_answers=settings.late == "answer",
    )


def _limits(task: LanguageTask) -> RateLimits | None:
    if task.project is None:
        return None
    engines = [task.project.models[name].engine if name in task.project.models else None for name in task.tables.models]
    limits = [Limits() if one is None else Limits(one.requests_per_minute, one.tokens_per_minute) for one in engines]
    return RateLimits(len(limits), limits)
