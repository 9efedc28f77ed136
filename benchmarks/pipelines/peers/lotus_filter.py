"""Thresholds that LOTUS learns for filters, on recorded answers: run in its own environment.

`python lotus_filter.py FOLDER` prints the outcomes of the tasks in it. Its settings are the defaults but for the
targets and the chance of failure; it samples among the first 200 rows. It promises nothing of agreement.
"""

import sys
from pathlib import Path

import numpy as np
from filters import run_all
from lotus.sem_ops.cascade_utils import calibrate_llm_logprobs, importance_sampling, learn_cascade_thresholds
from lotus.types import CascadeArgs


def passed(
    scores: np.ndarray, dear: np.ndarray, level: float, doubt: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """What the filter says of each row, and which rows the dear model was called for."""
    arguments = CascadeArgs(
        recall_target=level, precision_target=level, failure_probability=doubt, cascade_IS_random_seed=seed
    )
    proxy = np.array(calibrate_llm_logprobs(scores.tolist(), arguments))
    sample, factors = importance_sampling(proxy.tolist(), arguments)
    (high, low), _ = learn_cascade_thresholds(proxy[sample].tolist(), dear[sample].tolist(), factors[sample], arguments)
    asked = (proxy < high) & (proxy > low)
    says = np.where(asked, dear, proxy >= high)
    asked[sample] = True
    return says, asked


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), {"recall and precision": passed})
