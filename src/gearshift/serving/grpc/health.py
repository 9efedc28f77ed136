"""gRPC's health protocol (`grpc.health.v1.Health`), for the server and each of its services."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from gearshift.errors import UnknownModel
from gearshift.serving.grpc.health_pb2 import HealthCheckResponse, HealthListResponse

SERVICE = "grpc.health.v1.Health"
WHOLE_SERVER = ""
LOOK_S = 0.25
"""Interval at which readiness is checked while a client watches."""


class Health:
    """The status of the server and of each of `services`, from `ready`."""

    def __init__(self, ready: Callable[[], bool], services: Sequence[str]) -> None:
        self._ready, self._services = ready, (WHOLE_SERVER, *services)
        self._was_ready = False
        """Readiness at the last check, which watchers have received or will receive."""
        self._changed = asyncio.Event()
        self._watchers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def check(self, service: str) -> HealthCheckResponse:
        """Return the status of `service`; raises `UnknownModel` if it does not exist."""
        if service not in self._services:
            raise UnknownModel(f"there is no service {service[:64]!r}; this server has {list(self._services)}")
        return self._status(service, self._ready())

    def list(self) -> HealthListResponse:
        ready = self._ready()
        return HealthListResponse(statuses={service: self._status(service, ready) for service in self._services})

    async def watch(self, service: str, send: Callable[[HealthCheckResponse], Awaitable[None]]) -> None:
        """Send the status of `service` now and after each change, until the server ends."""
        said = None
        self._watchers += 1
        try:
            self._look_again()
            while True:
                status = self._status(service, self._was_ready)
                if status != said:
                    await send(status)
                    said = status
                elif self._ended:
                    return
                else:
                    await self._changed.wait()
        finally:
            self._watchers -= 1

    def end(self) -> None:
        self._ended = True
        self._wake()

    def _status(self, service: str, ready: bool) -> HealthCheckResponse:
        if service not in self._services:
            return HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        serving = ready and not self._ended
        return HealthCheckResponse(status=HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING)

    def _look_again(self) -> None:
        ready = self._ready()
        if ready != self._was_ready:
            self._was_ready = ready
            self._wake()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._watchers and not self._ended:
            self._look_again()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
