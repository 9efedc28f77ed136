"""`python -m gearshift.runtime.beside CORE...`: the kind of work that a front end and its clients do beside a device.

Two processes exchange small JSON messages over loopback, a few hundred times a second: models are timed beside it,
as they are served beside it.  Ends with its parent, whose standard input it reads.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager

EXCHANGES_PER_S = 400
MESSAGE = {"inputs": [{"name": "input", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}]}


@contextmanager
def front_end_beside(cores: Set[int]) -> Iterator[None]:
    """Such work on `cores` for as long as the block lasts."""
    command = [sys.executable, "-P", "-m", "gearshift.runtime.beside", *map(str, sorted(cores))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield
        finally:
            process.kill()


def exchange(cores: Set[int]) -> None:
    """Exchange messages until the other side is gone."""
    os.sched_setaffinity(0, cores)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        if os.fork() == 0:
            _end_with(os.getppid())
            with socket.create_connection(address) as client:
                _ask(client)
            os._exit(0)
        _end_with_standard_input()
        answering, _ = listener.accept()
    with answering:
        while message := answering.recv(1 << 16):
            answering.sendall(json.dumps(json.loads(message)).encode())


def _ask(client: socket.socket) -> None:
    due_s = time.monotonic()
    while True:
        due_s = max(due_s + 1 / EXCHANGES_PER_S, time.monotonic() - 0.1)
        time.sleep(max(0.0, due_s - time.monotonic()))
        client.sendall(json.dumps(MESSAGE).encode())
        answer = client.recv(1 << 16)
        if not answer:
            return
        json.loads(answer)


def _end_with(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _end_with_standard_input() -> None:
    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    exchange({int(core) for core in sys.argv[1:]})
