"""Serve a plan within this process, without sockets, to measure the router's cost."""

import asyncio
import time
from typing import Any

import msgspec

from gearshift.clock import to_ns
from gearshift.errors import GearshiftError, NoAnswer
from gearshift.load_generator.targets import ITEMS, MODEL, STAGE, Counters, Reply, Sending, answered_with, counters_in
from gearshift.model import Arrays
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.serving.door.deadline_headers import deadline_ns_of
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.rows.assembly import make_service
from gearshift.serving.rows.task import ServingTask


class InProcessServer:
    """The service of a plan, with the server's default bounds, on the load generator's event loop.

    Lateness affects both: the generator's lateness shows how long the router blocked the loop.
    """

    def __init__(self, task: ServingTask) -> None:
        self._metrics = Metrics([each.name for each in task.signatures])
        self.service = make_service(task, ServerSettings(), self._metrics, Journal())
        self._started = self._stopped = False

    async def start(self) -> None:
        """Load the models, unless that is done; raises `ModelFailed` or `WorkerDied` too."""
        if not self._started:
            self._started = True
            await self.service.start()

    async def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            await self.service.stop()

    def counters(self) -> Counters:
        return counters_in(self._metrics.text().decode())


class InProcessTarget:
    """One pipeline of a server in this process."""

    def __init__(self, server: InProcessServer, name: str, output: str, sending: Sending) -> None:
        self._server, self._pipeline = server, server.service.pipelines[name]
        self._output, self._sending = output, sending
        self.where = f"{name} in this process"
        self.encoded_deadline_s: float | None = None

    async def open(self) -> None:
        await self._server.start()

    def encode(self, inputs: Arrays) -> Arrays:
        return inputs

    async def exchange(
        self, request: Arrays, within_s: float, sent_unix_s: float | None = None, deadline_s: float | None = None
    ) -> Reply:
        """Send to the service; its errors become the HTTP statuses."""
        sending, pipeline = self._sending, self._pipeline
        now_ns = pipeline.now_ns()
        sent_ns = None if sent_unix_s is None else now_ns - to_ns(max(0.0, time.time() - sent_unix_s))
        deadline_ns = deadline_ns_of(sent_ns, now_ns, round(1e6 * (deadline_s or sending.deadline_s or 0)))
        try:
            async with asyncio.timeout(within_s):
                answer = await pipeline.infer(
                    request, priority=sending.priority, deadline_ns=deadline_ns, sent_ns=sent_ns
                )
        except TimeoutError:
            raise NoAnswer("no answer in time") from None
        except GearshiftError as error:
            return Reply(error.http_status, str(error))
        if answer.outcome == "failed":
            return Reply(500, answer.reason)
        row = answer.rows[0]
        outputs: Any = answer.outputs
        values = {name: array.reshape(-1).tolist() for name, array in outputs.items()}
        values |= {MODEL: [row.model], STAGE: [row.stage]}
        if self._output == ITEMS:
            values[ITEMS] = [msgspec.json.encode(answer.items)]
        return answered_with(
            values, self._output, gear=answer.gear, outcome=answer.outcome, where=self.where, reason=answer.reason
        )

    async def counters(self) -> Counters:
        return self._server.counters()

    async def close(self) -> None:
        await self._server.stop()
