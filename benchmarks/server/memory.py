"""What requests cost the router in memory: thousands of large ones that wait, and millions that come and go.

The first figure is what the router and its front ends have in resident memory with `--queued` binary requests of 100 KB
in the queues, beyond what they had when idle, as a multiple of what the requests weigh.  The second is the slope of
that memory over the last half of `--requests` small ones.
"""

import selectors
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil

import gearshift
from benchmarks.server.open_loop import parsed
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table
from gearshift.serving.operate.child_server import ChildServer
from gearshift.serving.operate.control_client import Operator
from gearshift.support.event_loop import allow_many_connections
from gearshift.traces.generate import steady

LARGE, SMALL = 25_000, 16
"""Numbers of 4 bytes in a sample."""
CONNECTIONS = 64
PIECE_BYTES = 8 << 10
MOST_RATIO, MOST_SLOPE = 1.2, 1.0
LONGEST_S = 300.0
SAMPLES = 100
FRONT_END = "gearshift.serving.front_ends.front_end"

PROJECT = """operator = "echo"
samples = "models.py:load_samples"
certainty = "top_two_difference"

[models.echo]
load = "models.py:load_echo"

[profile]
batch_sizes = [1, 2, 4, 8, 16, 32]
repeats = 3
"""
MODELS = """import os
import time

import numpy as np

import gearshift

HOLD = {hold!r}


def load_samples():
    x = np.random.default_rng(0).random(({samples}, {numbers}), dtype=np.float32)
    return gearshift.Samples(inputs=x, labels=x[:, :4].argmax(axis=1))


def load_echo():
    def predict(x):
        while os.path.exists(HOLD):
            time.sleep(0.1)
        return x[:, :4]

    return predict
"""


def make_plan(folder: Path, numbers: int) -> Path:
    """A plan of an echo of so many numbers, which answers nothing while there is a file `hold`."""
    folder.mkdir()
    (folder / "gearshift.toml").write_text(PROJECT)
    text = MODELS.format(hold=str(folder / "hold"), samples=SAMPLES, numbers=numbers)
    (folder / "models.py").write_text(text)
    gearshift.profile(folder / "gearshift.toml", out=folder / "profile")
    trace = steady(100, 2.0, arrivals="uniform")
    gearshift.plan(folder / "profile", trace, latency_s=1.0, ranges=1, out=folder / "plan.json")
    return folder / "plan.json"


def binary_request(url: str, numbers: int) -> bytes:
    """A whole request of one sample, its tensor in binary."""
    tensor = np.linspace(0, 1, numbers, dtype=np.float32).tobytes()
    text = (
        f'{{"inputs":[{{"name":"input","shape":[1,{numbers}],"datatype":"FP32",'
        f'"parameters":{{"binary_data_size":{len(tensor)}}}}}]}}'
    ).encode()
    head = (
        f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n"
        f"Inference-Header-Content-Length: {len(text)}\r\nContent-Length: {len(text) + len(tensor)}\r\n\r\n"
    ).encode()
    return head + text + tensor


@contextmanager
def served(plan: Path, *options: str) -> Iterator[tuple[str, "Router"]]:
    """A server of the plan, and its router."""
    with ChildServer(plan, "--shortest-hang-s", "3600", "--most-connections", "15000", *options) as server:
        yield server.url, Router(server.pid)


class Router:
    """The process of the router, and those of its front ends."""

    def __init__(self, pid: int) -> None:
        router = psutil.Process(pid)
        self._processes = [router, *(child for child in router.children() if FRONT_END in child.cmdline())]

    def resident_bytes(self) -> int:
        return sum(process.memory_info().rss for process in self._processes)


def connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 80))


# What waits ----------------------------------------------------------------------------------------------------------


