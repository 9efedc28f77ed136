"""A stand-in for Ray: what `gearshift.runtime.workers.ray_cluster.Cluster` asks for, of processes on this machine.

It takes seconds less than Ray, which the long tests start.  Its nodes are numbers; a worker runs the very actor that
Ray would, in a process that is started again when it ends, on another node where its own is lost.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from gearshift.runtime.workers.ray_cluster import Address, Bundle, Place

ACTOR = """
import sys
from gearshift.observability.logs import LogSettings
from gearshift.runtime.workers.ray_cluster import WorkerActor
router = sys.argv[1], int(sys.argv[2])
worker, secret, cores = int(sys.argv[3]), bytes.fromhex(sys.argv[4]), tuple(map(int, sys.argv[5:]))
sys.exit(WorkerActor().serve(router, worker, secret, cores, LogSettings()))
"""


@dataclass(eq=False)
class _Actor:
    place: Place
    command: list[str]
    ended: "Future[int]" = field(default_factory=Future)
    node: int = -1
    process: subprocess.Popen[bytes] | None = None
    wanted: bool = True


class StandInCluster:
    """`nodes` nodes, each with room for one bundle."""

    def __init__(self, nodes: int = 1) -> None:
        self._alive = [True] * nodes
        self._node_of: dict[int, int] = {}
        self._actors: dict[int, _Actor] = {}
        self._threads: list[threading.Thread] = []
        self._doubles: list[subprocess.Popen[bytes]] = []
        self._changed = threading.Condition()
        self.bundles: Sequence[Bundle] = ()
        self.lost_us = False

    def open(self, bundles: Sequence[Bundle]) -> str:
        self.bundles = bundles
        return "127.0.0.1"

    def start(self, worker: int, place: Place, router: Address, secret: bytes) -> "Future[int]":
        words = (router[0], router[1], worker, secret.hex(), *place.cores)
        actor = _Actor(place, [sys.executable, "-c", ACTOR, *map(str, words)])
        self._end(worker)
        self._actors[worker] = actor
        thread = threading.Thread(target=self._keep, args=(actor,), daemon=True)
        thread.start()
        self._threads.append(thread)
        return actor.ended

    def restart(self, worker: int) -> None:
        self._signal(self._actors[worker], signal.SIGKILL)

    def why_not_started(self) -> str:
        return "" if self._has_room() else f"the stand-in has no nodes free with {self.bundles}"

    def has_lost_us(self) -> bool:
        return self.lost_us

    def close(self) -> None:
        for worker in tuple(self._actors):
            self._end(worker)
        for thread in self._threads:
            thread.join()
        for process in self._doubles:
            process.kill()
            process.wait()

    def lose(self, worker: int, number: signal.Signals = signal.SIGKILL) -> int:
        """The node on which the worker runs is lost, with a signal to its processes; the node's number."""
        node = self._actors[worker].node
        with self._changed:
            self._alive[node] = False
            self._node_of = {bundle: at for bundle, at in self._node_of.items() if at != node}
        for actor in self._actors.values():
            if actor.node == node:
                self._signal(actor, number)
        return node

    def add(self) -> None:
        """Another node joins."""
        with self._changed:
            self._alive.append(True)
            self._changed.notify_all()

    def start_twice(self, worker: int) -> None:
        """Start the worker's process once more beside the one that runs, as when that was only believed lost."""
        with self._changed:
            self._doubles.append(subprocess.Popen(self._actors[worker].command))

    def give_up(self, worker: int) -> None:
        """Start the worker's actor no more, as when somebody has killed it for good."""
        self._end(worker)

    def node(self, worker: int) -> int:
        """Where the worker runs."""
        return self._actors[worker].node

    def _has_room(self) -> bool:
        return sum(self._alive) >= len(self.bundles)

    def _keep(self, actor: _Actor) -> None:
        """Start its process again and again, wherever its bundle is."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not actor.wanted or self._find_node(actor))
                if not actor.wanted:
                    break
                environment = {**os.environ, **actor.place.environment}
                actor.process = subprocess.Popen(actor.command, env=environment)
            if actor.process.wait() == 0:
                actor.ended.set_result(0)
                return
        actor.ended.set_exception(RuntimeError("the actor is dead"))

    def _find_node(self, actor: _Actor) -> bool:
        bundle = actor.place.bundle
        free = [node for node, alive in enumerate(self._alive) if alive and node not in self._node_of.values()]
        if bundle not in self._node_of and free:
            self._node_of[bundle] = free[0]
        actor.node = self._node_of.get(bundle, -1)
        return actor.node >= 0

    def _end(self, worker: int) -> None:
        if (actor := self._actors.get(worker)) is not None:
            with self._changed:
                actor.wanted = False
                self._changed.notify_all()
                self._signal(actor, signal.SIGKILL)

    @staticmethod
    def _signal(actor: _Actor, number: signal.Signals) -> None:
        if actor.process is not None:
            actor.process.send_signal(number)
