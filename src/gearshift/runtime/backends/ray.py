"""Workers as actors of a Ray cluster, on its nodes; requests reach them over TCP."""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Unpack

import gearshift
from gearshift.errors import GearshiftError, InvalidInput, NotReady, WorkerDied, require
from gearshift.gear import GearPlan
from gearshift.hardware import Device, is_cuda, is_remote
from gearshift.plans.plan_tables import PlanTables
from gearshift.runtime.backends.base import BatchEvents, all_ended
from gearshift.runtime.backends.workers_backend import LONGEST_STOP_S, DeviceSet, WorkersBackend, WorkersOptions
from gearshift.runtime.wire.messages import Hello, Load, Loaded, Stop
from gearshift.runtime.wire.transport import FrameProtocol
from gearshift.runtime.wire.worker_link import SENT, OnDone, OnEnd, WorkerLink
from gearshift.runtime.workers.ray_cluster import Address, Bundle, Cluster, Place, end_server, keep_signals
from gearshift.runtime.workers.tcp import SECRET_BYTES, Listener
from gearshift.runtime.workers.worker_process import thread_settings

LEAST_CPU = 0.001
LOST = "lost its connection, as its process or its node has ended"
STARTED_ANEW = "was started anew by Ray"

log = logging.getLogger(__name__)

# Devices as Ray's resources ------------------------------------------------------------------------------------------


def places_of(sets: Sequence[DeviceSet]) -> tuple[list[Bundle], list[Place]]:
    """The bundles to reserve, one per node of the plan, and each worker's place in them.

    A bundle has the cores and CUDA devices of the node's devices; for each device of a kind other
    than `cpu`, `cuda` and `remote`, also one unit of the resource named like the kind. Raises
    `InvalidInput` for a worker on devices of two nodes, and for a CUDA device with two workers.
    """
    devices = list(dict.fromkeys(device for one in sets for device in one.devices))
    nodes = list(dict.fromkeys(device.node for device in devices))
    cores: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        taken = 0
        for device in devices:
            if device.node == node:
                cores[device.id] = tuple(range(taken, taken + device.own_cores))
                taken += device.own_cores
    _require_own_cuda(sets)
    places = []
    for one in sets:
        of_nodes = {device.node for device in one.devices}
        require(len(of_nodes) == 1, f"a replica spans devices of the nodes {sorted(of_nodes)}", remedy="plan anew")
        own = tuple(core for device in one.devices for core in cores[device.id])
        places.append(
            Place(
                bundle=nodes.index(one.devices[0].node),
                cores=own,
                gpus=sum(is_cuda(device.kind) for device in one.devices),
                environment=thread_settings(len(own)),
            )
        )
    return [_bundle([device for device in devices if device.node == node]) for node in nodes], places


def _bundle(devices: Sequence[Device]) -> Bundle:
    wanted: dict[str, float] = {"CPU": sum(device.own_cores for device in devices) or LEAST_CPU}
    for device in devices:
        if is_cuda(device.kind):
            wanted["GPU"] = wanted.get("GPU", 0) + 1
        if device.kind not in ("cpu", "cuda") and not is_remote(device.kind):
            wanted[device.kind] = wanted.get(device.kind, 0) + 1
    return wanted


def _require_own_cuda(sets: Sequence[DeviceSet]) -> None:
    seen: set[str] = set()
    for one in sets:
        for device in one.devices:
            require(
                not (is_cuda(device.kind) and device.id in seen),
                f"CUDA device {device.id!r} belongs to replicas on different sets of devices",
                remedy="Ray gives a GPU to one worker alone: plan so that sets are equal or apart, or serve locally",
            )
            seen.add(device.id)


# The backend ---------------------------------------------------------------------------------------------------------


