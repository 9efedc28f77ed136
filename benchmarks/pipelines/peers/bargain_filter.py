"""Filters by BARGAIN on recorded answers: run in its own environment.

`python bargain_filter.py FOLDER` prints the outcomes of the tasks in it.
"""

import sys
from pathlib import Path

import numpy as np
from BARGAIN import BARGAIN_A, BARGAIN_PR, Oracle, Proxy
from filters import run_all


class Scores(Proxy):
    """A proxy that answers from recorded scores, all rows at once."""

    def __init__(self, scores: np.ndarray) -> None:
        super().__init__(verbose=False)
        self.scores = scores

    def get_preds_and_scores(self, indxs, data_records):
        scores = self.scores[np.asarray(indxs, dtype=int)]
        return (scores >= 0.5).astype(int), np.maximum(scores, 1 - scores)


class Answers(Oracle):
    """An oracle that answers from recorded answers, and counts the rows it was asked for."""

    def __init__(self, dear: np.ndarray) -> None:
        super().__init__(verbose=False)
        self.dear, self.asked = dear, np.zeros(len(dear), dtype=bool)

    def get_pred(self, data_records, indxs=None):
        rows = np.asarray(indxs, dtype=int)
        self.asked[rows] = True
        return self.dear[rows].astype(int)

    def is_answer_correct(self, data_indxs, data_records, proxy_output_at_indxs):
        return self.get_pred(data_records, data_indxs) == np.asarray(proxy_output_at_indxs)

    def get_number_preds(self) -> int:
        return int(self.asked.sum())

    def reset(self) -> None:
        self.asked[:] = False


def agreeing(scores, dear, level, doubt, seed):
    oracle = Answers(dear)
    process = BARGAIN_A(Scores(scores), oracle, target=level, delta=doubt, seed=seed, verbose=False)
    says = process.process([str(i) for i in range(len(dear))])
    return np.array(says).astype(bool), oracle.asked


def recalling(scores, dear, level, doubt, seed):
    oracle = Answers(dear)
    process = BARGAIN_PR(Scores(scores), oracle, target=level, delta=doubt, seed=seed, verbose=False)
    positive = process.process([str(i) for i in range(len(dear))])
    says = np.zeros(len(dear), dtype=bool)
    says[np.array(positive, dtype=int)] = True
    return says, oracle.asked


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), {"agreement": agreeing, "recall and precision": recalling})
