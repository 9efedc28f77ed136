"""Swaps in one process: a deployment of each kind in force, and what may take its place."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import uvloop

from gearshift.clock import WallClock
from gearshift.observability.journal import Journal, JournalFile
from gearshift.observability.recent_events import RecentEvents
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.profiles.store import write_profile
from gearshift.runtime.backends.base import Batch, BatchEvents
from gearshift.runtime.backends.emulated import EmulatedBackend
from gearshift.runtime.engines.emulated.engine import EmulatedEngine
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.service.room import Unsent
from gearshift.runtime.service.service import Service
from gearshift.serving.door.deadline_headers import SendingTimes
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.openai.language_task import LanguageTask, read_language_task
from gearshift.serving.openai.served import LanguageDeployment, ServedLanguage
from gearshift.serving.operate.control import Control
from gearshift.serving.operate.kind import Deployment, Shared
from gearshift.serving.operate.swap import Swaps
from gearshift.serving.rows.served import RowsDeployment, ServedRows
from gearshift.serving.rows.task import ServingTask, read_task
from tests.emulated_service import Reading, submit_to
from tests.little_task import little_profile, refining_plan, two_gear_plan
from tests.two_language_models import ALONE, SMALL_ALONE, language_plan, language_profile, write_language_plan

LONGEST_S = 20.0


@dataclass
class World:
    """A deployment in force, what can take its place, and what was told of it."""

    control: Control
    swaps: Swaps
    metrics: Any
    kind: Any

    @property
    def service(self) -> Any:
        return self.swaps.deployment.operated

    @property
    def made(self) -> list[Any]:
        """The service of each deployment."""
        return [one.operated for one in self.kind.made]

    async def infer(self, *numbers: int) -> Any:
        return await self.kind.infer(self.swaps.deployment, *numbers)

    @property
    def told(self) -> str:
        return str(self.metrics.text().decode())


class OfKind:
    """What a world changes of its kind; `fails` has what making the next deployment raises."""

    def __init__(self) -> None:
        self.made: list[Deployment[Any]] = []
        self.fails: list[Exception] = []

    def deploy(self, task: Any, shared: Any, journal: Journal, before: Any = None) -> Any:
        if self.fails:
            raise self.fails.pop()
        self.made.append(self.make(task, shared, journal, before))
        return self.made[-1]

    def make(self, task: Any, shared: Any, journal: Journal, before: Any) -> Any:
        raise NotImplementedError


class LosingBackend(EmulatedBackend):
    """Loses workers once it is started; keeps the batches of a replica back that it `holds`."""

    replicas_to_lose: list[int]
    holds = -1
    """The replica whose batches do not begin before `let_go`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.held: list[Batch] = []

    def run(self, batch: Batch) -> None:
        if batch.replica == self.holds:
            self.held.append(batch)
        else:
            super().run(batch)

    def let_go(self) -> None:
        self.holds = -1
        while self.held:
            self.run(self.held.pop(0))

    async def start(self, events: BatchEvents) -> None:
        await super().start(events)
        for replica in self.replicas_to_lose:
            self.lose(replica)


class LosingRows(OfKind, ServedRows):
    def __init__(self, refines: Sequence[str] = (), edge_qps: float = 50.0) -> None:
        """Plans that `refines` names refine their rows; the others have two gears."""
        super().__init__()
        self._refines, self._edge_qps = refines, edge_qps
        self.lose: list[int] = []
        """Replicas that the next deployment loses as soon as it has started."""

    async def write(self, folder: Path) -> None:
        profile = write_profile(little_profile(), folder / "profile")
        for name in ("plan.json", "other.json"):
            gears = two_gear_plan(profile.sha256, edge_qps=self._edge_qps)
            write_plan(refining_plan(profile.sha256) if name in self._refines else gears, folder / name)

    def make(self, task: ServingTask, shared: Any, journal: Journal, before: Any) -> RowsDeployment:
        backend = LosingBackend(task.tables, task.plan, task.profile)
        backend.replicas_to_lose = self.lose.copy()
        rules = DeadlineRules(task.tables, task.run_ns, late="answer") if self._refines else None
        metrics = shared.metrics if before is None else None
        service = Service(task.tables, backend, clock=shared.clock, journal=journal, metrics=metrics, deadlines=rules)
        return RowsDeployment(task, service)

    def read(self, path: Path) -> ServingTask:
        task = read_task(path, "emulated")
        return of_this_machine(task) if self.made else task

    async def end(self) -> None:
        """Nothing is left."""

    def lose_one(self, world: World) -> None:
        """Have the next plan find a replica that does not answer."""
        self.lose.append(0)

    async def infer(self, deployment: RowsDeployment, *numbers: int) -> Any:
        answer = await deployment.operated.pipelines["sums"].infer({"sample": np.array(numbers)})
        return answer.outputs["label"].tolist()  # type: ignore[index]


