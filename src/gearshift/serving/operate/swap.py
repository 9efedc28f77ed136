"""Swap plans while serving: load the new plan, try it, and put it in force at once."""

import asyncio
import gc
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.errors import GearshiftError, InvalidInput, NotReady, SwapFailed, require
from gearshift.observability.journal import Tagged
from gearshift.runtime.router.status import ServedPlan
from gearshift.serving.operate.control import Control
from gearshift.serving.operate.kind import Deployment, ServedKind, Shared, Task
from gearshift.serving.operate.shadow import Comparison
from gearshift.support import processors

log = logging.getLogger(__name__)

PLAN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
LONGEST_LEAVE_S = 3600.0
"""Bound on answering the old plan's accepted requests; the rest then fails."""


class SwapBody(msgspec.Struct, forbid_unknown_fields=True):
    """The plan to load, a file in the folder given by `--plans`.

    With `shadow` above 0, up to 1, it first answers a copy of that share of requests for
    `shadow_s` seconds.  Without `take_over` it is then unloaded.
    """

    plan: str
    shadow: float = 0.0
    shadow_s: float = 10.0
    take_over: bool = True

    def __post_init__(self) -> None:
        require(0 <= self.shadow <= 1, f"shadow is {self.shadow}, needs 0 to 1")
        require(0 < self.shadow_s <= 86_400, f"shadow_s is {self.shadow_s}, needs more than 0, up to 86400")
        require(self.take_over or self.shadow > 0, "a plan that does not take over needs a shadow share")


class SwapResult(msgspec.Struct, frozen=True, kw_only=True):
    """The plan in force, whether it is the requested one, and that one's results as a shadow.

    `comparison` is that of the only pipeline; of several, `comparisons` has one for each.
    """

    taken_over: bool
    plan: ServedPlan
    comparison: Comparison | None
    comparisons: dict[str, Comparison] | UnsetType = UNSET


