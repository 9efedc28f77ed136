"""How traces are sent, to a server or to a plan."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

from gearshift.errors import require
from gearshift.load_generator.targets import DEFAULT_CONNECTIONS, LONGEST_S
from gearshift.support.files import PathLike
from gearshift.verbs.common.options import MILLISECONDS, Option
from gearshift.workload import Trace

Traces = Mapping[str, Trace | PathLike | None]
"""By pipeline; that of an only one may have no name, and None is the trace that a plan names."""

Sent = Callable[[int, int], None]
"""Called with the number of requests that are done, and of all."""


class SendingOptions(TypedDict, total=False):
    """How load is generated, and how requests are sent, as in `gearshift.load_generator.targets.Sending`."""

    processes: Annotated[int, Option("Send from this many processes.", default=1)]
    connections: Annotated[int, Option("The most requests that are under way at a time.", default=DEFAULT_CONNECTIONS)]
    longest_s: Annotated[float, Option("Give a request up after this many seconds.", default=LONGEST_S)]
    largest_lateness_s: Annotated[
        float | None,
        Option(
            "How late the generator may send at p50, p95 and p99, instead of a tenth of the latency there.",
            "--largest-lateness-ms",
            unit=MILLISECONDS,
        ),
    ]
    binary: Annotated[bool, Option("Send tensors as bytes; gRPC always does.", default=False)]
    priority: Annotated[int, Option("Send this priority; 1 is the most urgent.", default=0)]
    ca_file: Annotated[PathLike | None, Option("Trust the certificates in this PEM file.")]
    deadline_s: float | None
    facts: bool
    api_key: str | None


AS_EVER: SendingOptions = {"processes": 1, "connections": DEFAULT_CONNECTIONS}


def given_of(how: SendingOptions) -> dict[str, Any]:
    """The options that are not at their defaults."""
    return {name: value for name, value in how.items() if value != AS_EVER.get(name)}


def plan_at(target: PathLike) -> Path | None:
    """The plan file that a target is; None for a URL."""
    if "://" in str(target):
        return None
    require(
        Path(target).is_file(), "is neither a plan file nor a URL", where=str(target), remedy="give http://HOST:PORT"
    )
    return Path(target)


def by_pipeline(trace: Trace | PathLike | Traces | None) -> Traces:
    return trace if isinstance(trace, Mapping) else {"": trace}


def of_only(runs: dict[str, Any], trace: object) -> Any:
    """The results by pipeline where traces were, or where there are several; else that of the only one."""
    return runs if isinstance(trace, Mapping) or len(runs) != 1 else next(iter(runs.values()))
