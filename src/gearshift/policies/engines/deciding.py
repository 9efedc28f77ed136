"""Where in a cascade a request begins, and when a stage decides."""

from collections.abc import Sequence

DECIDES_AT_END = -1
DECIDES_BY_ID = 0
"""A stage that decides before its first token, by a number in [0, 1) made from the request's id."""


def first_stage(
    by_id: float, stage_count: int, thresholds: Sequence[float], decide_at: Sequence[int], base: int
) -> int:
    """The stage at which a request begins: stages that decide by id, and not for it, are passed over.

    So a threshold t of such a stage leaves it a share 1 - t of the requests.
    """
    stage = 0
    while stage < stage_count - 1 and decide_at[base + stage] == DECIDES_BY_ID and by_id < thresholds[base + stage]:
        stage += 1
    return stage


def decides_now(stage: int, stage_count: int, tokens: int, ended: bool, decide_at: Sequence[int], base: int) -> bool:
    """Whether a stage that has given `tokens` decides about its answer now.

    The last one, and one that decided by id, do so before the first token; others at theirs, or
    where the answer ends before it.
    """
    if stage == stage_count - 1 or decide_at[base + stage] == DECIDES_BY_ID:
        return True
    return ended or (decide_at[base + stage] != DECIDES_AT_END and tokens >= decide_at[base + stage])