class Swaps:
    """Puts plans of a `kind`, from the folder of the settings, in force in `control`, one at a time.

    `read` reads a plan with everything needed to serve it, and `keep_to` has this process keep to
    processors.
    """

    def __init__(
        self,
        kind: ServedKind[Any, Any],
        control: Control,
        deployment: Deployment[Any],
        shared: Shared[Any],
        *,
        read: Callable[[Path], Task],
        keep_to: Callable[[frozenset[int]], object] = processors.pin,
    ) -> None:
        self._kind, self._control, self.deployment, self._shared = kind, control, deployment, shared
        self._metrics, self._journal, self._read, self._keep_to = shared.metrics, shared.journal, read, keep_to
        self._leaving: Deployment[Any] | None = None
        self._work: asyncio.Task[SwapResult] | None = None
        self._ending = False

    async def swap(self, asked: SwapBody) -> SwapResult:
        """Load, try and put in force the requested plan; return when the old one is unloaded.

        It goes on where the caller is cancelled; requests end on the plan that they began with.
        Raises `InvalidInput` if the folder has no such plan, `NotReady` while the server starts or
        ends, `SwapFailed` during another swap, or if the new plan does not fit, cannot be loaded or
        does not answer: the old plan then goes on serving.
        """
        self._kind.require_has(asked)
        plans = self._shared.settings.plans
        if plans is None:
            raise InvalidInput("the server has no folder of plans", remedy="serve with --plans")
        path = plan_in(Path(plans), asked.plan)
        if self._ending or self._control.status().state == "starting":
            raise NotReady("the server is starting or ending")
        if self._work is not None and not self._work.done():
            raise SwapFailed("another swap is under way; try again later")
        work = self._work = asyncio.get_running_loop().create_task(self._swap(path, asked))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled():
                raise NotReady("the server is ending") from None
            raise

    async def drain(self, longest_s: float) -> bool:
        """Drain the plan in force and a leaving one; cancel one that is being loaded."""
        self._ending = True
        if self._work is not None and self._leaving is None:
            self._work.cancel()
        deployments = [self.deployment] if self._leaving is None else [self.deployment, self._leaving]
        return all(await asyncio.gather(*(each.operated.drain(longest_s) for each in deployments)))

    async def stop(self) -> None:
        self._ending = True
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        await self.deployment.stop()

    async def _swap(self, path: Path, asked: SwapBody) -> SwapResult:
        before, after, compared = self.deployment, None, dict[str, Comparison]()
        self._journal.write("swap", plan=path.name, shadow=asked.shadow, take_over=asked.take_over)
        try:
            task = await asyncio.to_thread(self._read, path)
            self._kind.require_compatible(before.task, task, path.name)
            after = self._kind.deploy(task, self._shared, Tagged(self._journal, plan=path.name), before)
            self._keep_beside(before.task, task)
            await after.start()
            await after.trial()
            if asked.shadow > 0:
                compared = await self._compared(after, asked)
            if asked.take_over:
                after.require_ready()
                self._take_over(before, after)
        except Exception as error:  # whatever goes wrong, the old plan goes on
            reason = str(error)
            if not isinstance(error, (GearshiftError, OSError)):
                log.exception("fault while %s was swapped in", path.name)
                reason = "an internal error; the server's log explains it"
            self._journal.write("swap_failed", plan=path.name, reason=reason)
            self._metrics.swaps.labels("failed").inc()
            raise SwapFailed(f"{path.name} did not take over: {reason}; {self._control.plan.path} goes on") from None
        finally:
            if after is not None and after is not self.deployment:
                await after.stop()
                self._keep_beside(before.task)
        if after is self.deployment:
            await self._leave(before)
        self._metrics.swaps.labels("taken_over" if asked.take_over else "compared").inc()
        several = len(self._control.pipelines) > 1
        return SwapResult(
            taken_over=asked.take_over,
            plan=self._control.plan,
            comparison=None if several else next(iter(compared.values()), None),
            comparisons=compared if several and compared else UNSET,
        )

    async def _compared(self, after: Deployment[Any], asked: SwapBody) -> dict[str, Comparison]:
        shadows = after.shadows(asked.shadow)
        for name, shadow in shadows.items():
            self._control.pipelines[name].shadow = shadow
        try:
            await asyncio.sleep(asked.shadow_s)
        finally:
            for in_force in self._control.pipelines.values():
                in_force.shadow = None
        compared = {name: await shadow.finished() for name, shadow in shadows.items()}
        for name, comparison in compared.items():
            named = {"pipeline": name} if len(compared) > 1 else {}
            self._journal.write("shadow", plan=asked.plan, **named, **msgspec.to_builtins(comparison))
        return compared

    def _take_over(self, before: Deployment[Any], after: Deployment[Any]) -> None:
        """Send every request to the new deployment from now on; nothing else runs in between."""
        after.take_over_from(before)
        self._leaving, self.deployment = before, after
        served = after.task.served
        self._control.put_in_force(after.operated, served)
        self._journal.write("taken_over", plan=served.path, sha256=served.sha256)

    async def _leave(self, before: Deployment[Any]) -> None:
        try:
            await before.operated.drain(LONGEST_LEAVE_S)
        finally:
            await before.stop()
            self._leaving = None
        self._keep_beside(self.deployment.task)
        if gc.get_freeze_count():  # `serve` froze the first one
            gc.unfreeze()
            gc.collect()
            gc.freeze()

    def _keep_beside(self, *tasks: Task) -> None:
        """Keep to the processors that all these tasks leave to this process, or else those that the last one leaves."""
        left = [task.router_cores for task in tasks if task.router_cores is not None]
        if left:
            self._keep_to(frozenset.intersection(*left) or left[-1])


def plan_in(folder: Path, name: str) -> Path:
    """Return a plan's path; raises `InvalidInput` unless it is a regular file in `folder`."""
    path = folder / name
    if not PLAN_NAME.fullmatch(name) or path.is_symlink() or not path.is_file():
        raise InvalidInput(
            f"there is no plan {name[:100]!r} in the folder given by --plans",
            remedy="name a file that lies in it, without folders",
        )
    return path
