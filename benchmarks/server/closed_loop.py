"""A closed loop of `wrk` with one thread: what a server answers at most, and what that costs it."""

import re
import subprocess
import tempfile
from dataclasses import dataclass

import psutil

from benchmarks.server.compared import cpu_s


@dataclass(frozen=True, slots=True)
class Load:
    """What `wrk` and the kernel saw: requests answered per second, and the share that was not answered with 200."""

    qps: float
    refused: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


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
