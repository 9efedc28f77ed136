"""When a request that comes now gets its first token, whether that is in time, and when another engine is asked too."""

from collections.abc import Sequence

HEDGE_FACTOR = 4
SHORTEST_HEDGE_NS = 250_000_000
USABLE_PERCENT = 80
"""Share of the objective within which first tokens are predicted: predictions and queues vary."""


def first_token_ns(
    begin: int,
    end: int,
    base: int,
    closed: Sequence[bool],
    shares: Sequence[int],
    slots: Sequence[int],
    outstanding: Sequence[int],
    work_ns: Sequence[int],
    waiting_ns: int,
    own_ns: int,
    prompt_ns: int,
) -> int:
    """Nanoseconds until the first token of a request that begins to wait for a model now.

    The model's replicas are `begin` to `end`; those that are `closed`, or without a share in the
    gear's row at `base`, take none. Replica r decodes up to `slots[r]` requests at a time and has
    `outstanding[r]`, with `work_ns[r]` of work left. Work of `waiting_ns` waits before the request,
    whose own is `own_ns`, `prompt_ns` of it until its first token. Work is in nanoseconds of a full
    engine: such an engine ends a request of `own_ns` every `own_ns`.
    """
    sharing, ahead_ns, has_slot, shared = 0, waiting_ns, False, 0
    for replica in range(begin, end):
        if not closed[replica]:
            shared += shares[base + replica]
    for replica in range(begin, end):
        if closed[replica] or (shared > 0 and shares[base + replica] == 0):
            continue
        sharing += 1
        beyond = outstanding[replica] - slots[replica]
        if beyond < 0:
            has_slot = True
        elif beyond > 0:
            ahead_ns += work_ns[replica] * beyond // outstanding[replica]
    if has_slot and waiting_ns == 0:
        return prompt_ns
    return (ahead_ns + own_ns) // max(1, sharing) + prompt_ns


def in_time(predicted_ns: int, left_ns: int, percent: int) -> bool:
    """Whether a predicted first token comes within `percent` of the time that is left."""
    return 100 * predicted_ns <= percent * left_ns


def hedge_after_ns(expected_ns: int) -> int:
    """How long a first token is waited for before another replica, or the next stage, is asked as well."""
    return max(SHORTEST_HEDGE_NS, HEDGE_FACTOR * expected_ns)
