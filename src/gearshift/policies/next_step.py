"""Decides, where a stage has ended, whether its sample is answered or which model is next."""

from collections.abc import Sequence

ANSWER = -1
NOT_IN_CASCADE = -1


def next_step(
    stage: int,
    certainty: float,
    visited: int,
    stage_count: int,
    stage_models: Sequence[int],
    thresholds: Sequence[float],
    base: int,
) -> int:
    """The model a sample goes to after a stage of the gear in force, or `ANSWER`: by threshold.

    `stage` is the place of the model that just ran in that gear's cascade, or `NOT_IN_CASCADE`:
    then the sample answers with its present answer. It never returns to a model it has visited
    (bits of `visited`): later stages that it has visited are skipped. The gear's row begins at
    `base` in `stage_models` and `thresholds`.
    """
    if stage == NOT_IN_CASCADE or stage == stage_count - 1 or certainty >= thresholds[base + stage]:
        return ANSWER
    for later in range(stage + 1, stage_count):
        model = stage_models[base + later]
        if (visited >> model) & 1 == 0:
            return model
    return ANSWER
