"""What the tables of all benchmarks begin with, and how they are timed."""

import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypedDict

import numpy as np


def describe() -> str:
    """The machine and the date."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    return f"{date} UTC, {os.cpu_count()} cores ({model}), Python {platform.python_version()}, NumPy {np.__version__}"


def pin_to_last_core() -> None:
    """Stay on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


class Apart(TypedDict):
    """Who has which cores."""

    server_cores: frozenset[int]
    generator_cores: frozenset[int]


def cores_apart() -> Apart:
    """The first core that there is for the server, the last one for the load generator; as `validate` takes them."""
    cores = sorted(os.sched_getaffinity(0))
    return Apart(server_cores=frozenset(cores[:1]), generator_cores=frozenset(cores[-1:]))


def seconds_of(work: Callable[[], object], *, repeats: int) -> list[float]:
    """Wall seconds of each repetition."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return times
