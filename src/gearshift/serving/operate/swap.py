"""Swap plans while serving: load the new plan, try it, and put it in force at once."""

import asyncio
import gc
import logging
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.errors import GearshiftError, InvalidInput, ModelFailed, NotReady, SwapFailed, require
from gearshift.hardware import is_cuda, is_remote
from gearshift.model import zeros
from gearshift.observability.journal import Journal, Tagged
from gearshift.observability.metrics import Metrics
from gearshift.runtime.router.status import ServedPlan
from gearshift.runtime.service.service import Service
from gearshift.serving.door.bounds import FreeBytes, free_bytes
from gearshift.serving.operate.control import Control
from gearshift.serving.operate.shadow import Comparison, Shadow
from gearshift.serving.operate.task import ServingTask
from gearshift.support import processors

log = logging.getLogger(__name__)

PLAN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
MIB = 1 << 20
LONGEST_TRIAL_S = 60.0
"""Bound on the first request to the new plan."""
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


class Swapping(Protocol):
    """Swaps plans: `Swaps`, or one for language models."""

    async def swap(self, asked: SwapBody) -> SwapResult: ...


class OneSwap:
    """At most one swap at a time, of plans in the folder `plans`; a server that ends begins no other."""

    def __init__(self, plans: Path | None) -> None:
        self._plans, self._ending = plans, False
        self._work: asyncio.Task[SwapResult] | None = None

    async def run(
        self, plan: str, swap: Callable[[Path], Coroutine[Any, Any, SwapResult]], *, started: bool
    ) -> SwapResult:
        """`swap` of the plan's path, which goes on where the caller is cancelled.

        Raises `InvalidInput` if the folder has no such plan, `NotReady` while the server is not
        `started` or ends, `SwapFailed` during another swap.
        """
        if self._plans is None:
            raise InvalidInput("the server has no folder of plans", remedy="serve with --plans")
        path = plan_in(self._plans, plan)
        if self._ending or not started:
            raise NotReady("the server is starting or ending")
        if self._work is not None and not self._work.done():
            raise SwapFailed("another swap is under way; try again later")
        work = self._work = asyncio.get_running_loop().create_task(swap(path))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled():
                raise NotReady("the server is ending") from None
            raise

    def end(self, *, cancel: bool) -> None:
        """Begin no other swap; `cancel` the one that is under way."""
        self._ending = True
        if self._work is not None and cancel:
            self._work.cancel()

    async def stop(self) -> None:
        self.end(cancel=True)
        if self._work is not None:
            await asyncio.gather(self._work, return_exceptions=True)


class Swaps:
    """Puts plans in force in `control`, one at a time.

    `read` reads a plan with everything needed to serve it; `make` makes its service, not started,
    on the clock of the service in force.
    """

    def __init__(
        self,
        control: Control,
        *,
        plans: Path | None,
        task: ServingTask,
        read: Callable[[Path], ServingTask],
        make: Callable[[ServingTask, Journal], Service],
        metrics: Metrics,
        journal: Journal,
        pin: Callable[[frozenset[int]], None] | None = None,
        free: FreeBytes = free_bytes,
    ) -> None:
        self._free = free
        self._pin = pin or processors.pin
        self._control, self._read, self._make, self._one = control, read, make, OneSwap(plans)
        self.served = task
        self._metrics, self._journal = metrics, journal
        self._leaving: Service | None = None

    async def swap(self, asked: SwapBody) -> SwapResult:
        """Load, try and put in force the requested plan; return when the old one is unloaded.

        Raises `InvalidInput` if the folder has no such plan, `SwapFailed` during another swap, or
        if the new plan cannot be loaded or does not answer: the old plan then goes on serving.
        """
        started = self._control.status().state != "starting"
        return await self._one.run(asked.plan, lambda path: self._swap(path, asked), started=started)

    async def drain(self, longest_s: float) -> bool:
        """Drain the plan in force and a leaving one; cancel one that is being loaded."""
        self._one.end(cancel=self._leaving is None)
        services = [self._control.service] if self._leaving is None else [self._control.service, self._leaving]
        return all(await asyncio.gather(*(service.drain(longest_s) for service in services)))

    async def stop(self) -> None:
        await self._one.stop()
        await self._control.service.stop()

    async def _swap(self, path: Path, asked: SwapBody) -> SwapResult:
        before, service, compared = self._control.service, None, dict[str, Comparison]()
        self._journal.write("swap", plan=path.name, shadow=asked.shadow, take_over=asked.take_over)
        try:
            task = await asyncio.to_thread(self._read, path)
            require_same_task(task, self.served, path)
            require_memory(task, self._free)
            service = self._make(task, Tagged(self._journal, plan=path.name))
            await service.start()
            await _try(service, task)
            if asked.shadow > 0:
                compared = await self._compared(service, asked)
            if asked.take_over:
                _require_ready(service, task)
                self._take_over(service, task)
        except Exception as error:  # whatever goes wrong, the old plan goes on
            reason = str(error)
            if not isinstance(error, (GearshiftError, OSError)):
                log.exception("fault while %s was swapped in", path.name)
                reason = "an internal error; the server's log explains it"
            self._journal.write("swap_failed", plan=path.name, reason=reason)
            self._metrics.swaps.labels("failed").inc()
            raise SwapFailed(f"{path.name} did not take over: {reason}; {self._control.plan.path} goes on") from None
        finally:
            if service is not None and service is not self._control.service:
                await service.stop()
        if service is self._control.service:
            await self._leave(before)
        self._metrics.swaps.labels("taken_over" if asked.take_over else "compared").inc()
        several = len(self._control.pipelines) > 1
        return SwapResult(
            taken_over=asked.take_over,
            plan=self._control.plan,
            comparison=None if several else next(iter(compared.values()), None),
            comparisons=compared if several and compared else UNSET,
        )

    async def _compared(self, service: Service, asked: SwapBody) -> dict[str, Comparison]:
        shadows = {name: Shadow(service.pipelines[name], asked.shadow) for name in self._control.pipelines}
        for name, in_force in self._control.pipelines.items():
            in_force.shadow = shadows[name]
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

    def _take_over(self, service: Service, task: ServingTask) -> None:
        """Send every request to the new service from now on; nothing else runs in between."""
        service.take_over_from(self._control.service)
        self._leaving = self._control.service
        self._control.put_in_force(service, task.served)
        self.served = task
        if task.router_cores is not None:
            self._pin(task.router_cores)
        self._journal.write("taken_over", plan=task.served.path, sha256=task.served.sha256)

    async def _leave(self, before: Service) -> None:
        try:
            await before.drain(LONGEST_LEAVE_S)
        finally:
            await before.stop()
            self._leaving = None
        if gc.get_freeze_count():  # `serve` froze the first service
            gc.unfreeze()
            gc.collect()
            gc.freeze()