class RayBackend(WorkersBackend):
    """Runs batches in actors that Ray places, watches and restarts.

    Devices of one plan node are on one node of `cluster`, those of different plan nodes on
    different ones. Workers connect to `advertise_host`, by default this machine's address in the
    cluster, and find `project` at the same path. A worker whose process or node is lost returns
    when Ray has restarted it, on any node with room.
    """

    def __init__(
        self,
        tables: PlanTables,
        plan: GearPlan,
        *,
        cluster: Cluster,
        advertise_host: str | None = None,
        **options: Unpack[WorkersOptions],
    ) -> None:
        super().__init__(tables, plan.hardware, **options)
        self._cluster, self._advertise_host = cluster, advertise_host
        self._bundles, places = places_of([slot.devices for slot in self._slots])
        secret = secrets.token_bytes(SECRET_BYTES)
        self._seats = [Seat(number, place, cluster, secret) for number, place in enumerate(places)]
        self._listener = Listener(secret, self._arrived)

    async def start(self, events: BatchEvents) -> None:
        """Reserve devices and start all workers; raises `GearshiftError`, nothing left running."""
        try:
            host = await asyncio.to_thread(self._cluster.open, self._bundles)
            keep_signals()
            router = await self._listener.start(self._advertise_host or host)
        except BaseException:
            await self.stop()
            raise
        for seat in self._seats:
            seat.router = router
        await super().start(events)

    async def stop(self) -> None:
        await super().stop()
        self._listener.close()
        for seat in self._seats:
            seat.close()
        await asyncio.to_thread(self._cluster.close)
        await all_ended(seat.until_given_back(LONGEST_STOP_S) for seat in self._seats)

    def _make_worker(self, devices: DeviceSet, on_done: OnDone, on_end: OnEnd, probe_s: float) -> "RayWorker":
        return RayWorker(self._seats[devices.number], on_done=on_done, on_end=on_end, probe_s=probe_s)

    def _arrived(self, hello: Hello, protocol: FrameProtocol) -> None:
        if 0 <= hello.worker < len(self._seats):
            self._seats[hello.worker].arrive(hello, protocol)
        else:
            protocol.abort()


class Seat:
    """The part of a worker that stays while Ray moves it: its actor and its last connection."""

    def __init__(self, number: int, place: Place, cluster: Cluster, secret: bytes) -> None:
        self._number, self._place, self._cluster, self._secret = number, place, cluster, secret
        self.router: Address = ("", 0)
        self._ended: asyncio.Future[int] | None = None
        self._arrived: tuple[Hello, FrameProtocol] | None = None
        self._news = asyncio.Event()
        self._occupant: RayWorker | None = None

    async def connection(self, occupant: "RayWorker") -> tuple[Hello, FrameProtocol]:
        """The worker's next connection, from a new actor if needed; raises `WorkerDied`."""
        if self._ended is None or self._ended.done():
            if self._ended is not None:
                await self._require_cluster()
            ended = await asyncio.to_thread(self._cluster.start, self._number, self._place, self.router, self._secret)
            self._ended = asyncio.wrap_future(ended)
            self._ended.add_done_callback(self._actor_ended)
        while self._arrived is None:
            self._news.clear()
            await self._news.wait()
            if self._arrived is None and self._ended.done():
                error = None if self._ended.cancelled() else self._ended.exception()
                why, _, _ = str(error or "it ended").partition("\n")
                raise WorkerDied(f"Ray does not start a worker any more: {why}")
        (arrived, self._arrived), self._occupant = (self._arrived, None), occupant
        return arrived

    def arrive(self, hello: Hello, protocol: FrameProtocol) -> None:
        self.close()
        self._arrived = hello, protocol
        protocol.hand_over(lambda message, body: None, lambda: self._left(protocol))  # none come before `Load`
        self._news.set()
        if self._occupant is not None:
            self._occupant.end(STARTED_ANEW)

    def kill(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, self._cluster.restart, self._number)

    async def why_missing(self, longest_s: float) -> GearshiftError:
        if missing := await asyncio.to_thread(self._cluster.why_not_started):
            return NotReady(f"{missing}; waited {longest_s:g} s: add nodes, or plan for fewer devices")
        host, port = self.router
        return WorkerDied(
            f"no worker has connected to {host}:{port} within {longest_s:g} s; see Ray's logs of the actor, and have "
            "nodes reach this machine there (--advertise-host)"
        )

    def close(self) -> None:
        if self._arrived is not None:
            self._arrived[1].abort()
            self._arrived = None

    async def until_given_back(self, longest_s: float) -> None:
        """Wait until Ray reports the actor as gone, which it may never do."""
        if self._ended is not None:
            await asyncio.wait((self._ended,), timeout=longest_s)

    async def _require_cluster(self) -> None:
        """End the server if it has lost its place in the cluster; its supervisor restarts it."""
        if await asyncio.to_thread(self._cluster.has_lost_us):
            log.error("Ray on this machine is gone, and with it the server's place in the cluster; the server ends")
            end_server()

    def _actor_ended(self, ended: "asyncio.Future[int]") -> None:
        if not ended.cancelled():
            ended.exception()
        self._news.set()

    def _left(self, protocol: FrameProtocol) -> None:
        if self._arrived is not None and self._arrived[1] is protocol:
            self._arrived = None


