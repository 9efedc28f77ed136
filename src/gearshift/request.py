"""Requests, their samples and their answers: structs, which are made in a fraction of a dataclass's time."""

from typing import Literal

import msgspec

from gearshift.decisions import Ending

NO_DEADLINE_NS = 1 << 62
MOST_URGENT = 1
LEAST_URGENT = 1000

Outcome = Literal["answered", "degraded", "late", "refused", "failed"]
Late = Literal["answer", "refuse"]
"""What becomes of a request that cannot be answered by the deadline that its client gave."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request of `rows` samples; times are nanoseconds since the run began.

    `deadline_ns` is `NO_DEADLINE_NS` when absent.  `deadline_is_default` marks one that only the operator's
    default gave: such a deadline counts as absent in the order of queues.
    """

    id: int
    operator: str
    arrived_ns: int
    rows: int = 1
    sent_ns: int | None = None
    deadline_ns: int = NO_DEADLINE_NS
    deadline_is_default: bool = False
    priority: int = LEAST_URGENT
    payload_bytes: int = 0
    attempt: int = 1

    @property
    def order_deadline_ns(self) -> int:
        """The deadline that orders queues."""
        return NO_DEADLINE_NS if self.deadline_is_default else self.deadline_ns


class Sample(msgspec.Struct, eq=False):
    """One row of a request on its way through a cascade; owned and changed by the router alone."""

    request: Request
    row: int
    sequence: int
    payload: object = None
    visited: int = 0
    entered_ns: int = 0
    replica: int = -1
    """In whose queue it was put last."""
    queue_ns: int = 0
    run_ns: int = 0
    stage: int = 0
    model: int = -1
    certainty: float = 0.0
    exit_segment: int = 0
    result: object = None
    error: str = ""
    degraded_by: str = ""
    """Why an earlier stage answered than its certainty asked for."""
    unanswered: bool = False
    """Whether its model said that it has no answer, such as for want of a remote endpoint."""
    unreached: bool = False
    """Whether it has none because nothing came from there, and not one that does not count."""
    refused: bool = False
    """Whether `error` is that a model had no worker or no answer, and so no fault of the request."""
    ending: Ending = Ending.ANSWERED
    """Where `error` is that its deadline could not be kept, in which way."""
    poisonous: bool = False
    """Whether `error` is that workers ended of this sample."""
    attempt: int = 1
    """Counts the runs that were lost with their worker, and the next."""
    due_ns: int = 0
    """When the batch that it was in last was to end."""
    run_by_ns: int | None = None
    """By when it must run, once it has lost a worker that ran it, or has none to wait for."""


class RowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Which model answered a row, at which stage and exit, and how certain it was."""

    model: str
    stage: int
    certainty: float
    exit_segment: int = 0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request, row by row, and the seconds that it queued and ran.

    Where queues are full, the request may be sent again after `retry_after_s`.
    """

    outcome: Outcome
    reason: str = ""
    rows: tuple[RowFacts, ...] = ()
    outputs: object = None
    gear: int = 0
    queue_s: float = 0.0
    run_s: float = 0.0
    remaining_s: float | None = None
    errors: tuple[str, ...] = ()
    retry_after_s: int = 1
