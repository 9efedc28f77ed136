"""Requests, their samples and their answers: structs, which are made faster than dataclasses."""

from typing import Any, Literal

import msgspec

from gearshift.decisions import Ending

NO_DEADLINE_NS = 1 << 62
MOST_URGENT = 1
LEAST_URGENT = 1000
NOT_BULK = -1

Outcome = Literal["answered", "degraded", "late", "refused", "failed"]
BY_TIME = "time"
"""The reason of an answer that was given because the time to refine had ended."""
Late = Literal["answer", "refuse"]
"""Handling of requests that cannot be answered by their client's deadline."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request of `rows` samples; times are nanoseconds since the run began.

    `deadline_ns` is the client's deadline, which orders queues and may drop samples; `answer_by_ns`
    is when the objective wants the answer. Both are `NO_DEADLINE_NS` when absent.
    """

    id: int
    operator: str
    arrived_ns: int
    rows: int = 1
    sent_ns: int | None = None
    deadline_ns: int = NO_DEADLINE_NS
    answer_by_ns: int = NO_DEADLINE_NS
    priority: int = LEAST_URGENT
    payload_bytes: int = 0
    attempt: int = 1
    pipeline: int = 0
    """Its number in the plan, whose name is `operator`."""
    bulk_gear: int = NOT_BULK
    """The gear whose cascades bulk work keeps."""

    @property
    def is_bulk(self) -> bool:
        return self.bulk_gear != NOT_BULK

    @property
    def late_after_ns(self) -> int:
        """The client's deadline, or the objective's where the client gave none."""
        return self.answer_by_ns if self.deadline_ns == NO_DEADLINE_NS else self.deadline_ns


class BulkWork(msgspec.Struct, frozen=True, kw_only=True):
    """Asks that a request is bulk work: not metered, and behind all others.

    It keeps the cascades of `gear`, or of the cheapest one that is predicted to reach `accuracy`; by default
    the accuracy of the pipeline's objective counts.
    """

    gear: int | None = None
    accuracy: float | None = None


class Sample(msgspec.Struct, eq=False):
    """One row of a request on its way through a cascade; owned and changed by the router alone.

    In a graph, a request row, or one of the items made for it, which share its request.
    """

    request: Request
    row: int
    sequence: int
    payload: object = None
    visited: int = 0
    entered_ns: int = 0
    replica: int = -1
    """The replica in whose queue it was put last."""
    queue_ns: int = 0
    run_ns: int = 0
    stage: int = 0
    model: int = -1
    certainty: float = 0.0
    exit_segment: int = 0
    result: object = None
    error: str = ""
    degraded_by: str = ""
    """Why an earlier stage answered although its certainty was below the threshold."""
    unanswered: bool = False
    """Whether its model had no answer, for example because a remote endpoint failed."""
    unreached: bool = False
    """Whether that was because the endpoint sent nothing, not because of an unusable answer."""
    raised: bool = False
    """Whether `error` is that the model raised on it, and did not refuse it."""
    tried_again: bool = False
    """Whether a second replica of the same model runs it, as the first gave no answer."""
    raised_at: int = -1
    """The first of these replicas, if the model raised there."""
    skipped: int = 0
    """The models among `visited` that gave no answer, where a later stage runs it instead."""
    refused: bool = False
    """Whether `error` is that a model had no worker or no answer: not the request's fault."""
    ending: Ending = Ending.ANSWERED
    """The way its deadline was missed, where that is its `error`; or that it was answered by time."""
    until_ns: int = 0
    """Where rows are refined, when its time to refine ends."""
    over: bool = False
    """Whether it was answered by time while a batch that it was in still ran, whose answer comes too late."""
    poisonous: bool = False
    """Whether `error` is that this sample ended its workers."""
    attempt: int = 1
    """One more than the runs that were lost with their worker."""
    expected_end_ns: int = 0
    """When the last batch that it was in ends by the profiled run times."""
    run_by_ns: int | None = None
    """The latest time to run, once a worker was lost while running it, or no worker is there."""
    node: int = 0
    """Its number in the plan."""
    scope: Any = None
    """Where it is in a graph (`runtime/router/graph.py`): an item's, or the outermost of a request row."""
    cut: tuple[tuple[int, int], ...] = ()
    """Of a request row, the fan-outs that took a part of their rows, each with the number that there were."""
    missing: tuple[tuple[int, str], ...] = ()
    """Of a request row, the nodes that failed and are not required, each with the reason."""

    @property
    def has_answer(self) -> bool:
        """Whether an earlier stage has answered it."""
        return self.visited != self.skipped


class RowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The model that answered a row, at which stage and exit, and its certainty.

    `by_time`: it would have been refined, but its time to refine ended.
    """

    model: str
    stage: int
    certainty: float
    exit_segment: int = 0
    by_time: bool = False


class ItemFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a request `row` at a node of its pipeline: the model that answered it, or the error.

    `inside` numbers its row in each fan-out around it, the outermost first.
    """

    node: str
    row: int
    model: str = ""
    stage: int = 0
    certainty: float = 0.0
    exit_segment: int = 0
    queue_s: float = 0.0
    run_s: float = 0.0
    error: str = ""
    inside: tuple[int, ...] = ()


class MissingNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node without an answer for a request `row`, and why: it failed, or no edge to it was live.

    Where `is_output`, the row has no answer at all.
    """

    node: str
    row: int
    reason: str
    is_output: bool = False


class CutRows(msgspec.Struct, frozen=True, kw_only=True):
    """A fan-out that took a part of a request row's `rows`: as many as its node allows."""

    node: str
    row: int
    rows: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request, row by row, and the seconds that it queued and ran.

    `items`, `missing` and `cut` are those of a pipeline of several nodes. Where queues are full, the
    request may be sent again after `retry_after_s`.
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
    items: tuple[ItemFacts, ...] = ()
    missing: tuple[MissingNode, ...] = ()
    cut: tuple[CutRows, ...] = ()
    retry_after_s: int = 1
