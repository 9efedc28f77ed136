"""A server of `two_tasks` over emulated devices, and how it is asked."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.runtime.service.service import Service
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.http.application import Application
from gearshift.serving.http.handlers import Handlers
from gearshift.serving.operate.control import Control
from gearshift.serving.rows.assembly import make_service
from gearshift.serving.rows.task import ServingTask, read_task
from tests.two_tasks import write_two_tasks
from tests.unit.serving.http.test_application import Server

LONGEST_S = 20.0
SETTINGS = ServerSettings(largest_body_bytes=1 << 20)


class SeveralServer(Server):
    """What `Server` is, for both pipelines."""

    def __init__(self, handler: Any, service: Service, control: Control, task: ServingTask, metrics: Metrics) -> None:
        super().__init__(handler, service, None)  # type: ignore[arg-type]
        self.control, self.task, self.metrics = control, task, metrics


def serve_several(folder: Path, use: Callable[[SeveralServer], Awaitable[Any]], **options: Any) -> Any:
    """The result of `use` on a server of both tasks, which shifts gears only if it is told to."""

    async def main() -> Any:
        task = read_task(write_two_tasks(folder, edge_qps=1e6), "emulated")
        metrics = Metrics([each.name for each in task.signatures])
        service = make_service(task, SETTINGS, metrics, Journal())
        control = Control(service, task.served)
        handlers = Handlers(control, task.signatures, largest_body_bytes=1 << 20, metrics=metrics)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                return await use(SeveralServer(Application(handlers, **options), service, control, task, metrics))
        finally:
            await service.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())
