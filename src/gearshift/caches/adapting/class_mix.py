"""The current frequency of each class, which learned caches are set for.

A predictor learns from one mix of classes. On another mix its distribution is wrong by the ratio
of the two per class; by Bayes' rule, multiplying by that ratio corrects it without training
(Saerens, Latinne and Decaestecker 2002). Thus a dominant class is recognised earlier, and samples
of the build, weighted by class, represent the current stream.
"""

import math
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.policies.watch.drift import LATEST, of_another_mix

STRENGTH = 0.5
"""Prior of an unknown mix: this many answers of the build's mix per class."""
KNOWN = 10.0
"""Prior of the mix at the start, likewise."""
MORE = 1.5
"""Growth of the number of answers of a mix after which caches are set for it again."""
MOST = 1000.0
"""Largest number of answers that count."""
ROUNDS = 50
HARDLY_EVER = 0.5
"""Samples added to each class of a build: no class is impossible."""
MOST_CLASSES = 1000
"""Most classes for which confusions are counted; beyond, the answer is taken as the label."""


class Mix(NamedTuple):
    """Shares of classes among base answers and among samples (classes,), and the start time."""

    answers: NDArray[np.float64]
    labels: NDArray[np.float64]
    since_s: float


class ClassMix:
    """The mix of classes that the base model answers, since the last change.

    `answers` (n,) and `labels` (n,) are those of the build's samples; `in_use` is the mix of
    answers that caches are set for.
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
        """Whether caches should be set for another mix, or for a better estimate of it."""

    def add(self, answer: int, at_s: float) -> None:
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
        """Return the current estimate of the mix.

        Labels are estimated by expectation maximisation from how the base model answered each
        class in the build; this holds if only the mix has changed.
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
        """Logarithm of how much more frequent each answer is than in the build (classes,)."""
        return np.asarray(np.log(answers / self.built.answers))

    def taken(self) -> None:
        self.due = False
        if math.isfinite(self._set_again_at):
            self._set_again_at = math.ceil(MORE * self._since)


def labels_of(labels: NDArray[np.int64], answers: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    return labels if classes <= MOST_CLASSES else answers


def mix_of(labels: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    frequent = np.bincount(labels, minlength=classes) + HARDLY_EVER
    return np.asarray(frequent / frequent.sum())


def weights_to(
    mix: NDArray[np.float64], labels: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weight samples (n,) so that their classes have the shares of `mix`, split by `weights`."""
    of_class = np.bincount(labels, weights=weights, minlength=len(mix))
    return np.asarray(weights * mix[labels] / np.where(of_class > 0, of_class, 1.0)[labels])
