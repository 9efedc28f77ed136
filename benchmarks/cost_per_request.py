"""What a request costs, ours beside its Python peers: an echo of 16 floats through HTTP, queue, batch and worker.

Every server has one worker process and batches of up to 32; the client is `wrk` with one thread, in a closed loop with
1 and with 64 connections.  All run on the same two cores, one server at a time, in rounds: a round has each once, so
that a ratio is of figures taken close together.  Processor time is that of the server's processes, user and system,
over the requests it answered.

`--install` makes an environment for each peer under `--peers`; nothing else is installed.  `wrk` has to be there.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from judging import print_bar, print_table
from machine import describe

HERE = Path(__file__).parent
PACKAGES = {
    "uvicorn": ("uvicorn", "httptools", "uvloop"),
    "mosec": ("mosec==0.9.8", "numpy"),
    "litserve": ("litserve", "numpy"),
    "bentoml": ("bentoml", "numpy"),
    "ray": ("ray[serve]", "numpy"),
}
PYTHON_FRONT_ENDS = ("litserve", "bentoml", "ray")
CONNECTIONS = (1, 64)
ROW = [round(0.01 * k + 0.1, 2) for k in range(16)]
PLAIN = json.dumps({"data": ROW})
V2 = json.dumps({"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 16], "data": ROW}]})
START_S, END_S = 120.0, 30.0

PROJECT = """operator = "echo"
samples = "models.py:load_samples"
certainty = "top_two_difference"

[models.echo]
load = "models.py:load_echo"

[profile]
batch_sizes = [1, 2, 4, 8, 16, 32]
repeats = 5
"""
MODELS = """import numpy as np

import gearshift


def load_samples():
    x = np.random.default_rng(0).random((500, 16), dtype=np.float32)
    return gearshift.Samples(inputs=x, labels=x.argmax(axis=1))


def load_echo():
    return lambda x: x
"""


@dataclass(frozen=True, slots=True)
class Server:
    """How to start a server on a port, and where and what to post to it."""

    command: Callable[[int], Sequence[str]]
    path: str
    body: str


@dataclass(frozen=True, slots=True)
class Load:
    """What `wrk` and the kernel saw: requests answered per second, and the share that was not answered with 200."""

    qps: float
    refused: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


def servers(peers: Path, plan: Path) -> dict[str, Server]:
    """Ours, the bare HTTP library, and the peers that are installed."""

    def python(name: str, script: str) -> Callable[[int], Sequence[str]]:
        return lambda port: (str(peers / name / "bin" / "python"), str(HERE / "peers" / script), str(port))

    def own(*arguments: str) -> Callable[[int], Sequence[str]]:
        return lambda port: (sys.executable, *arguments, str(port))

    found = {
        "gearshift": Server(own("-m", "gearshift", "serve", str(plan), "--port"), "/v2/models/echo/infer", V2),
        "uvicorn": Server(python("uvicorn", "uvicorn_bare.py"), "/", V2),
        "mosec": Server(
            lambda port: (
                str(peers / "mosec" / "bin" / "python"), str(HERE / "peers" / "mosec_echo.py"), "--port", str(port),
                "--address", "127.0.0.1", "--log-level", "warning",
            ),
            "/inference",
            PLAIN,
        ),
        "litserve": Server(python("litserve", "litserve_echo.py"), "/predict", PLAIN),
        "bentoml": Server(
            lambda port: (
                str(peers / "bentoml" / "bin" / "bentoml"), "serve", "bentoml_echo:Front",
                "--working-dir", str(HERE / "peers"), "--host", "127.0.0.1", "--port", str(port),
            ),
            "/predict",
            PLAIN,
        ),
        "ray": Server(python("ray", "ray_echo.py"), "/predict", PLAIN),
    }  # fmt: skip
    return {name: server for name, server in found.items() if name not in PACKAGES or (peers / name).is_dir()}


def install(peers: Path) -> None:
    """An environment of its own for each peer."""
    for name, packages in PACKAGES.items():
        if not (peers / name).is_dir():
            subprocess.run((sys.executable, "-m", "venv", peers / name), check=True)
            subprocess.run((peers / name / "bin" / "pip", "install", "--quiet", *packages), check=True)


def version(peers: Path, name: str) -> str:
    """The peer's release."""
    command = (peers / name / "bin" / "pip", "show", name)
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return next(line.split()[1] for line in shown.splitlines() if line.startswith("Version"))


def made_plan(folder: Path) -> Path:
    """A plan for the echo, profiled and planned here, with batches of up to 32."""
    (folder / "gearshift.toml").write_text(PROJECT)
    (folder / "models.py").write_text(MODELS)
    (folder / "trace.csv").write_text("second,requests\n0,500\n1,500\n")
    verbs = (
        ("profile", "gearshift.toml"),
        ("plan", "profile", "--trace", "trace.csv", "--p95-ms", "1000", "--ranges", "1"),
    )
    for verb in verbs:
        subprocess.run((sys.executable, "-m", "gearshift", *verb), cwd=folder, check=True, capture_output=True)
    return folder / "plan.json"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def running(server: Server) -> Iterator[tuple[str, psutil.Process]]:
    """The server's URL and process, once it has answered; nothing of it is left afterwards."""
    port = free_port()
    url = f"http://127.0.0.1:{port}{server.path}"
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(server.command(port), stdout=said, stderr=said, start_new_session=True)
        try:
            await_answer(url, server.body, process)
            yield url, psutil.Process(process.pid)
        except NoAnswer:
            said.seek(0)
            raise SystemExit(f"{' '.join(server.command(port))} does not serve:\n{said.read()[-2000:]}") from None
        finally:
            end(process)


