"""Decides which settings of a replica are in force where gears of several pipelines use it."""

from collections.abc import Sequence


def settings_in_force(
    replica: int,
    gear_rows: Sequence[int],
    replicas: int,
    shares: Sequence[int],
    minimum_queue_length: Sequence[int],
    largest_batch_size: Sequence[int],
    longest_wait_ns: Sequence[int],
) -> tuple[int, int, int]:
    """Minimum queue length, largest batch and longest wait of `replica`.

    `gear_rows` are the rows of the pipelines' gears in the arrays by gear and replica. Gears that
    give the replica a share count; without any, all do. A larger batch serves all, and a shorter
    queue and wait keep the tightest latency.
    """
    cell = gear_rows[0] * replicas + replica
    used = shares[cell] > 0
    minimum, largest, wait_ns = minimum_queue_length[cell], largest_batch_size[cell], longest_wait_ns[cell]
    for at in range(1, len(gear_rows)):
        cell = gear_rows[at] * replicas + replica
        uses = shares[cell] > 0
        if uses and not used:
            used = True
            minimum, largest, wait_ns = minimum_queue_length[cell], largest_batch_size[cell], longest_wait_ns[cell]
        elif uses == used:
            minimum = min(minimum, minimum_queue_length[cell])
            largest = max(largest, largest_batch_size[cell])
            wait_ns = min(wait_ns, longest_wait_ns[cell])
    return minimum, largest, wait_ns
