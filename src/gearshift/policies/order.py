"""The order of samples in a queue, and of replicas on a device."""

Urgency = tuple[int, int, int, int]


def queue_key(priority: int, deadline_ns: int, entered_ns: int, sequence: int) -> Urgency:
    """The order in a queue, smallest first: priority, deadline, entry, arrival."""
    return priority, deadline_ns, entered_ns, sequence


def is_starving(oldest_entered_ns: int, now_ns: int, starvation_ns: int) -> bool:
    """Whether a queue's oldest sample has waited enough to go before all; never with 0."""
    return starvation_ns > 0 and now_ns - oldest_entered_ns >= starvation_ns


def replica_key(starving: bool, priority: int, deadline_ns: int, oldest_entered_ns: int) -> Urgency:
    """The order between the ready replicas of a device, smallest first.

    Class and deadline are those of the queue's head; then comes the longest time in *this* queue.
    By arrival instead, later stages would always win and the cheap first stage would wait behind
    large batches.
    """
    if starving:
        return 0, 0, 0, oldest_entered_ns
    return 1, priority, deadline_ns, oldest_entered_ns