class RayWorker:
    """The router's side of one connection of an actor, until it is lost or ended (`Worker`)."""

    def __init__(self, seat: Seat, *, on_done: OnDone, on_end: OnEnd, probe_s: float | None) -> None:
        self._seat, self._on_end = seat, on_end
        self.link = WorkerLink(on_done=on_done, stuck=self._stuck, probe_s=probe_s)
        self._hello: Hello | None = None
        self._protocol: FrameProtocol | None = None
        self._serving = False
        self._stopping = False
        self._gone = asyncio.Event()

    @property
    def pid(self) -> int:
        return 0 if self._hello is None else self._hello.pid

    async def start(self, load: Load, *, longest_s: float) -> list[Loaded]:
        """Wait for the worker to connect, without limit for one that is started again; then load.

        Raises `NotReady` if the cluster has no room, `ModelFailed`, `WorkerDied`, or
        `InvalidInput` if its node has another version of Gearshift.
        """
        try:
            async with asyncio.timeout(None if load.keep_others else longest_s):
                self._hello, self._protocol = await self._seat.connection(self)
        except TimeoutError:
            raise await self._seat.why_missing(longest_s) from None
        self._protocol.hand_over(self.link.received, self._disconnected)
        self.link.attach(self._protocol)
        try:
            self._require_version(self._hello)
            loaded = await self.link.load(load, longest_s=longest_s)
            if self._gone.is_set():
                raise WorkerDied("a worker ended right after it had loaded its models")
            self._serving = True
            self.link.watch()
            return loaded
        except BaseException:
            if not self._gone.is_set():
                self._seat.kill()
            self.end(LOST)
            raise

    async def stop(self, *, longest_s: float) -> None:
        """Ask the worker to end; after `longest_s`, it is killed with the cluster's actors."""
        self._stopping = True
        self.link.send(Stop())
        try:
            async with asyncio.timeout(longest_s):
                await self._gone.wait()
        except TimeoutError:
            self.end(LOST)

    def end(self, how: str) -> None:
        if self._gone.is_set():
            return
        self._gone.set()
        self.link.close()
        if self._protocol is not None:
            self._protocol.abort()
        loading = self.link.fail_loading(WorkerDied(f"a worker {how} while it loaded its models"))
        if not loading and self._serving and not self._stopping:
            self._on_end(how)

    def _disconnected(self) -> None:
        if self._protocol is not None and self._protocol.fault:
            self._stuck(SENT.format(self._protocol.fault))
        else:
            self.end(LOST)

    def _stuck(self, why: str) -> None:
        self._seat.kill()
        self.end(f"was killed ({why})")

    @staticmethod
    def _require_version(hello: Hello) -> None:
        if hello.version != gearshift.__version__:
            raise InvalidInput(
                f"the node at {hello.host} has gearshift {hello.version}, this machine {gearshift.__version__}",
                remedy="install the same on all nodes",
            )
