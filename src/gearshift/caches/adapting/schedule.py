"""When learned caches are adapted: after an interval, earlier if hits fall, or for other classes."""

import math
from collections import deque

from gearshift.caches.adapting.class_mix import ClassMix
from gearshift.caches.adapting.settings import Adaptation
from gearshift.caches.adapting.successor import LEAST_HELD
from gearshift.caches.adapting.training_samples import TrainingSamples
from gearshift.caches.store.manifest import CLASS_MIX

WATCHED = 200
"""The hit rate is measured on this many latest samples."""
SOONEST = 0.25
"""Share of the interval that must have passed before an early retraining."""


class Schedule:
    """`fresh` counts samples since the last retraining; `sooner` says why the next comes earlier."""

    def __init__(self, settings: Adaptation) -> None:
        self._settings = settings
        self._left_early: deque[bool] = deque(maxlen=WATCHED)
        self._usual_hit_rate: float | None = None
        self.fresh, self.sooner = 0, ""

    def watch(self, *, left_early: bool) -> None:
        self._left_early.append(left_early)
        if len(self._left_early) < WATCHED:
            return
        rate = sum(self._left_early) / WATCHED
        if self._usual_hit_rate is None:
            self._usual_hit_rate = rate
        elif rate < (1 - self._settings.hit_rate_fall) * self._usual_hit_rate:
            self.sooner = "hit rate"

    def watch_anew(self) -> None:
        self._left_early.clear()
        self._usual_hit_rate = None

    def due(self, now_s: float, training_samples: TrainingSamples, classes: ClassMix | None) -> str:
        """Return the reason to adapt now, or ""."""
        if not self._settings.adapt or classes is None:
            return ""
        if classes.due:
            return CLASS_MIX
        if self.fresh == 0 or len(training_samples.window) < self._settings.least_samples:
            return ""
        waited_s, interval_s = now_s - training_samples.window.retrained_s, self._settings.interval_s
        since_s = classes.since_s
        if since_s > -math.inf and training_samples.held_since(since_s) < LEAST_HELD and waited_s < 2 * interval_s:
            return ""  # too few of these classes judge
        if waited_s >= interval_s:
            return "interval"
        return self.sooner if waited_s >= SOONEST * interval_s else ""
