"""Load as outstanding work, and which replica of a model gets the next request.

Ken (section 4.1) chooses gears for language models by the work that is outstanding: what engines
have, and what waits for them. It counts passes; `drain_s` counts the time that they take.
"""

from collections.abc import Sequence

LOAD_OUTSTANDING_REQUESTS = 0
LOAD_QUEUED_TOKENS = 1
LOAD_DRAIN_S = 2


def expected_output_tokens(
    prompt_tokens: int, most_tokens: int, edges: Sequence[int], expected: Sequence[int], begin: int, end: int
) -> int:
    """The answer's expected length: that of the first bin from `begin` to `end` whose edge is not below the prompt."""
    place = begin
    while place < end - 1 and edges[place] < prompt_tokens:
        place += 1
    return min(expected[place], most_tokens)


def replica_with_room(
    begin: int,
    end: int,
    base: int,
    outstanding: Sequence[int],
    work_ns: Sequence[int],
    most_outstanding: Sequence[int],
    shares: Sequence[int],
    lost: Sequence[bool],
) -> int:
    """The replica of a model with the least work for its share that may have one more; -1: none.

    The gear's row begins at `base`. Where the gear gives no replica that is there a share, all have the same.
    """
    shared = 0
    for replica in range(begin, end):
        if not lost[replica]:
            shared += shares[base + replica]
    best, least, share_of_best = -1, 0.0, 1
    for replica in range(begin, end):
        share = shares[base + replica] if shared > 0 else 1
        if lost[replica] or share == 0 or outstanding[replica] >= most_outstanding[base + replica]:
            continue
        work = work_ns[replica] + 1.0
        if best < 0 or work * share_of_best < least * share:
            best, least, share_of_best = replica, work, share
    return best


def model_drain_ns(
    begin: int, end: int, base: int, waiting_ns: int, work_ns: Sequence[int], shares: Sequence[int]
) -> int:
    """The time to clear what a model's replicas have and what waits for them.

    The longest of its replicas, where what waits is spread over those with a share.
    """
    sharing, longest = 0, 0
    for replica in range(begin, end):
        if shares[base + replica] > 0:
            sharing += 1
        longest = max(longest, work_ns[replica])
    total = waiting_ns
    for replica in range(begin, end):
        total += work_ns[replica]
    return max(longest, total // max(1, sharing))


def outstanding_load(load_unit: int, requests: int, prompt_tokens: int, drain_ns: int) -> float:
    """The load by which a gear is chosen.

    `requests` are all that are not finished; `prompt_tokens` those of prompts that no first token
    came for; `drain_ns` is the longest of the models'.
    """
    if load_unit == LOAD_OUTSTANDING_REQUESTS:
        return float(requests)
    if load_unit == LOAD_QUEUED_TOKENS:
        return float(prompt_tokens)
    return drain_ns / 1e9
