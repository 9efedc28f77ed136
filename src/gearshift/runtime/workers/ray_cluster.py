"""The requests to Ray: reserve the plan's devices, and keep one actor alive per worker."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from gearshift.errors import InvalidInput, require
from gearshift.observability.logs import LogSettings, logging_to_stderr, settings_in_force
from gearshift.runtime.wire.transport import EndOfStream
from gearshift.support.extras import load_extra
from gearshift.support.processors import pin as pin_process
from gearshift.support.processors import processors_of

WHERE = "--backend ray"
LONGEST_KNOCK_S = 5.0
LONGEST_NOTE = 500

log = logging.getLogger(__name__)

Address = tuple[str, int]
Bundle = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A worker's bundle, its cores on the node, and its number of GPUs.

    `cores` count from the node's highest-numbered processor downward.
    """

    bundle: int
    cores: tuple[int, ...] = ()
    gpus: int = 0
    environment: Mapping[str, str]


class Cluster(Protocol):
    """The part of Ray that the backend uses; all calls may block, and are made from any thread."""

    def open(self, bundles: Sequence[Bundle]) -> str:
        """Reserve `bundles`, one node each; this machine's address. Raises `InvalidInput`."""
        ...

    def start(self, worker: int, place: Place, router: Address, secret: bytes) -> "Future[int]":
        """Start a worker's actor, replacing an earlier one; the future ends if Ray gives it up."""
        ...

    def restart(self, worker: int) -> None: ...

    def why_not_started(self) -> str:
        """The resources that the workers lack, as a sentence; empty if none."""
        ...

    def has_lost_us(self) -> bool:
        """Whether Ray counts this process's node as dead, so that nothing it starts would live."""
        ...

    def close(self) -> None:
        """End all actors and give the bundles back; may be called twice."""
        ...


class RayCluster:
    """A Ray cluster at `address` ("auto", or host:port), which this process joins as a driver.

    The connection stays until the process ends, because Ray has one per process; cluster objects
    share it.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._ray: Any = None
        self._group: Any = None
        self._actors: dict[int, Any] = {}
        self._closed = False
        self._lock = threading.Lock()

    def open(self, bundles: Sequence[Bundle]) -> str:
        ray = load_extra("ray", extra="ray", where=WHERE)
        if not ray.is_initialized():
            self._connect(ray)
        from ray.util import get_node_ip_address
        from ray.util.placement_group import placement_group

        strategy = "STRICT_SPREAD" if len(bundles) > 1 else "STRICT_PACK"
        with self._lock:
            self._ray = ray
            if not self._closed:  # closed if the server was ended while it connected
                self._group = placement_group([dict(bundle) for bundle in bundles], strategy=strategy)
        return str(get_node_ip_address())

    def _connect(self, ray: Any) -> None:
        knock(self._address)
        logging.getLogger("ray").setLevel(logging.ERROR)  # else it warns that it leaves SIGTERM to us
        keep_off_standard_output()
        try:
            ray.init(address=self._address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InvalidInput(
                f"cannot join the Ray cluster at {self._address!r} ({error})",
                where=WHERE,
                remedy="start Ray on this machine (`ray start`), as a part of the cluster, and name its head's address",
            ) from error

    def start(self, worker: int, place: Place, router: Address, secret: bytes) -> "Future[int]":
        """See `Cluster`; Ray restarts the actor without limit, and calls `serve` each time."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        with self._lock:
            require(self._group is not None, "the cluster is closed", where=WHERE)
            self._kill(worker)
            here = PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=place.bundle
            )
            actor_class = self._ray.remote(
                num_cpus=0,  # the bundle holds the cores; workers on overlapping device sets share them
                num_gpus=place.gpus,
                max_restarts=-1,
                max_task_retries=-1,
                scheduling_strategy=here,
                runtime_env={"env_vars": dict(place.environment)},
            )(WorkerActor)
            actor = self._actors[worker] = actor_class.remote()
            ended: Future[int] = actor.serve.remote(router, worker, secret, place.cores, settings_in_force()).future()
            return ended

    def restart(self, worker: int) -> None:
        with self._lock:
            if worker in self._actors:
                self._ray.kill(self._actors[worker], no_restart=False)

    def why_not_started(self) -> str:
        with self._lock:
            if self._group is None:
                return ""
            from ray.util import placement_group_table

            if placement_group_table(self._group)["state"] == "CREATED":
                return ""
            wanted, free = self._group.bundle_specs, self._ray.available_resources()
        free = {name: amount for name, amount in free.items() if ":" not in name and "memory" not in name}
        return f"Ray has no nodes free with {wanted}, one for each; free in the whole cluster are {free}"

    def has_lost_us(self) -> bool:
        here = self._ray.get_runtime_context().get_node_id()
        return any(node["NodeID"] == here and not node["Alive"] for node in self._ray.nodes())

    def close(self) -> None:
        with self._lock:
            self._closed = True
            group, self._group = self._group, None
            if group is None or not self._ray.is_initialized():
                return
            for worker in tuple(self._actors):
                self._kill(worker)
            from ray.util import remove_placement_group

            remove_placement_group(group)

    def _kill(self, worker: int) -> None:
        if (actor := self._actors.pop(worker, None)) is not None:
            self._ray.kill(actor, no_restart=True)


def keep_off_standard_output() -> None:
    """Log Ray's messages at debug level: Ray prints them, and has no setting for it."""
    module = import_module("ray._private.worker")
    if hasattr(module, "print_to_stdstream"):

        def tell(data: Mapping[str, Any], *_: object, **__: object) -> None:
            log.debug("Ray: %s", " ".join(data["lines"])[:LONGEST_NOTE])

        vars(module)["print_to_stdstream"] = tell


def keep_signals() -> None:
    """Undo Ray's signal handlers, which print a stack at an orderly end; main thread only."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.getsignal(number))


def end_server() -> None:
    """End the server at once but in order, with status 1, as two signals do."""
    for _ in range(2):
        signal.raise_signal(signal.SIGTERM)


def knock(address: str) -> None:
    """Raise `InvalidInput` if nobody listens at `address`; Ray would take minutes for it."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    require(
        bool(host) and "/" not in host and port.isdecimal(),
        f"the cluster's address is {address!r}",
        where=WHERE,
        remedy="give --address auto, or HOST:PORT of Ray's head",
    )
    try:
        socket.create_connection((host.strip("[]"), int(port)), LONGEST_KNOCK_S).close()
    except (OSError, OverflowError) as error:
        raise InvalidInput(
            f"no Ray cluster answers at {address} ({error})", where=WHERE, remedy="start its head, or correct --address"
        ) from error


# On the node ---------------------------------------------------------------------------------------------------------


class WorkerActor:
    """A worker as a Ray actor: models run in the actor's process, requests arrive over TCP."""

    def serve(self, router: Address, worker: int, secret: bytes, cores: tuple[int, ...], logs: LogSettings) -> int:
        """Work for the router until `Stop`; end the process, for Ray to restart, if it is lost."""
        from gearshift.runtime.workers.tcp import serve_router

        pin(cores)
        with logging_to_stderr(logs, process="worker"):
            try:
                return serve_router(router, worker, secret)
            except (EndOfStream, OSError):
                os._exit(1)


def pin(cores: Sequence[int]) -> None:
    """Pin to these processors, counted from the highest; not at all if there are too few."""
    available = sorted(processors_of(), reverse=True)
    if cores and max(cores) < len(available):
        pin_process({available[core] for core in cores})
