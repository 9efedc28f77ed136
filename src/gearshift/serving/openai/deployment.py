"""A plan of language models at work: its engines, and the service before them."""

import asyncio
from collections.abc import Sequence

from msgspec import UNSET

from gearshift.clock import Clock, to_ns
from gearshift.errors import ModelFailed
from gearshift.gear import GearPlan
from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.profiles.engines.backlog import language_backlog
from gearshift.runtime.engines.answers.drift import AnswerDrift
from gearshift.runtime.engines.language_service import LanguageService
from gearshift.runtime.engines.replicas.engine_replica import EngineReplica
from gearshift.runtime.engines.replicas.identity import said_before
from gearshift.runtime.engines.routing.first_token_promise import FirstTokenPromise
from gearshift.runtime.engines.routing.rate_limits import Limits, RateLimits
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.runtime.service.room import HeldBytes
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.openai.language_task import LanguageTask, make_replicas
from gearshift.serving.openai.operated import OperatedLanguage


class Deployment:
    """Nothing is started; engines among `running` that the plan has too are adopted as they are."""

    def __init__(
        self,
        task: LanguageTask,
        settings: ServerSettings,
        *,
        held: HeldBytes,
        clock: Clock,
        metrics: LanguageMetrics,
        journal: Journal,
        running: Sequence[EngineReplica] = (),
    ) -> None:
        self.task = task
        self.all: Sequence[EngineReplica] = make_replicas(task, settings, running)
        self._starting: Sequence[asyncio.Future[None]] = ()
        backlog = language_backlog(task.plan, task.tables, task.profile)
        is_told = task.project is not None or task.profile.certainty != "judge"  # which no engine emulates
        self.service = LanguageService(
            task.tables,
            self,
            certainty_of=lambda model, so_far, prompt_tokens, decide_at: task.profile.certainty_of(
                model, so_far, prompt_tokens=prompt_tokens, decide_at=decide_at
            ),
            likeliest_other=task.profile.certainty in ("margin", "judge"),
            most_waiting=settings.most_waiting_requests or backlog.most_waiting,
            held=held,
            promise=_promise(task.plan, settings),
            limits=_limits(task),
            longest_retry_s=settings.longest_retry_s,
            shortest_hang_s=settings.shortest_hang_s,
            before_of={model: said_before(model, task.profile.notes) for model in task.tables.models}
            if task.project is not None
            else None,
            drift=AnswerDrift(task.profile.answers) if is_told else None,
            clock=clock,
            metrics=metrics,
            journal=journal,
        )
        self.operated = OperatedLanguage(self.service, task.plan, self.all)

    def suspect(self, replica: int, fault: Fault) -> None:
        """As `served_engines.Engines`."""
        self.all[replica].suspect(fault)

    async def start_engines(self) -> None:
        """Start those that do not run yet; raises `ModelFailed` where one does not answer, and leaves none of them."""
        self._starting = starting = [asyncio.ensure_future(engine.start()) for engine in self._own]
        try:
            await asyncio.gather(*starting)
            self._require_all()
        except BaseException:
            for one in starting:
                one.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            await self._stop_own()
            raise

    def engines_ready(self) -> tuple[int, int]:
        """How many of the engines answer, of how many, while `start_engines` runs."""
        waited_for = sum(not one.done() for one in self._starting)
        return len(self.all) - waited_for, len(self.all)

    def serve(self) -> None:
        """Accept requests; the engines are there."""
        for number, engine in enumerate(self.all):
            engine.watch(self.service, number)
        self.service.start()

    async def stop(self) -> None:
        """End at once, with all engines that no other deployment has."""
        self.service.stop()
        for engine in self.all:
            engine.leave(self.service)
        await self._stop_own()

    async def _stop_own(self) -> None:
        await asyncio.gather(*(engine.stop() for engine in self._own))

    @property
    def _own(self) -> list[EngineReplica]:
        """The engines that no service watches."""
        return [engine for engine in self.all if not engine.is_watched]

    def _require_all(self) -> None:
        lost = [engine.id for engine in self.all if engine.is_lost]
        if lost:
            raise ModelFailed(f"the engines of its replicas {lost}, which run already, do not answer")


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
