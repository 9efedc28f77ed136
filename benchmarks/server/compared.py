"""The servers that `cost_per_request.py` compares: how each is installed, started, asked and ended."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import sklearn

from gearshift.support.processors import pinned

HERE = Path(__file__).parent
MODEL_PACKAGES = (f"numpy=={np.__version__}", f"scikit-learn=={sklearn.__version__}")
PACKAGES = {
    "uvicorn": ("uvicorn==0.54.0", "uvloop", "httptools"),
    "mosec": ("mosec==0.9.8", *MODEL_PACKAGES),
    "litserve": ("litserve==0.2.19", *MODEL_PACKAGES),
    "bentoml": ("bentoml==1.4.39", *MODEL_PACKAGES),
    "mlserver": ("mlserver==1.7.1", "uvloop==0.21.0", *MODEL_PACKAGES),  # with a later uvloop its worker ends at once
    "ray": ("ray[serve]==2.60.0", *MODEL_PACKAGES),
}
PEERS = ("mosec", "litserve", "bentoml", "mlserver", "ray")
PYTHON_FRONT_ENDS = ("litserve", "bentoml", "mlserver", "ray")
PATHS = {"mosec": "/inference", "mlserver": "/v2/models/model/infer"}
OURS, BARE = "gearshift", "bare uvicorn"
LARGEST_BATCH = 32
START_S, END_S = 120.0, 5.0


@dataclass(frozen=True, slots=True)
class Server:
    """How to start a server, where to post to it, what it is asked of a row, and what every answer of it contains.

    `{port}` in the command stands for its port.
    """

    command: Sequence[str]
    path: str
    body_of: Callable[[Sequence[float]], str]
    row: Sequence[float]
    answer: bytes
    environment: Mapping[str, str] = field(default_factory=dict)
    cores: frozenset[int] | None = None

    @property
    def body(self) -> str:
        """What asks for its row."""
        return self.body_of(self.row)


@dataclass(frozen=True, slots=True)
class Cores:
    """The core of routers, front ends and clients, and the one that a model has to itself."""

    front: int
    model: int

    @property
    def both(self) -> frozenset[int]:
        return frozenset((self.front, self.model))


@dataclass(frozen=True, slots=True)
class Served:
    """A trained model of the demo, and where it runs."""

    trained: Path
    model: str
    cores: Cores


@dataclass(frozen=True, slots=True)
class Setting:
    """A peer's settings: its largest batch, the seconds an answer may take, and how many requests may wait."""

    batch: int = LARGEST_BATCH
    bound_s: float | None = None
    waiting: int | None = None


def install(peers: Path) -> None:
    """An environment of its own for each peer."""
    for name, packages in PACKAGES.items():
        if not (peers / name).is_dir():
            subprocess.run((sys.executable, "-m", "venv", peers / name), check=True)
        subprocess.run((peers / name / "bin" / "pip", "install", "--quiet", *packages), check=True)


def installed(peers: Path) -> list[str]:
    """The peers that have an environment."""
    return [name for name in PEERS if (peers / name).is_dir()]


def version(peers: Path, name: str) -> str:
    """The peer's release."""
    command = (peers / name / "bin" / "pip", "show", name)
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return next(line.split()[1] for line in shown.splitlines() if line.startswith("Version"))


def peer(peers: Path, name: str, row: Sequence[float], *, served: Served | None, setting: Setting) -> Server:
    """A peer that serves a model, or an echo, asked with this row."""
    binaries, script = peers / name / "bin", str(HERE / "peers" / f"{name}_server.py")
    command = {
        "mosec": (str(binaries / "python"), script, "--port", "{port}", "--address", "127.0.0.1")
        + ("--log-level", "warning")
        + (() if setting.bound_s is None else ("--timeout", str(round(1000 * setting.bound_s))))
        + (() if setting.waiting is None else ("--capacity", str(setting.waiting))),
        "bentoml": (
            str(binaries / "bentoml"), "serve", "bentoml_server:Front",
            "--working-dir", str(HERE / "peers"), "--host", "127.0.0.1", "--port", "{port}",
        ),
    }.get(name, (str(binaries / "python"), script, "{port}"))  # fmt: skip
    return Server(
        command,
        PATHS.get(name, "/predict"),
        v2 if name == "mlserver" else plain,
        row,
        b"0.25" if served is None else b'"data"',
        environment(served, setting),
        None if served is None else frozenset((served.cores.front,)),
    )


