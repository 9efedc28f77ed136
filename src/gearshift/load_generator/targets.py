"""The protocol of a load generator's target: how requests are sent, the replies, and its counters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from gearshift.client.v2_client import require_seconds
from gearshift.errors import InvalidInput, require
from gearshift.model import Arrays
from gearshift.request import BY_TIME

MOST_CONNECTIONS = 8192
DEFAULT_CONNECTIONS = 2048
LONGEST_S = 30.0
REACH_WITHIN_S = 5.0
MODEL, STAGE, ITEMS = "gearshift_model", "gearshift_stage", "gearshift_items"
"""Outputs of a Gearshift server: which model answered, after how many others, and the items of a graph in JSON."""
GIVE_A_KEY = "name a file that holds one with --key-file"
RUN = "gearshift_run_seconds_sum"
BUSY, BATCHES, SAMPLES = "gearshift_device_busy_seconds_total", "gearshift_batch_size_count", "gearshift_batch_size_sum"


class Sending(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests are sent to any target.

    At most `connections` requests are open at a time; each is given up `longest_s` after it was
    sent.  `facts` asks a Gearshift server for the model and the stage that answered.
    """

    connections: int = DEFAULT_CONNECTIONS
    longest_s: float = LONGEST_S
    binary: bool = False
    deadline_s: float | None = None
    priority: int = 0
    facts: bool = False
    api_key: str | None = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        connections, priority = self.connections, self.priority
        require(
            1 <= connections <= MOST_CONNECTIONS,
            f"connections is {connections}",
            remedy=f"give 1 to {MOST_CONNECTIONS}",
        )
        require_seconds("longest_s", self.longest_s)
        require_seconds("deadline_s", self.deadline_s)
        require(0 <= priority <= 1000, f"priority is {priority}", remedy="give 1 (most urgent) to 1000, or 0")

    def outputs(self, output: str, *, ours: bool) -> list[str]:
        return [output, MODEL, STAGE] if self.facts and ours else [output]


class Reply(NamedTuple):
    """The result of an exchange: an HTTP status or its equal, and the output or an error text."""

    status: int
    text: str = ""
    answered: object = None
    gear: int | None = None
    degraded: bool = False
    model: str | None = None
    stage: int | None = None
    by_time: bool = False


class ModelRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Batches and samples of a model that ran, and the seconds they occupied devices."""

    batches: int
    samples: int
    run_s: float


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the server's start: busy seconds by device; batches, samples, seconds by model."""

    busy_s: dict[str, float] = field(default_factory=dict)
    batches: dict[str, float] = field(default_factory=dict)
    samples: dict[str, float] = field(default_factory=dict)
    run_s: dict[str, float] = field(default_factory=dict)

    def busy_since(self, before: "Counters") -> dict[str, float]:
        return {device: busy_s - before.busy_s.get(device, 0.0) for device, busy_s in self.busy_s.items()}

    def runs_since(self, before: "Counters") -> dict[str, ModelRuns]:
        return {
            model: ModelRuns(
                batches=round(batches - before.batches.get(model, 0.0)),
                samples=round(self.samples.get(model, 0.0) - before.samples.get(model, 0.0)),
                run_s=self.run_s.get(model, 0.0) - before.run_s.get(model, 0.0),
            )
            for model, batches in self.batches.items()
        }


def counters_in(text: str) -> Counters:
    """Parse metrics in Prometheus' format; another server's give no counters.

    Raises `ValueError` for other text.
    """
    counters = Counters()
    places = {
        BUSY: (counters.busy_s, "device"),
        BATCHES: (counters.batches, "model"),
        SAMPLES: (counters.samples, "model"),
        RUN: (counters.run_s, "model"),
    }
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in places:
                counted, label = places[sample.name]
                counted[sample.labels[label]] = sample.value
    return counters


class Target(Protocol):
    """Where requests go: call `open` first, `close` last, and encode before sending load."""

    where: str
    encoded_deadline_s: float | None
    """The deadline that `encode` writes into each request; None if none is encoded."""

    async def open(self) -> None:
        """Connect; raises `InvalidInput` if nothing answers, or not to this client."""
        ...

    def encode(self, inputs: Arrays) -> Any:
        """Return a request for one sample; it can be sent any number of times."""
        ...

    async def exchange(
        self, request: Any, within_s: float, sent_unix_s: float | None = None, deadline_s: float | None = None
    ) -> Reply:
        """Send a request and return the reply.

        Raises `NoAnswer` if none arrives in `within_s`, `InvalidInput` if it makes no sense.
        `sent_unix_s` tells the server when the request was sent, `deadline_s` how long after that
        it is due, if no deadline was encoded.
        """
        ...

    async def counters(self) -> Counters:
        """Return the server's counters; empty if it has none."""
        ...

    async def close(self) -> None:
        """Close all connections; may be called without `open`."""
        ...


def answered_with(
    outputs: Mapping[str, Sequence[Any]],
    output: str,
    *,
    gear: int | None,
    outcome: str,
    where: str,
    reason: str | None = None,
) -> Reply:
    """Return the reply of an answer; raises `InvalidInput` unless `output` has one value."""
    values = outputs.get(output, ())
    if len(values) != 1:
        raise InvalidInput(
            f"the answer has no output {output!r} of one value",
            where=where,
            remedy=f"replay against an operator that answers one {output!r} per row",
        )
    model, stage = outputs.get(MODEL), outputs.get(STAGE)
    return Reply(
        200,
        "",
        values[0],
        gear,
        outcome == "degraded",
        model[0] if model else None,
        stage[0] if stage else None,
        outcome == "answered" and reason == BY_TIME,
    )


def unreachable(where: str, why: object) -> InvalidInput:
    return InvalidInput(
        f"cannot be reached ({why})",
        where=where,
        remedy="start it with `gearshift serve`, or give the URL as http://HOST:PORT",
    )
