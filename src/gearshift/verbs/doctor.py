"""Examine this machine: what it offers to Gearshift, and what is missing."""

import importlib.metadata
import math
import platform
from collections.abc import Callable
from functools import partial

import msgspec
import psutil

from gearshift.clock import NS_PER_S
from gearshift.runtime.actuators.cgroup import quota_cores
from gearshift.runtime.actuators.check import ActuatorCheck, check_actuators
from gearshift.support.extras import EXTRAS
from gearshift.support.processors import pin, processors_of, usable_processors
from gearshift.verbs.common.inputs import Progress, silent

WORTH_HAVING = {
    "sklearn": "models from scikit-learn, and `gearshift demo`",
    "torch": "PyTorch modules",
    "onnx": "models from ONNX files",
    "parquet": "records in Parquet",
    "pandas": "data frames of pandas",
    "polars": "data frames of polars",
    "mlflow": "models of MLflow",
    "transformers": "models of Hugging Face in a folder",
    "grpc": "`gearshift serve --grpc-port`",
    "otel": "`gearshift serve --otel`",
    "ray": "`gearshift serve --backend ray`, on more than one machine",
    "sql": "`gearshift query`, tables, and functions of DuckDB",
    "llm-demo": "`gearshift demo --llm` with llama.cpp's server",
}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Cores and memory of this process, versions of extras (None if missing), and advice.

    `quota_cores` is the processor time, in cores, that control groups allow; None without a bound.
    `actuators` are the ways to change a worker's cores in place, each tried out.
    """

    system: str
    python: str
    cores: int
    memory_bytes: int
    free_memory_bytes: int
    quota_cores: float | None
    extras: dict[str, str | None]
    actuators: dict[str, ActuatorCheck]
    advice: tuple[str, ...]


def doctor() -> Machine:
    """Report the hardware and software that this machine offers."""
    memory = psutil.virtual_memory()
    cores = usable_processors()
    quota = quota_cores()
    extras = {extra: _version(package) for extra, package in EXTRAS.items()}
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        cores=cores,
        memory_bytes=memory.total,
        free_memory_bytes=memory.available,
        quota_cores=quota if quota < math.inf else None,
        extras=extras,
        actuators=check_actuators(),
        advice=tuple(_advice(cores, extras, quota)),
    )


def warm(progress: Progress = silent) -> None:
    """Compile the simulator for the usual kinds of plans into the user's cache, so that verbs need not.

    That takes some minutes of one processor after an install or an update, and a second when it is
    done already.
    """
    from gearshift.simulator.engines.warm_up import warm_up as warm_up_engines
    from gearshift.simulator.warm_up import warm_up

    kinds: dict[str, Callable[[], None]] = {
        "gears": warm_up,
        "deadlines": partial(warm_up, deadline_ns=NS_PER_S),
        "refinement": partial(warm_up, refines=True),
        "graphs": partial(warm_up, ("first", "second")),
        "language models": warm_up_engines,
    }
    for done, (kind, compiled) in enumerate(kinds.items()):
        progress(f"compiling the simulator of {kind}", done / len(kinds))
        compiled()


def _advice(cores: int, extras: dict[str, str | None], quota: float = math.inf) -> list[str]:
    advice = [
        f"{extra} is not installed: `pip install 'gearshift[{extra}]'` adds {what}"
        for extra, what in WORTH_HAVING.items()
        if extras[extra] is None
    ]
    if cores < 2:
        advice.append(
            "there is one core: the router shares it with the device, so latency will exceed what is predicted"
        )
    if quota < cores:
        advice.append(
            f"a control group holds this process to the time of {quota:g} of its {cores} cores: plan for at most "
            f"{max(0, math.floor(quota) - 1)} in addition to the router's, or raise the quota"
        )
    if not pin(processors_of()):
        advice.append("this system cannot pin processes to cores, so measured run times will be noisy")
    return advice


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
