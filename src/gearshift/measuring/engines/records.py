"""Recorded answers as arrays, with the certainty that a project asks for."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gearshift.measuring.engines.kept import Answered
from gearshift.profiles.engines.certainty import FEATURES
from gearshift.profiles.engines.judge import FittedJudge, fit_judge
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, AnswerRecords
from gearshift.profiles.profile import PART_A, split_parts

Floats = NDArray[np.float64]


def records_of(
    certainty_name: str,
    models: Sequence[str],
    rows: Sequence[Sequence[Answered]],
    quality: Floats,
    *,
    judged: bool,
    seed: int,
) -> tuple[AnswerRecords, tuple[FittedJudge, ...]]:
    """From each model's answers to the same prompts; for the certainty `judge`, judges are fitted on part A."""
    part = split_parts(np.arange(quality.shape[1]), seed)
    features = np.array([[answer.features for answer in row] for row in rows])
    judges: tuple[FittedJudge, ...] = ()
    if certainty_name == "judge":
        a = part == PART_A
        judges = tuple(fit_judge(model, features[m, a], quality[m, a]) for m, model in enumerate(models))
        certainty = np.array([_of_judge(judge, features[m]) for m, judge in enumerate(judges)])
    elif certainty_name == "sum_logprob":
        certainty = np.array([[answer.sums for answer in row] for row in rows])
    else:
        certainty = features[..., FEATURES.index(certainty_name)]
    records = AnswerRecords(
        models=tuple(models),
        quality=quality,
        certainty=np.ascontiguousarray(certainty),
        prompt_tokens=np.array([[answer.prompt_tokens for answer in row] for row in rows]),
        output_tokens=np.array([[answer.output_tokens for answer in row] for row in rows]),
        part=part,
        judged=judged,
    )
    return records, judges


def _of_judge(judge: FittedJudge, features: Floats) -> Floats:
    """(n, decision tokens), from features (n, decision tokens, features)."""
    return np.array([[judge.quality(at, row[at]) for at in range(len(DECIDE_AT_TOKENS))] for row in features])
