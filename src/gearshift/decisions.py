"""The decision log: rows of integers, one per decision, that simulator and router both write."""

from enum import IntEnum


class Decision(IntEnum):
    """Kinds of rows `(now_ns, kind, a, b, c)`."""

    ROUTE = 1
    """Sample a enters the queue of replica b at stage c of its visits (0 for an arrival)."""
    REFUSE = 2
    """Sample a is refused; b is an `Ending`, c the node that would begin too late, 0 at arrival."""
    START = 3
    """Replica a starts a batch of b samples for reason c."""
    TAKE = 4
    """The batch that replica a just started holds sample b; one row per sample, in its order."""
    ANSWER = 5
    """Sample a is answered by model b in gear c."""
    SHIFT = 6
    """Gear a of pipeline c gives way to gear b."""
    DROP = 7
    """Sample a leaves the queue of replica b without an answer; c is an `Ending`."""
    DEGRADE = 8
    """Sample a is answered by model b in gear c, because the next model would answer too late."""
    CORES = 9
    """Replica a is to have b cores by the new gear, in place of c before."""
    SPAWN = 10
    """Item a is made at node b for request row c; only in graphs."""
    JOIN = 11
    """Node b of request row a begins after c live edges; 0: it is the output, which is skipped."""
    CHOOSE = 12
    """Item a at node b takes implementation c; only where a gear allows several."""
    ENQUEUE = 13
    """Request a waits for an engine of model b at stage c."""
    SEND = 14
    """Request a is sent to the engine of replica b, as the c-th that it has outstanding."""
    CANCEL = 15
    """Request a is taken from the engine of replica b after c tokens, as its stage was not sure."""
    RELEASE = 16
    """Item a is answered by model b in gear c, because its time to refine ended."""


class Ending(IntEnum):
    """How a sample ended."""

    ANSWERED = 0
    DEGRADED = 1
    """Answered by an earlier stage although its certainty was below the threshold."""
    QUEUE_FULL = 2
    INFEASIBLE = 3
    """It could no longer be answered by its deadline."""
    EXPIRED_IN_QUEUE = 4
    """Its deadline passed while it waited."""
    EXECUTION = 5
    """Its deadline passed while it ran."""
    TIME = 6
    """Answered with what it had when its time to refine ended."""


LogRow = tuple[int, int, int, int, int]