def ours(plan: Path, operator: str, row: Sequence[float], *options: str, cores: Cores | None) -> Server:
    """Our server of a plan of classifiers, which takes the model's core for its device, or of an echo."""
    return Server(
        (sys.executable, "-m", "gearshift", "serve", str(plan), "--port", "{port}", *options),
        f"/v2/models/{operator}/infer",
        v2 if cores is None else v2_label,
        row,
        b"0.25" if cores is None else b'"label"',
        cores=None if cores is None else cores.both,
    )


def bare_uvicorn(peers: Path, row: Sequence[float]) -> Server:
    """An HTTP library that answers what it was sent."""
    command = (str(peers / "uvicorn" / "bin" / "python"), str(HERE / "peers" / "uvicorn_bare.py"), "{port}")
    return Server(command, "/", v2, row, b"0.25")


def environment(served: Served | None, setting: Setting) -> dict[str, str]:
    """What a process of a peer is told: settings, and for a model the demo's code and one thread."""
    settings = {"batch": setting.batch, "bound_s": setting.bound_s, "waiting": setting.waiting}
    if served is None:
        return {"PEER": json.dumps(settings)}
    model = {"trained": str(served.trained), "model": served.model, "core": served.cores.model}
    return {
        "PEER": json.dumps(settings | model),
        "PYTHONPATH": str(HERE.parents[1] / "src"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def plain(row: Sequence[float]) -> str:
    """The body of a request to a peer."""
    return json.dumps({"data": list(row)})


def v2(row: Sequence[float]) -> str:
    """The body of a request of the Open Inference Protocol."""
    return json.dumps(_v2(row))


def v2_label(row: Sequence[float]) -> str:
    """The same, which asks for the label alone."""
    return json.dumps({**_v2(row), "outputs": [{"name": "label"}]})


def _v2(row: Sequence[float]) -> dict[str, object]:
    return {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, len(row)], "data": list(row)}]}


def two_cores() -> Cores:
    """Keep this process, and so all that it starts, to the first two cores that it has."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("this benchmark needs two cores")
    os.sched_setaffinity(0, cores)
    return Cores(*cores)


# Running -------------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def running(server: Server) -> Iterator[tuple[str, psutil.Process]]:
    """The server's URL and process, once it has answered; nothing of it is left afterwards."""
    port = free_port()
    url = f"http://127.0.0.1:{port}{server.path}"
    command = [part.format(port=port) for part in server.command]
    with tempfile.TemporaryFile("w+") as said:
        with pinned(server.cores):  # what is started keeps to the cores of who starts it
            process = subprocess.Popen(
                command, stdout=said, stderr=said, start_new_session=True, env={**os.environ, **server.environment}
            )
        try:
            await_answer(url, server, process)
            yield url, psutil.Process(process.pid)
        except NoAnswer:
            said.seek(0)
            raise SystemExit(f"{' '.join(command)} does not serve:\n{said.read()[-2000:]}") from None
        finally:
            end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to end; after a while, kill what is left of it and of its children."""
    family = [psutil.Process(process.pid)] if process.poll() is None else []
    family += [child for each in family for child in each.children(recursive=True)]
    process.terminate()
    _, left = psutil.wait_procs(family, timeout=END_S)
    for each in left:
        each.kill()
    process.wait()


class NoAnswer(Exception):
    """A server ended, or does not answer as it should."""


def await_answer(url: str, server: Server, process: "subprocess.Popen[bytes]") -> None:
    """Wait for the first answer."""
    request = urllib.request.Request(url, server.body.encode(), {"Content-Type": "application/json"})
    began = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(request, timeout=START_S) as answer:
                if server.answer not in answer.read():
                    raise NoAnswer
                return
        except OSError:
            if process.poll() is not None or time.monotonic() - began > START_S:
                raise NoAnswer from None
            time.sleep(0.2)


def cpu_s(root: psutil.Process) -> float:
    """Processor time of a process and its descendants so far."""
    times = [each.cpu_times() for each in (root, *root.children(recursive=True))]
    return sum(t.user + t.system for t in times)