def end(process: "subprocess.Popen[str]") -> None:
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


def await_answer(url: str, body: str, process: "subprocess.Popen[str]") -> None:
    """Wait for the first answer."""
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    began = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(request, timeout=START_S) as answer:
                if b"0.25" not in answer.read():
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


def loaded(url: str, body: str, root: psutil.Process, *, connections: int, seconds: int) -> Load:
    """A closed loop for so long, after a short one to warm up."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(f"wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nwrk.body = {body!r}\n")
        script.flush()

        def wrk(duration_s: int) -> str:
            command = ("wrk", "-t1", f"-c{connections}", f"-d{duration_s}s", "--latency", "-s", script.name, url)
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        wrk(1)
        before_s = cpu_s(root)
        said = wrk(seconds)
        used_s = cpu_s(root) - before_s
    if "Socket errors" in said:
        raise SystemExit(f"{url} failed under load:\n{said}")
    requests = int(found(r"(\d+) requests in", said))
    refused = int(found(r"Non-2xx or 3xx responses: (\d+)", said)) if "Non-2xx" in said else 0
    return Load(
        qps=float(found(r"Requests/sec:\s+([\d.]+)", said)) * (1 - refused / requests),
        refused=refused / requests,
        p50_ms=milliseconds(found(r"\n +50%\s+(\S+)", said)),
        p99_ms=milliseconds(found(r"\n +99%\s+(\S+)", said)),
        cpu_us=used_s / requests * 1e6,
    )


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"wrk said something else than expected:\n{text}")
    return match[1]


def milliseconds(text: str) -> float:
    match = re.fullmatch(r"([\d.]+)(us|ms|s)", text)
    if match is None:
        raise SystemExit(f"wrk gives a latency of {text}")
    number, unit = match.groups()
    return float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def spread(values: Sequence[float], form: str = ".0f") -> str:
    """Median, least and most."""
    return f"{median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, default=Path.home() / ".cache" / "gearshift-peers")
    parser.add_argument("--install", action="store_true", help="make an environment for each peer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=8, help="of each closed loop")
    parser.add_argument("--only", nargs="*", help="of the servers")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("this benchmark needs wrk, which is not there")
    if arguments.install:
        install(arguments.peers)
    measured: dict[tuple[str, int], list[Load]] = {}
    print(describe(), f"{len(os.sched_getaffinity(0))} cores for all")
    with tempfile.TemporaryDirectory() as folder:
        compared = servers(arguments.peers, made_plan(Path(folder)))
        if arguments.only:
            compared = {name: compared[name] for name in arguments.only}
        print(", ".join(f"{name} {version(arguments.peers, name)}" for name in compared if name in PACKAGES))
        for _ in range(arguments.rounds):
            for name, server in compared.items():
                with running(server) as (url, root):
                    for connections in CONNECTIONS:
                        load = loaded(url, server.body, root, connections=connections, seconds=arguments.seconds)
                        measured.setdefault((name, connections), []).append(load)
    for connections in CONNECTIONS:
        print_loads(compared, measured, connections)
    print_bars(measured)


def print_loads(compared: dict[str, Server], measured: dict[tuple[str, int], list[Load]], connections: int) -> None:
    rows = []
    for name in compared:
        loads, ours = measured[name, connections], measured.get(("gearshift", connections), [])
        ratios = [us.qps / load.qps for us, load in zip(ours, loads, strict=False)]
        rows.append(
            (
                name,
                spread([load.qps for load in loads]),
                spread([load.p50_ms for load in loads], ".2f"),
                spread([load.p99_ms for load in loads], ".2f"),
                spread([load.cpu_us for load in loads]),
                f"{median(load.refused for load in loads):.0%}",
                spread(ratios, ".2f") if ratios else "-",
            )
        )
    print_table(
        (f"{connections} connections", "requests/s", "p50, ms", "p99, ms", "CPU us/request", "refused", "ours/its"),
        rows,
    )


def print_bars(measured: dict[tuple[str, int], list[Load]]) -> None:
    """The bars of a request's cost, each where what it compares was measured."""

    def middle(name: str, connections: int, figure: str) -> float | None:
        loads = measured.get((name, connections))
        return None if loads is None else median(getattr(load, figure) for load in loads)

    ours = middle("gearshift", 64, "qps")
    python = [qps for name in PYTHON_FRONT_ENDS if (qps := middle(name, 64, "qps")) is not None]
    if ours is not None and python:
        times = ours / max(python)
        print_bar(times >= 5, f"at 64 connections 5x the best Python front end's requests/s (it is {times:.2f}x)")
    rust = middle("mosec", 64, "qps")
    if ours is not None and rust is not None:
        print_bar(ours >= 0.5 * rust, f"at 64 connections half of mosec's requests/s (it is {ours / rust:.2f} of it)")
    one, bare = middle("gearshift", 1, "p50_ms"), middle("uvicorn", 1, "p50_ms")
    if one is not None and bare is not None:
        print_bar(one - bare <= 1.0, f"one connection within 1 ms of the bare HTTP library ({one - bare:.2f} ms more)")


if __name__ == "__main__":
    main()