def plan_in(folder: Path, name: str) -> Path:
    """Return a plan's path; raises `InvalidInput` unless it is a regular file in `folder`."""
    path = folder / name
    if not PLAN_NAME.fullmatch(name) or path.is_symlink() or not path.is_file():
        raise InvalidInput(
            f"there is no plan {name[:100]!r} in the folder given by --plans",
            remedy="name a file that lies in it, without folders",
        )
    return path


def require_same_task(task: ServingTask, served: ServingTask, path: Path) -> None:
    """Raise `InvalidInput` unless pipelines, tensors and projects are the same.

    So someone who may put plans into the folder can choose among the projects' models, but run no
    other code.
    """
    new, old = ({each.name: each for each in one.signatures} for one in (task, served))
    require(
        new.keys() == old.keys(),
        "the plan serves another operator than the one in force"
        if len(new) == len(old) == 1
        else f"the plan serves the pipelines {sorted(new)}, the one in force {sorted(old)}",
        where=path.name,
    )
    for name, signature in new.items():
        for what in ("inputs", "outputs"):
            named = "" if len(new) == 1 else f" of {name!r}"
            require(
                getattr(signature, what) == getattr(old[name], what),
                f"the plan serves other {what}{named} than the one in force",
                where=path.name,
            )
    known = set(served.projects.values())
    for project in task.projects.values():
        require(
            project in known,
            f"the plan's models are those of another project ({project}) than the one in force "
            f"({', '.join(map(str, sorted(known)))})",
            where=path.name,
            remedy="start a server with it",
        )


async def _try(service: Service, task: ServingTask) -> None:
    """Have each new pipeline answer a request of zeros, with all replicas ready before and after.

    A model may refuse zeros, as at the start of a server.
    """
    _require_ready(service, task)
    try:
        async with asyncio.timeout(LONGEST_TRIAL_S):
            for each in task.signatures:
                await service.pipelines[each.name].infer({spec.name: zeros(spec, 1) for spec in each.inputs})
    except TimeoutError:
        raise ModelFailed(f"a first request was not answered within {LONGEST_TRIAL_S:g} s") from None
    _require_ready(service, task)


def _require_ready(service: Service, task: ServingTask) -> None:
    lacking = [replica.id for replica in service.status(task.served).replicas if replica.failing or not replica.ready]
    if lacking:
        raise ModelFailed(f"its replicas {lacking} have no worker, or do not answer")


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


def require_memory(task: ServingTask, free: FreeBytes) -> None:
    """Raise `SwapFailed` if the models of `task` need more memory than is free; loads nothing."""
    needed, left = needed_bytes(task), free()
    if left is not None and needed > left:
        raise SwapFailed(
            f"its models take {needed / MIB:.0f} MiB beside those that serve, and {left / MIB:.0f} MiB are left; "
            "free memory, or start a server for the plan elsewhere"
        )