def of_this_machine(task: ServingTask) -> ServingTask:
    """The task as if its models took memory here, a MiB for each replica."""
    operator = task.operators["sums"]
    curves = tuple(msgspec.structs.replace(curve, memory_bytes=1 << 20) for curve in operator.profile.curves)
    measured = replace(operator, profile=replace(operator.profile, curves=curves))
    return replace(task, backend="local", operators={"sums": measured})


class EnginesHere(OfKind, ServedLanguage):
    """Engines are emulated in this process, at URLs that the project names."""

    project = Path()

    def __init__(self) -> None:
        super().__init__()
        profile = self.profile = language_profile(step_s=(0.0005, 0.001), output_tokens=10)
        self.engines = [EmulatedEngine(profile, one) for one in profile.engines]

    async def write(self, folder: Path) -> None:
        first = write_language_plan(folder, [SMALL_ALONE], profile=self.profile)
        sha256 = read_plan(first).profile.sha256
        write_plan(language_plan([ALONE], profile_sha256=sha256), folder / "other.json")
        ports = [await one.start() for one in self.engines]
        models = "".join(
            f'[models.{one.name}.engine]\nmodel = "{one.name}"\ndevice_kind = "remote"\n'
            f'url = "http://127.0.0.1:{port}/v1"\n'
            for one, port in zip(self.engines, ports, strict=True)
        )
        self.project = folder / "gearshift.toml"
        self.project.write_text(f'operator = "chat"\nprompts = "prompts.jsonl"\n{models}')

    async def end(self) -> None:
        for one in self.engines:
            await one.stop()

    def read(self, path: Path) -> LanguageTask:
        return read_language_task(path, "local", project_path=self.project)

    def make(self, task: LanguageTask, shared: Any, journal: Journal, before: Any) -> LanguageDeployment:
        return LanguageDeployment(task, shared, journal, before)

    def lose_one(self, world: World) -> None:
        world.swaps.deployment.all[1].is_lost = True  # type: ignore[attr-defined]

    async def infer(self, deployment: LanguageDeployment, *numbers: int) -> list[str]:
        readings = [Reading() for _ in numbers]
        for number, reading in zip(numbers, readings, strict=True):
            submit_to(deployment.operated, number, reading)
        for reading in readings:
            await reading.over.wait()
        return [reading.text.partition(" ")[0].replace(":", "-") for reading in readings]


KINDS: dict[str, Callable[[], Any]] = {"rows": LosingRows, "tokens": EnginesHere}


def shared_by(kind: Any, task: Any, settings: ServerSettings, journal: Journal, **more: Any) -> Shared[Any]:
    """What a server's deployments share."""
    return Shared(
        settings=settings,
        metrics=kind.metrics(task),
        times=SendingTimes(),
        journal=RecentEvents(journal),
        tracing=None,
        clock=WallClock(),
        unsent=Unsent(),
        **more,
    )


def in_world(kind: Any, folder: Path, use: Callable[[World], Awaitable[None]], *, started: bool = True) -> list[Any]:
    """What the journal says after `use`; `other.json` may take the place of `plan.json`."""
    journal = JournalFile(folder / "journal.jsonl")

    async def main() -> None:
        await kind.write(folder)
        task = kind.read(folder / "plan.json")
        shared = shared_by(kind, task, ServerSettings(plans=str(folder)), journal)
        first = kind.deploy(task, shared, journal)
        control = Control(first.operated, task.served)
        swaps = Swaps(kind, control, first, shared, read=kind.read, keep_to=lambda _: None)
        if started:
            await first.start()
            first.serve()
        try:
            async with asyncio.timeout(LONGEST_S):
                await use(World(control, swaps, shared.metrics, kind))
        finally:
            await swaps.stop()
            await kind.end()

    with closing(journal), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
