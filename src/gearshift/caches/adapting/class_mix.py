"""How frequent each class is of late, which learned caches are set for.

A predictor learns from samples of some mix of classes.  Where another mix comes, its distribution is off by the ratio
of the two, class by class, and by Bayes' rule right again once multiplied by it (Saerens, Latinne and Decaestecker
2002): no network is trained.  A class that dominates is so recognised earlier, and samples of the build, counted by
their class, stand for what comes now.
"""

import math
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.policies.watch.class_mix import LATEST, of_another_mix

STRENGTH = 0.5
"""Of a mix of which nothing is known, in answers of the build's mix, for each class that there is."""
KNOWN = 10.0
"""Of the mix at the start, likewise."""
MORE = 1.5
"""Times as many answers of a mix as when caches were last set for it tell it better."""
MOST = 1000.0
"""Answers that count."""
ROUNDS = 50
HARDLY_EVER = 0.5
"""Samples of each class that a build is taken to have beyond those that it has: none is impossible."""
MOST_CLASSES = 1000
"""Of which it is looked at which is taken for which; of more, a sample is taken to be what it is answered as."""


class Mix(NamedTuple):
    """The shares of classes among answers of the base model and among samples (classes,), and since when."""

    answers: NDArray[np.float64]
    labels: NDArray[np.float64]
    since_s: float


class ClassMix:
    """The mix of the classes that the base model answers, since it was last another one.

    `answers` (n,) are those to the build's samples, of `classes`, and `labels` (n,) what these samples are; `in_use` is
    the mix of answers that caches are set for.
    """

    def __init__(
        self, answers: NDArray[np.int64], labels: NDArray[np.int64], classes: int, in_use: tuple[float, ...] = ()
    ) -> None:
        self._answered: NDArray[np.float64] | None = None
        labels = labels_of(labels, answers, classes)
        if classes <= MOST_CLASSES:
            self._answered = np.eye(classes) * HARDLY_EVER
            np.add.at(self._answered, (labels, answers), 1.0)
            self._answered /= self._answered.sum(axis=1, keepdims=True)
        self.built = Mix(mix_of(answers, classes), mix_of(labels, classes), -math.inf)
        self._anew = STRENGTH * classes * self.built.answers
        start = np.array(in_use) if len(in_use) == classes else self.built.answers
        self._start, self._counts = self._anew + KNOWN * classes * start, np.zeros(classes)
        self._latest: deque[tuple[int, float]] = deque()
        self._since, self._set_again_at = 0, math.inf
        self.since_s = -math.inf
        """When the first answer of this mix came."""
        self.due = False
        """Whether caches are to be set for another mix, or for what is better known of it."""

    def add(self, answer: int, at_s: float) -> None:
        """The next answer is of this class."""
        self._latest.append((answer, at_s))
        self._since += 1
        before = (self._start + self._counts).tolist()
        another = of_another_mix([one for one, _ in self._latest], before, self._anew.tolist())
        if another:
            self._latest = deque(list(self._latest)[-another:])
            self._start, self._counts = self._anew, np.zeros(len(self._counts))
            self._since, self.since_s, self._set_again_at = another, self._latest[0][1], another
        if len(self._latest) > LATEST[-1]:
            self._counts[self._latest.popleft()[0]] += 1
            if self._counts.sum() > MOST:
                self._counts /= 2
        self.due = self.due or self._since >= self._set_again_at

    def now(self) -> Mix:
        """What is known of the mix.

        Labels are as likely as can be by what the base model has answered to samples of each class in the build, which
        holds where only their mix is another (expectation maximisation).
        """
        frequent = self._start + self._counts
        for answer, _ in self._latest:
            frequent[answer] += 1
        answers, labels = frequent / frequent.sum(), self.built.labels
        if self._answered is None:
            return Mix(answers, answers, self.since_s)
        for _ in range(ROUNDS):
            both = labels[:, None] * self._answered
            labels = both @ (answers / np.maximum(both.sum(axis=0), 1e-300))
        return Mix(answers, labels, self.since_s)

    def prior(self, answers: NDArray[np.float64]) -> NDArray[np.float64]:
        """The logarithm of how much more frequent each answer is in a mix than in the build (classes,)."""
        return np.asarray(np.log(answers / self.built.answers))

    def taken(self) -> None:
        """Caches are set for what is known now, as well as that goes."""
        self.due = False
        if math.isfinite(self._set_again_at):
            self._set_again_at = math.ceil(MORE * self._since)


def labels_of(labels: NDArray[np.int64], answers: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """By what samples of the build are counted."""
    return labels if classes <= MOST_CLASSES else answers


def mix_of(labels: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """The share of each class (classes,) among samples of these."""
    frequent = np.bincount(labels, minlength=classes) + HARDLY_EVER
    return np.asarray(frequent / frequent.sum())


def weights_to(
    mix: NDArray[np.float64], labels: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What samples of these classes count (n,), such that each class has its share of `mix`, and within it `weights`.

    The shares of classes without samples are missing.
    """
    of_class = np.bincount(labels, weights=weights, minlength=len(mix))
    return np.asarray(weights * mix[labels] / np.where(of_class > 0, of_class, 1.0)[labels])
