"""Faults of Ray's nodes and workers under load: as `faults.py`, with the workers on a real Ray cluster of this machine.

The cluster (`ray_nodes.py`) has a head with the router, and three nodes of which the plan takes two; after each loss
another one joins.  A node that is lost has all its processes killed at once; one that is silent has them stopped, as
when its network is gone: then nothing closes its connections, and the router has to find out.
"""

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

from tests.programs import faults
from tests.programs.faults import Fault, Load, Round, Server, Tally
from tests.programs.ray_nodes import ON_LOOPBACK, RayNodes

NODES = 3


def losing_a_node(nodes: RayNodes, number: signal.Signals) -> Fault:
    """A node with a worker gets this signal as a whole, and another one joins."""

    async def lose(server: Server, load: Load) -> None:
        lost = await server.metric("gearshift_restarts_total")
        workers = await asyncio.to_thread(nodes.workers)
        nodes.lose(load.rng.choice([node for node, of_node in enumerate(workers) if of_node]), number)
        await server.until(lambda: server.has_lost(lost + 1))
        await asyncio.to_thread(nodes.add)

    return lose


def losing_a_worker(nodes: RayNodes, number: signal.Signals) -> Fault:
    """A worker's process gets this signal."""

    async def lose(server: Server, load: Load) -> None:
        lost = await server.metric("gearshift_restarts_total")
        workers = await asyncio.to_thread(nodes.workers)
        os.kill(load.rng.choice([worker for of_node in workers for worker in of_node]), number)
        await server.until(lambda: server.has_lost(lost + 1))

    return lose


def kinds(nodes: RayNodes) -> dict[str, Fault]:
    """The faults by name."""
    return {
        "Ray node lost (kill -9 of all of it)": losing_a_node(nodes, signal.SIGKILL),
        "Ray node silent (SIGSTOP of all of it)": losing_a_node(nodes, signal.SIGSTOP),
        "Ray worker killed (kill -9)": losing_a_worker(nodes, signal.SIGKILL),
        "Ray worker stopped (SIGSTOP)": losing_a_worker(nodes, signal.SIGSTOP),
    }


def options(nodes: RayNodes) -> tuple[str, ...]:
    """Of `gearshift serve`."""
    return "--backend", "ray", "--address", nodes.address


def on(nodes: RayNodes, fault: Fault) -> Round:
    """Rounds of this fault."""

    async def one(folder: Path, rng: random.Random) -> Tally:
        return await faults.with_load(folder, rng, [fault], *options(nodes))

    return one


def main() -> int:
    os.environ.update(ON_LOOPBACK)
    with RayNodes(NODES) as nodes:
        return faults.main({name: on(nodes, fault) for name, fault in kinds(nodes).items()})


if __name__ == "__main__":
    sys.exit(main())
