"""Replan from the live load in low-priority child processes; offer or swap in better plans."""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET

from gearshift.errors import GearshiftError
from gearshift.gear import PipelinePlan
from gearshift.objective import Objective
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.result import ServingResult
from gearshift.runtime.router.status import ReplanStatus
from gearshift.serving.operate import with_parent
from gearshift.serving.operate.control import Control
from gearshift.serving.operate.swap import SwapBody, SwapResult
from gearshift.serving.rows.task import ServingTask
from gearshift.support.files import write_atomically
from gearshift.support.numbers import milliseconds, percent

NAMES = ("replanned-a", "replanned-b", "replanned-c")
"""Three names: one plan may be in force and one offered while the next is made."""
NEW_PLAN, HARDWARE = ".replanned.json", ".replanned-hardware.json"
SHADOW_SHARE, SHADOW_S = 0.1, 10.0
BUDGET_SHARE = 0.5
"""The search's share of the time; reading, compiling and two simulations take the rest."""
REFINE = "refine"
"""The planner in a plan that a policy chose because it refines: it does not say which one made the other."""
LEAST_GAIN = 0.001
LEAST_FASTER = 0.02
LEAST_SAVED = 0.02

Outcome = Literal["offered", "swapped", "not_better", "failed"]

log = logging.getLogger(__name__)


class Failed(Exception):
    """No plan could be made; the text says why."""


class Replans:
    """Replans after load drift: one at a time, at most once per load window.

    A failure changes nothing: the plan in force stays.  `task` returns the current task.  With
    `swap` a better plan is swapped in, after it has answered copies of some requests; without, it
    is offered in the folder `plans`.
    """

    def __init__(
        self,
        control: Control,
        *,
        plans: Path,
        task: Callable[[], ServingTask],
        longest_s: float,
        metrics: Metrics,
        journal: Journal,
        swap: Callable[[SwapBody], Awaitable[SwapResult]] | None = None,
    ) -> None:
        self._control, self._plans, self._task, self._longest_s = control, plans, task, longest_s
        self._metrics, self._journal, self._swap = metrics, journal, swap
        self._work: asyncio.Task[None] | None = None
        self._not_before_s = 0.0
        self._said = False
        control.replan = ReplanStatus()

    def drifted(self) -> None:
        """Replan, unless that is running or was done within the last load window."""
        loop = asyncio.get_running_loop()
        if self._work is None and loop.time() >= self._not_before_s:
            self._work = loop.create_task(self._replan())

    async def stop(self) -> None:
        """Cancel a running replan and kill its process."""
        self._not_before_s = float("inf")
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    async def _replan(self) -> None:
        window_s = self._control.service.pipeline.adapting.window_s
        before = self._control.replan or ReplanStatus()
        self._control.replan = msgspec.structs.replace(before, running=True)
        self._journal.write("replan", plan=self._control.plan.path, window_s=window_s)
        outcome: Outcome = "failed"
        reason, offered = "", before.offered
        try:
            async with asyncio.timeout(self._longest_s):
                name, reason = await self._made(window_s)
            if name is not None and self._swap is not None:
                await self._swap(SwapBody(plan=name, shadow=SHADOW_SHARE, shadow_s=SHADOW_S))
                outcome, offered = "swapped", None
            else:
                outcome, offered = ("not_better", offered) if name is None else ("offered", name)
        except TimeoutError:
            reason = f"it took longer than {self._longest_s:g} s"
        except (Failed, GearshiftError, OSError, msgspec.MsgspecError) as error:
            reason = str(error)
        finally:
            self._work = None
            if self._not_before_s < float("inf"):
                self._not_before_s = asyncio.get_running_loop().time() + window_s
            self._control.replan = ReplanStatus(last=outcome, reason=reason, offered=offered)
        self._metrics.adapting.replans.labels(outcome).inc()
        self._journal.write("replanned", outcome=outcome, reason=reason, offered=offered)
        if outcome == "offered":
            log.warning("a plan for the load of now is offered: `gearshift swap %s`; %s", offered, reason)
        if outcome == "failed" and not self._said:
            self._said = True
            log.warning("no plan could be made for the load of now: %s", reason)

    async def _made(self, window_s: float) -> tuple[str | None, str]:
        """Return a plan's name if it is better on the live load, else None, and a comparison."""
        task = self._task()
        pipeline = task.plan.pipelines[task.tables.pipeline.name]
        counts = self._control.service.pipeline.adapting.trace.latest(window_s)
        if sum(counts) == 0:
            raise Failed("no requests came")
        taken = {Path(self._control.plan.path).stem, Path((self._control.replan or ReplanStatus()).offered or "").stem}
        stem = next(name for name in NAMES if name not in taken)
        trace, hardware, new = self._plans / f"{stem}.csv", self._plans / HARDWARE, self._plans / NEW_PLAN
        (self._plans / f"{stem}.json").unlink(missing_ok=True)  # an older plan, from another trace
        await asyncio.to_thread(_write_counts, counts, trace)
        await asyncio.to_thread(write_atomically, hardware, msgspec.json.encode(task.plan.hardware))
        try:
            (operator,) = task.operators.values()
            folder = str(operator.folder)
            cores = task.plan.hardware.pool_cores
            options = plan_options(pipeline, None if cores else task.plan.planner, task.plan.seed)
            budget = ["--budget-s", f"{BUDGET_SHARE * self._longest_s:g}"]
            on = ["--cores", str(cores)] if cores else ["--devices", str(hardware)]
            made_from = [folder, "--trace", str(trace), *on]
            await _gearshift("plan", *made_from, *options, *budget, "--out", str(new))
            made = await _simulated(new, trace, folder)
            in_force = await _simulated(Path(self._control.plan.path), trace, folder)
            reason = f"on the live load it has {_said(made)}, the plan in force {_said(in_force)}"
            if not is_better(made, in_force, objective_of(pipeline)):
                return None, reason
            os.replace(new, self._plans / f"{stem}.json")
            return f"{stem}.json", reason
        finally:
            for path in (new, hardware):
                path.unlink(missing_ok=True)


