"""What every peer serves, as the variable PEER says in JSON: an echo, or a model of the demo on a core of its own."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

SETTINGS = json.loads(os.environ.get("PEER", "{}"))
BATCH = SETTINGS.get("batch", 32)
BOUND_S = SETTINGS.get("bound_s")
"""An answer may take so long; nothing says that a peer need bound it where this is None."""
WAITING = SETTINGS.get("waiting")
"""And so many requests may wait."""


def load() -> Callable[[np.ndarray], np.ndarray]:
    """Rows in, as many rows out: the same, or one label each; or one row.  A model keeps the process to its core."""
    if "model" not in SETTINGS:
        return lambda x: x
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {SETTINGS["core"]})
    from gearshift.demo import task

    model = task.load(Path(SETTINGS["trained"]), SETTINGS["model"])

    def labels(x: np.ndarray) -> np.ndarray:
        best = model.predict_proba(np.atleast_2d(x)).argmax(axis=1)
        return model.classes_[best].reshape(*x.shape[:-1], 1)

    return labels
