"""A plan of language models at work: its engines, and the service before them."""

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import UNSET

from gearshift.clock import to_ns
from gearshift.errors import ModelFailed
from gearshift.gear import GearPlan
from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.profiles.engines.backlog import language_backlog
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
from gearshift.serving.openai.handlers import OpenAIHandlers
from gearshift.serving.openai.language_task import LanguageTask, make_replicas
from gearshift.serving.openai.operated import OperatedLanguage
from gearshift.serving.operate.kind import Deployment, Loading, Shared

STARTING = "starting engines: {} of {} answer"


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
            capacity_qps=backlog.capacity_qps,
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
