"""How long a tensor takes to a worker and a word back, by size: one write on the socket, and shared memory beside it.

The router's end is the one that serves, on uvloop; the worker's end blocks on its socket.  Both ways the tensor lies in
memory of the router, as after a batch was put together, and the worker looks at every cache line of it.  Shared memory
is the best that it could be: one region, mapped once on both sides, never handed out twice, and copied into.
"""

import argparse
import asyncio
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import uvloop
from numpy.typing import NDArray

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table
from gearshift.runtime.wire.messages import Message, Pong, Run, RunPart, Stop
from gearshift.runtime.wire.transport import (
    BlockingConnection,
    FrameProtocol,
    pack_tensors,
    unpack_tensors,
    widen,
)

SIZES = {"4 KB": 4 << 10, "96 KB": 96 << 10, "1 MB": 1 << 20, "8 MB": 8 << 20}
NEAR_US = {"96 KB": 50.0, "1 MB": 200.0}
"""What a round trip over a bare Unix socket took on the machine of the specification."""
SHARED = 1
"""As the replica of a `Run`: the tensor is in shared memory."""
WARM_UP = 20
LINE_BYTES = 64


# The worker's end ----------------------------------------------------------------------------------------------------


def answer(fd: int, shared_fd: int) -> None:
    """Look at each tensor and say so, until `Stop`."""
    shared = memoryview(mmap.mmap(shared_fd, 0))
    with socket.socket(fileno=fd) as sock:
        connection = BlockingConnection(sock)
        while True:
            message, body = connection.receive()
            if not isinstance(message, Run):
                return
            held = shared if message.replica == SHARED else body
            (array,) = unpack_tensors(message.parts[0].tensors, held).values()
            array.view(np.uint8)[::LINE_BYTES].max()
            connection.send(Pong())


# The router's end ----------------------------------------------------------------------------------------------------


class Router:
    """Sends tensors and waits for a word, one after another."""

    def __init__(self, region: mmap.mmap) -> None:
        self._region = region
        self.protocol = FrameProtocol(self._received, lambda: None)
        self._answered: asyncio.Future[None] | None = None

    def _received(self, message: Message, body: memoryview) -> None:
        if self._answered is not None:
            self._answered.set_result(None)

    async def by_socket(self, tensor: NDArray[np.uint8]) -> None:
        headers, buffers = pack_tensors({"x": tensor})
        await self._sent(Run(batch=0, replica=0, parts=(RunPart(rows=(0,), tensors=headers),)), buffers)

    async def by_shared_memory(self, tensor: NDArray[np.uint8]) -> None:
        headers, buffers = pack_tensors({"x": tensor})
        self._region[: tensor.nbytes] = buffers[0]
        await self._sent(Run(batch=0, replica=SHARED, parts=(RunPart(rows=(0,), tensors=headers),)), [])

    async def _sent(self, message: Run, buffers: list) -> None:  # type: ignore[type-arg]
        self._answered = asyncio.get_running_loop().create_future()
        self.protocol.send(message, buffers)
        await self._answered


async def measure(repeats: int) -> dict[tuple[str, str], float]:
    """Middle seconds of a round trip, by size and by way."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    widen(ours)
    widen(theirs)
    shared_fd = os.memfd_create("tensors")
    os.ftruncate(shared_fd, max(SIZES.values()))
    command = [sys.executable, "-m", "benchmarks.server.transport", "--answer", str(theirs.fileno()), str(shared_fd)]
    with subprocess.Popen(command, pass_fds=(theirs.fileno(), shared_fd)) as child, mmap.mmap(shared_fd, 0) as region:
        theirs.close()
        router = Router(region)
        await asyncio.get_running_loop().create_unix_connection(lambda: router.protocol, sock=ours)
        ways: dict[str, Callable[..., object]] = {
            "one write": router.by_socket,
            "shared memory": router.by_shared_memory,
        }
        took: dict[tuple[str, str], float] = {}
        for size, size_bytes in SIZES.items():
            tensors = [np.full((1, size_bytes), fill, np.uint8) for fill in range(4)]
            for name, way in ways.items():
                took[size, name] = await middle_s(partial(_turns, way, tensors), repeats)
        router.protocol.send(Stop())
        child.wait()
    os.close(shared_fd)
    return took


async def _turns(way: Callable[..., object], tensors: list[NDArray[np.uint8]], turn: int) -> None:
    await way(tensors[turn % len(tensors)])  # type: ignore[misc]


async def middle_s(work: Callable[[int], object], repeats: int) -> float:
    times = []
    for turn in range(WARM_UP + repeats):
        began = time.perf_counter()
        await work(turn)  # type: ignore[misc]
        times.append(time.perf_counter() - began)
    return float(np.median(times[WARM_UP:]))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--answer", type=int, nargs=2, metavar="FD", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.answer:
        answer(*arguments.answer)
        return
    print(describe())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        took = runner.run(measure(arguments.repeats))
    rows = []
    for size in SIZES:
        write_us, shared_us = 1e6 * took[size, "one write"], 1e6 * took[size, "shared memory"]
        rows.append((size, f"{write_us:.0f}", f"{shared_us:.0f}", f"{write_us / shared_us:.2f}"))
    print_table(("tensor", "one write, us", "shared memory, us", "ratio"), rows)
    for size, near_us in NEAR_US.items():
        us = 1e6 * took[size, "one write"]
        print_bar(us <= 2 * near_us, f"{size} within twice the {near_us:.0f} us of a bare socket ({us:.0f})")


if __name__ == "__main__":
    main()
