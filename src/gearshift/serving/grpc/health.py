"""Health as gRPC's own protocol has it (`grpc.health.v1.Health`): of the server, and of each of its services alike."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from gearshift.errors import UnknownModel
from gearshift.serving.grpc.health_pb2 import HealthCheckResponse, HealthListResponse

SERVICE = "grpc.health.v1.Health"
WHOLE_SERVER = ""
LOOK_S = 0.25
"""Interval at which changes are looked for while somebody watches."""


class Health:
    """What `ready` says of `services`, and of the server as a whole."""

    def __init__(self, ready: Callable[[], bool], services: Sequence[str]) -> None:
        self._ready, self._services = ready, (WHOLE_SERVER, *services)
        self._was_ready = False
        """When it was looked last, and so what all who watch have heard, or will."""
        self._changed = asyncio.Event()
        self._watchers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def check(self, service: str) -> HealthCheckResponse:
        """The status of `service`; raises `UnknownModel` where there is no such one."""
        if service not in self._services:
            raise UnknownModel(f"there is no service {service[:64]!r}; this server has {list(self._services)}")
        return self._status(service, self._ready())

    def list(self) -> HealthListResponse:
        """The status of each."""
        ready = self._ready()
        return HealthListResponse(statuses={service: self._status(service, ready) for service in self._services})

    async def watch(self, service: str, send: Callable[[HealthCheckResponse], Awaitable[None]]) -> None:
        """Send the status of `service` now, and again whenever it is another, until the server ends."""
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
        """Tell those who watch how it is now, and that this was all."""
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
