"""A request to language models, as the router knows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

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
    last stage, which answers. The router sets what follows.
    """

    number: int
    by_id: float
    prompt_tokens: Sequence[int]
    most_tokens: int = NO_MOST_TOKENS
    choices: int = 1
    whole: bool = False
    last_alone: bool = False
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
