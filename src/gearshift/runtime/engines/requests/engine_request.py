"""A request to language models, as the router knows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from gearshift.request import NO_DEADLINE_NS

StageOutcome = Literal["answered", "unsure", "failed", "cancelled"]
NOWHERE = -1
NO_MOST_TOKENS = 1 << 30


class Sent(NamedTuple):
    """The engine that has a request, by the numbers of the tables, and since when."""

    model: int
    replica: int
    stage: int
    sent_ns: int


class StageVisit(NamedTuple):
    """A stage of one request: when it was queued, sent to its engine and left it, and the tokens it took.

    `prompt_tokens` are as the engine counted, or else as guessed. `unsure` stages gave way to another.
    """

    model: str
    replica: str
    stage: int
    queued_ns: int
    sent_ns: int
    ended_ns: int
    prompt_tokens: int
    output_tokens: int
    certainty: float
    outcome: StageOutcome


@dataclass(slots=True, eq=False)
class EngineRequest:
    """`by_id` is a number in [0, 1) made from its id; `prompt_tokens` (models,) differ by tokenizer.

    With `whole` all stages decide at the end of their answers; with `last_alone` it begins at the
    last stage, which answers. `deadline_ns` is the client's, for what it sees first, less a margin: it
    orders what waits, and ends a cascade. After `refuse_after_ns` nothing is given to those who have
    seen nothing; `seen_whole` requests see all of their answer or nothing. The router sets what follows.
    """

    number: int
    by_id: float
    prompt_tokens: Sequence[int]
    most_tokens: int = NO_MOST_TOKENS
    choices: int = 1
    whole: bool = False
    last_alone: bool = False
    deadline_ns: int = NO_DEADLINE_NS
    refuse_after_ns: int = NO_DEADLINE_NS
    seen_whole: bool = False
    model: int = NOWHERE
    """The model that it waits for, runs on, or was answered by."""
    stage: int = 0
    replica: int = NOWHERE
    """The replica that works on it."""
    tokens: int = 0
    """That the present model has given."""
    visited: int = 0
    """Bits of the models that it was sent to."""
    answered: bool = False
    """Whether a stage has decided to answer: what it gave, and will give, may be shown."""
    degraded: bool = False
    """Answered by an earlier stage than its certainty asked for, as no later one has a replica."""
    decided_at: int = NOWHERE
    gear: int = NOWHERE
    """The gear in which it was answered."""
    whole_answer_of: int = NOWHERE
    """The last model whose whole answer is there, though it was not sure."""
    failed_replicas: int = 0
    """Bits of the replicas that could not answer it."""
    prompt_ns: int = 0
    output_ns: int = 0
    order_ns: int = 0
    """Requests that wait for a model are sent in this order, the earliest first."""
    wait_until_ns: int = 0
    """How long it waits for replicas that asked to be sent nothing for a while; 0: none has."""
    late: bool = False
    """Whether its deadline passed, or cannot be kept any more."""
    shown: bool = False
    """Whether the client has seen some of the answer, so that no other engine can take over."""
    sent_ns: int = 0
    first_token_ns: int = 0
    """The time that its first token was expected to take when it was sent."""
    first_token_came_ns: int = 0
    hedge: "Hedge | None" = None

    @property
    def ends_ns(self) -> int:
        """When it ends with what there is; where that is nothing, only if late answers are refused."""
        has_nothing = self.tokens == 0 and self.whole_answer_of == NOWHERE
        return self.refuse_after_ns if has_nothing else self.deadline_ns


class Hedge(NamedTuple):
    """A second engine that is asked as well, as the first token is late; its work in nanoseconds."""

    model: int
    replica: int
    stage: int
    prompt_ns: int
    output_ns: int
    first_token_ns: int
