"""Swap plans of language models while serving: start the engines that are new, and put the plan in force at once."""

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from gearshift.errors import GearshiftError, SwapFailed, require
from gearshift.observability.journal import Journal, Tagged
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.runtime.engines.replicas.engine_replica import EngineReplica
from gearshift.serving.openai.deployment import Deployment
from gearshift.serving.openai.handlers import OpenAIHandlers
from gearshift.serving.openai.language_task import LanguageTask
from gearshift.serving.operate.control import Control
from gearshift.serving.operate.swap import LONGEST_LEAVE_S, OneSwap, SwapBody, SwapResult
from gearshift.support.processors import pin

log = logging.getLogger(__name__)

Make = Callable[[LanguageTask, Journal, Sequence[EngineReplica]], Deployment]


class LanguageSwaps:
    """Puts plans in force, one at a time; as `operate.swap.Swaps`.

    `read` reads a plan with everything needed to serve it; `make` makes a deployment of it that
    adopts what it can of engines that run.
    """

    def __init__(
        self,
        control: Control,
        handlers: OpenAIHandlers,
        deployment: Deployment,
        *,
        plans: Path | None,
        read: Callable[[Path], LanguageTask],
        make: Make,
        metrics: LanguageMetrics,
        journal: Journal,
    ) -> None:
        self._control, self._handlers, self.deployment = control, handlers, deployment
        self._read, self._make, self._metrics, self._journal = read, make, metrics, journal
        self._one = OneSwap(plans)
        self._leaving: Deployment | None = None

    async def swap(self, asked: SwapBody) -> SwapResult:
        """Start what the requested plan needs and put it in force; return when the old one has answered its requests.

        Requests end on the plan they began with. Raises `InvalidInput` if the folder has no such
        plan, `SwapFailed` during another swap, or if the plan does not fit or its engines do not
        come up: the old plan then goes on serving.
        """
        require(asked.shadow == 0, "plans of language models are swapped without a shadow", remedy="leave it out")
        return await self._one.run(asked.plan, self._swap, started=self.deployment.service.started)

    async def drain(self, longest_s: float) -> bool:
        """Drain the plan in force and a leaving one; cancel one whose engines are being started."""
        self._one.end(cancel=self._leaving is None)
        served = [self.deployment] if self._leaving is None else [self.deployment, self._leaving]
        return all(await asyncio.gather(*(one.service.drain(longest_s) for one in served)))

    async def stop(self) -> None:
        await self._one.stop()
        await self.deployment.stop()

    async def _swap(self, path: Path) -> SwapResult:
        before, plan_before = self.deployment, self._control.plan.path
        self._journal.write("swap", plan=path.name, shadow=0.0, take_over=True)
        try:
            task = await asyncio.to_thread(self._read, path)
            require_same_project(task, before.task, path)
            after = self._make(task, Tagged(self._journal, plan=path.name), before.all)
            _keep_beside_engines(before.task, task)
            await after.start_engines()
            try:
                self._take_over(before, after)
            except Exception:
                if self.deployment is before:
                    await after.stop()
                raise
        except Exception as error:  # whatever goes wrong, the old plan goes on
            _keep_beside_engines(self.deployment.task)
            reason = str(error)
            if not isinstance(error, (GearshiftError, OSError)):
                log.exception("fault while %s was swapped in", path.name)
                reason = "an internal error; the server's log explains it"
            self._journal.write("swap_failed", plan=path.name, reason=reason)
            self._metrics.swaps.labels("failed").inc()
            raise SwapFailed(f"{path.name} did not take over: {reason}; {plan_before} goes on") from None
        await self._leave(before)
        _keep_beside_engines(task)
        self._metrics.swaps.labels("taken_over").inc()
        return SwapResult(taken_over=True, plan=self._control.plan, comparison=None)

    def _take_over(self, before: Deployment, after: Deployment) -> None:
        """Send every request to the new service from now on; nothing else runs in between."""
        after.service.take_over_from(before.service)
        after.serve()
        before.service.hand_over_to(after.service)
        self._leaving, self.deployment = before, after
        self._control.put_in_force(after.operated, after.task.served)
        self._handlers.put_in_force(after.service)
        served = after.task.served
        self._journal.write("taken_over", plan=served.path, sha256=served.sha256)

    async def _leave(self, before: Deployment) -> None:
        try:
            await before.service.drain(LONGEST_LEAVE_S)
        finally:
            await before.stop()
            self._leaving = None
        if gc.get_freeze_count():  # the first service was frozen
            gc.unfreeze()
            gc.collect()
            gc.freeze()


def _keep_beside_engines(*tasks: LanguageTask) -> None:
    """Keep to the processors that the engines of all tasks leave, or else those of the last."""
    if all(task.project is not None for task in tasks):
        left = [frozenset(task.router_cores or task.available) for task in tasks]
        pin(frozenset.intersection(*left) or left[-1])


def require_same_project(task: LanguageTask, served: LanguageTask, path: Path) -> None:
    """Raise `InvalidInput` unless the plan serves the same pipeline with engines of the same project.

    So someone who may put plans into the folder can choose among the project's engines, but run
    nothing else.
    """
    require(
        task.tables.pipeline == served.tables.pipeline,
        f"the plan serves {task.tables.pipeline!r}, and the one in force {served.tables.pipeline!r}",
        where=path.name,
    )
    require(
        task.project_path == served.project_path,
        f"the plan's engines are those of another project ({task.project_path}) than the one in force "
        f"({served.project_path})",
        where=path.name,
        remedy="start a server with it",
    )
