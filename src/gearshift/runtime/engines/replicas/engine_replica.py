"""One replica of a plan: an endpoint that is watched, and started again where Gearshift starts it."""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Literal, Protocol

from gearshift.errors import GearshiftError, ModelFailed
from gearshift.runtime.engines.replicas.engine_process import EngineProcess, is_taken
from gearshift.runtime.engines.replicas.identity import LISTED, lacks, listed_as
from gearshift.runtime.engines.replicas.reach import open_at
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.runtime.engines.upstream.link import EngineLink

Health = Literal["healthy", "busy", "unreachable", "refusing", "other"]
"""`other`: an endpoint with other models answers there."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
"""Between attempts to reach an endpoint, or to start one."""
MOST_START_PROBE_S = 2.0
OPEN_TO_OTHERS = (
    "the engine of replica %r listens at %s too, port %d, where other machines may reach it past this server; let its "
    "command listen on the loopback alone, such as by --host 127.0.0.1"
)

log = logging.getLogger(__name__)


class OnChange(Protocol):
    def lost(self, replica: int) -> None: ...

    def found(self, replica: int, *, restarted: bool = False) -> None:
        """It is back; `restarted`: as another process."""
        ...

    def said(self, replica: int, what: str, value: str) -> None:
        """The engine has told something of itself, which should stay the same."""
        ...


class EngineReplica:
    """`name` is its model's at the endpoint.

    `make` makes the process to start, or None where the endpoint of `url` runs already. Services
    that have it `watch` it; while one is swapped for another, both do. Replicas of one `origin` are
    made alike, so that one may stand for another.
    """

    def __init__(
        self,
        id: str,
        name: str,
        *,
        url: str = "",
        make: Callable[[], EngineProcess] | None = None,
        key: str | None = None,
        longest_start_s: float = 300.0,
        longest_silence_s: float = 300.0,
        probe_s: float = 3.0,
        longest_probe_s: float = 10.0,
        origin: Hashable = None,
    ) -> None:
        self.id, self.name, self.origin = id, name, origin
        self._url, self._make, self._key = url, make, key
        self._longest_start_s, self._longest_silence_s = longest_start_s, longest_silence_s
        self._probe_s, self._longest_probe_s = probe_s, longest_probe_s
        self.process: EngineProcess | None = None
        self.link = self._new_link(url or "http://127.0.0.1:1/v1")
        self._services: dict[OnChange, int] = {}
        """With the replica's number in the tables of each."""
        self._suspected = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._listed = self._lacks = ""
        self.is_lost = False

    async def start(self) -> None:
        """Start the engine and wait until it answers; raises `ModelFailed`.

        Where its command ends and another process has its port, it is started on a second one.
        """
        try:
            await self._begin()
            why = await self._until_healthy()
            process = self.process
            if why and process is not None and process.ended.is_set() and is_taken(process.port):
                log.warning("port %d of replica %r is another's: it is started on a second", process.port, self.id)
                await self._begin()
                why = await self._until_healthy()
        except OSError as error:
            raise ModelFailed(f"the engine of replica {self.id!r} cannot be started: {error}") from None
        if why:
            raise ModelFailed(f"the engine of replica {self.id!r} does not answer: {why}")
        if self.process is not None and (address := await open_at(self.process.port)):
            log.warning(OPEN_TO_OTHERS, self.id, address, self.process.port)

    def watch(self, service: OnChange, number: int) -> None:
        """Tell the service from now on when the replica, which has this number there, is lost or found."""
        self._services[service] = number
        service.said(number, LISTED, self._listed)
        if self.is_lost:
            service.lost(number)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._watch_for_ever())

    def leave(self, service: OnChange) -> None:
        """Tell the service nothing more."""
        self._services.pop(service, None)

    @property
    def is_watched(self) -> bool:
        return bool(self._services)

    def suspect(self, fault: Fault) -> None:
        """It could not be reached: it counts as lost until it answers."""
        if not self.is_lost:
            log.warning("replica %r: %s", self.id, fault.reason)
        self._lose()
        self._suspected.set()

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
        self.link.close()
        if self.process is not None:
            await self.process.stop()

    # Watching ------------------------------------------------------------------------------------

    async def _watch_for_ever(self) -> None:
        """Watch again after whatever goes wrong in watching; the same is logged once."""
        logged = ""
        while True:
            try:
                await self._keep_watching()
            except Exception as error:
                if repr(error) != logged:
                    logged = repr(error)
                    log.exception("fault while replica %r was watched; watching goes on", self.id)
            await asyncio.sleep(self._probe_s)

    async def _keep_watching(self) -> None:
        while True:
            health = await self._until_suspect()
            if health in ("healthy", "refusing", "other"):  # `said` has told of another
                self._find()
                continue
            self._lose()
            restarts = self.process is not None
            if restarts:
                await self._restart()
            else:
                self.link.fail_all(Fault(f"{self.link.url} does not answer"))
                await self._until_back()
            self._find(restarted=restarts)

    async def _until_suspect(self) -> Health:
        """Wait until the process has ended, somebody suspects the endpoint, or it answers no probe; its health then."""
        while True:
            ended = None if self.process is None else asyncio.ensure_future(self.process.ended.wait())
            suspected = asyncio.ensure_future(self._suspected.wait())
            waits = {one for one in (ended, suspected) if one is not None}
            await asyncio.wait(waits, timeout=self._probe_s, return_when=asyncio.FIRST_COMPLETED)
            for one in waits:
                one.cancel()
            if self.process is not None and self.process.ended.is_set():
                return "unreachable"
            if self._suspected.is_set():
                return await self._health()
            if not self.link.heard_within(self._probe_s) and (health := await self._health()) != "healthy":
                return health

    async def _restart(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            self.link.fail_all(Fault(f"the engine of replica {self.id!r} is gone"))
            if self.process is not None:
                log.warning("the engine of replica %r is started again: %s", self.id, self.process.said or "it is gone")
                await self.process.stop()
            try:
                await self._begin()
                why = await self._until_healthy()
            except (GearshiftError, OSError) as error:
                why = str(error)
            if not why:
                return
            log.error("the engine of replica %r does not start: %s", self.id, why)
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    async def _until_back(self) -> None:
        pause_s = FIRST_PAUSE_S
        while await self._health() not in ("healthy", "other"):
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S / 10, 2 * pause_s)

    def _lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._tell("lost")

    def _find(self, *, restarted: bool = False) -> None:
        self._suspected.clear()
        if self.is_lost:
            self.is_lost = False
            self._tell("found", restarted=restarted)

    def _tell(self, what: Literal["lost", "found"], *, restarted: bool = False) -> None:
        """Tell all services, also where one raises."""
        for service, number in list(self._services.items()):
            try:
                if what == "lost":
                    service.lost(number)
                else:
                    service.found(number, restarted=restarted)
            except Exception:
                log.exception("fault when replica %r was %s", self.id, what)

    # Starting ------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        if self._make is None:
            return
        process = self._make()
        await process.start()
        self.process = process
        self.link.fail_all(Fault(f"the engine of replica {self.id!r} is another now"))
        self.link.close()
        self.link = self._new_link(f"http://127.0.0.1:{process.port}/v1")

    def _new_link(self, url: str) -> EngineLink:
        return EngineLink(url, key=self._key, longest_silence_s=self._longest_silence_s)

    async def _until_healthy(self) -> str:
        """Empty as soon as the engine answers; else why it does not.

        While a command loads its model, another server may answer on its port, until it ends.
        """
        due_s, pause_s, health = time.monotonic() + self._longest_start_s, FIRST_PAUSE_S, "unreachable"
        was_told = False
        while time.monotonic() < due_s:
            if self.process is not None and self.process.ended.is_set():
                return f"its command has ended; it said: {self.process.said or 'nothing'}"
            health = await self._health(min(MOST_START_PROBE_S, self._longest_probe_s))
            if health == "healthy":
                return ""
            if health == "refusing":
                return "it takes no request with this key; name its own by api_key_env, or give its command {api_key}"
            if health == "other":
                why = f"{self.link.url} has another model: {self._lacks}"
                if self.process is None:
                    return why
                if not was_told:
                    was_told = True
                    log.warning(
                        "%s; replica %r waits %g s for its own: if that is its engine, set its model to a name that is "
                        "listed, or give its command the name",
                        *(why, self.id, self._longest_start_s),
                    )
            elif self.process is None and not was_told:
                was_told = True
                log.warning(
                    "%s of replica %r is %s, and is waited for, up to %g s: start it, or mend its url",
                    *(self.link.url, self.id, health, self._longest_start_s),
                )
            await asyncio.sleep(pause_s)
            pause_s = min(1.0, 2 * pause_s)
        said = f": {self._lacks}" if health == "other" else ""
        said += "" if self.process is None else f"; it said: {self.process.said or 'nothing'}"
        return f"{self.link.url} is {health} after {self._longest_start_s:g} s{said}"

    async def _health(self, longest_s: float | None = None) -> Health:
        """Ask for its models; any answer but of a server that is still loading tells that one is there.

        A list without its model is another's; one that is empty, or cannot be read, tells nothing.
        """
        answer: asyncio.Future[Fault | None] = asyncio.get_running_loop().create_future()
        call = self.link.get("/models", _Probe(answer))
        try:
            async with asyncio.timeout(longest_s or self._longest_probe_s):
                fault = await answer
        except TimeoutError:
            return "busy"
        finally:
            call.cancel()
        if fault is None:
            return "healthy"
        self._lacks = lacks(fault.body, self.name) if fault.status == 200 else ""
        if fault.status == 200:
            self._listed = self._lacks or listed_as(fault.body, self.name)
            for service, number in list(self._services.items()):
                service.said(number, LISTED, self._listed)
        if fault.status in (401, 403):
            return "refusing"
        if fault.status == 0:
            return "unreachable"
        if self._lacks:
            return "other"
        return "healthy" if fault.status < 500 else "busy"


class _Probe:
    """A `Listener` that waits for an answer of any kind."""

    def __init__(self, answer: "asyncio.Future[Fault | None]") -> None:
        self._answer = answer

    def event(self, data: bytes) -> None:
        pass

    def ended(self) -> None:
        self._set(None)

    def failed(self, fault: Fault) -> None:
        self._set(fault)

    def _set(self, fault: Fault | None) -> None:
        if not self._answer.done():
            self._answer.set_result(fault)