def objective_of(pipeline: PipelinePlan) -> Objective:
    return pipeline.objective if pipeline.asked is None else pipeline.asked.objective


def plan_options(pipeline: PipelinePlan, planner: str | None, seed: int) -> list[str]:
    """Return the options of `gearshift plan` that repeat the request for the plan of `pipeline`.

    `planner` is None if the plan changes cores: there is only one planner for these.  The new load
    sets the top of the load ranges; if the plan does not record its request, the other ranges too.
    """
    asked, objective = pipeline.asked, objective_of(pipeline)
    options: dict[str, object] = {
        "--latency-ms": None if objective.latency_s is None else 1e3 * objective.latency_s,
        "--percentile": None if objective.latency_s is None else objective.percentile,
        "--accuracy": objective.accuracy,
        "--confidence": objective.confidence,
        "--scope": objective.scope,
        "--seed": seed,
        "--p50-ms": None if objective.median_s is UNSET else 1e3 * objective.median_s,
    }
    if asked is not None:
        by_policy = planner is not None and asked.policy is not UNSET
        options["--policy"] = asked.policy if by_policy else None
        options |= {
            "--planner": None if by_policy and planner == REFINE else planner,
            "--ranges": asked.ranges,
            "--load": asked.load,
        }
        options["--least-margin"] = asked.least_margin
    return [word for name, value in options.items() if value is not None for word in (name, str(value))]


def is_better(new: ServingResult, old: ServingResult, objective: Objective) -> bool:
    """Whether `new` misses the objective by less, or equally and is better otherwise."""
    new_miss, old_miss = _miss(new, objective), _miss(old, objective)
    if abs(new_miss - old_miss) >= LEAST_GAIN:
        return new_miss < old_miss
    if new.core_s is not None and old.core_s is not None:
        return new.core_s < (1 - LEAST_SAVED) * old.core_s
    if objective.accuracy is not None and objective.latency_s is None:
        return new.latency_s.p95 < (1 - LEAST_FASTER) * old.latency_s.p95
    return new.accuracy >= old.accuracy + LEAST_GAIN


def _miss(result: ServingResult, objective: Objective) -> float:
    late = 0.0 if objective.latency_s is None else result.share_late - (1 - objective.percentile)
    wrong = 0.0 if objective.accuracy is None else objective.accuracy - result.accuracy
    slow = 0.0 if objective.median_s is UNSET else result.latency_s.p50 / objective.median_s - 1
    return max(0.0, late) + max(0.0, wrong) + max(0.0, slow)


def _said(result: ServingResult) -> str:
    return (
        f"accuracy {100 * result.accuracy:.2f} %, p95 {milliseconds(result.latency_s.p95)}, "
        f"{percent(result.share_late)} late"
    )


def _write_counts(counts: list[int], path: Path) -> None:
    rows = "".join(f"{second},{count}\n" for second, count in enumerate(counts))
    write_atomically(path, f"second,requests\n{rows}".encode(), private=True)


class _Simulated(ServingResult, frozen=True, forbid_unknown_fields=False):
    """The result of `gearshift simulate --json`, which has further fields."""


async def _simulated(plan: Path, trace: Path, profile: str) -> ServingResult:
    said = await _gearshift("simulate", str(plan), "--trace", str(trace), "--profile", profile, "--json", "-")
    return msgspec.json.decode(said, type=_Simulated)


async def _gearshift(*arguments: str) -> bytes:
    """Run a command in its own session, return its output; raises `Failed` with its last line."""
    pipe = asyncio.subprocess.PIPE
    command = with_parent.command(*arguments, gives_way=True)
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
        )
    )
    try:
        process = await asyncio.shield(starting)
        out, err = await process.communicate()
    finally:
        process = await starting  # also if cancelled while the process started
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode != 0:
        lines = err.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise Failed(f"`gearshift {arguments[0]}` said: {_last(lines)}")
    return out


def _last(lines: list[str]) -> str:
    told = [line for line in lines if line.startswith("error")]
    return (told or lines)[-1][:500]