def queued_ratio(folder: Path, queued: int, *options: str) -> tuple[float, float]:
    """Router memory beyond idle with so many requests in the queues, over their weight; and idle memory in MB."""
    plan = make_plan(folder, LARGE)
    bounds = ("--most-waiting-requests", str(2 * queued + 100), "--most-waiting-bytes", str(4 << 30))
    with served(plan, *bounds, *options) as (url, router), ExitStack() as clients:
        request = binary_request(url, LARGE)
        with connected(url) as warm:  # what is allocated once is no part of what a request costs
            answer_of(warm, request)
        (folder / "hold").touch()
        idle = router.resident_bytes()
        for first in range(0, queued, CONNECTIONS):
            count = min(CONNECTIONS, queued - first)
            send_in_turns([clients.enter_context(connected(url)) for _ in range(count)], request)
        wait_until_open(url, queued)
        held = router.resident_bytes() - idle
        clients.close()
        (folder / "hold").unlink()
        return held / (queued * len(request)), idle / 1e6


def send_in_turns(socks: Sequence[socket.socket], request: bytes) -> None:
    """Send the request on each of them, a piece at a time, so that many are half read at once."""
    for at in range(0, len(request), PIECE_BYTES):
        for sock in socks:
            sock.sendall(request[at : at + PIECE_BYTES])


def answer_of(sock: socket.socket, request: bytes) -> None:
    sock.sendall(request)
    received = bytearray()
    while (answer := parsed(received)) is None:
        received += sock.recv(1 << 16)
    if answer[0] != 200:
        raise SystemExit(f"a request was answered with {answer[0]}: {answer[1].decode()}")


def wait_until_open(url: str, requests: int) -> None:
    """Return when all of them are whole and none is answered."""
    end = time.monotonic() + LONGEST_S
    while (there := Operator(url).status().open_requests) < requests:
        if time.monotonic() > end:
            raise SystemExit(f"{there} of {requests} requests were accepted")
        time.sleep(0.2)


# What comes and goes -------------------------------------------------------------------------------------------------


def slope(folder: Path, requests: int, *options: str) -> tuple[float, float]:
    """Bytes of router memory per request over the last half of so many, and requests per second."""
    plan = make_plan(folder, SMALL)
    with served(plan, *options) as (url, router):
        began = time.monotonic()
        counts, bytes_ = drive(url, requests, router)
        qps = requests / (time.monotonic() - began)
    last = counts >= requests / 2
    return float(np.polyfit(counts[last], bytes_[last], 1)[0]), qps


def drive(url: str, requests: int, router: Router) -> tuple[np.ndarray, np.ndarray]:
    """A closed loop over `CONNECTIONS`; how many were answered, and the router's memory then, a hundred times."""
    request = binary_request(url, SMALL)
    answered, told = 0, []
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(CONNECTIONS):
            sock = stack.enter_context(connected(url))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(sock, selectors.EVENT_READ, bytearray())
            sock.sendall(request)
        while answered < requests:
            for key, _ in selector.select():
                received: bytearray = key.data
                received += key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                answer = parsed(received)
                if answer is None:
                    continue
                if answer[0] != 200:
                    raise SystemExit(f"a request was answered with {answer[0]}")
                received.clear()
                answered += 1
                if answered % max(1, requests // 100) == 0:
                    told.append((answered, router.resident_bytes()))
                key.fileobj.sendall(request)  # type: ignore[union-attr]
    counts, bytes_ = np.array(told, dtype=np.float64).T
    return counts, bytes_


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--options", nargs="*", default=[], help="further options of `gearshift serve`, without dashes")
    arguments = parser.parse_args()
    options = [f"--{word}" if k % 2 == 0 else word for k, word in enumerate(arguments.options)]
    allow_many_connections()
    print(describe())
    with tempfile.TemporaryDirectory() as name:
        ratio, idle_mb = queued_ratio(Path(name) / "large", arguments.queued, *options)
        per_request, qps = slope(Path(name) / "small", arguments.requests, *options)
    print_table(
        ("figure", "value"),
        [
            ("the router idle, MB", f"{idle_mb:.1f}"),
            (f"{arguments.queued} queued requests of 100 KB, of their weight", f"{ratio:.3f}"),
            (f"slope over the last {arguments.requests // 2} requests, bytes per request", f"{per_request:.2f}"),
            ("requests/s meanwhile", f"{qps:.0f}"),
        ],
    )
    print_bar(ratio <= MOST_RATIO, f"queued requests cost at most {MOST_RATIO} times their weight ({ratio:.3f})")
    print_bar(per_request < MOST_SLOPE, f"no growth of {MOST_SLOPE:g} byte per request ({per_request:.2f})")


if __name__ == "__main__":
    main()
