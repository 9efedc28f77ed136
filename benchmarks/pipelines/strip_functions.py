"""The functions and models of `gearshift init --pipeline`, called one at a time by peers of a pipeline."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

THRESHOLD = 0.9
"""Of the difference of the two highest probabilities: a digit below it is read by the forest, too."""


class Functions:
    """In a worker process, kept to one core; `sure` reads digits by network and forest, else by the network alone."""

    def __init__(self, folder: str, core: int, sure: bool) -> None:
        os.sched_setaffinity(0, {core})
        place = importlib.util.spec_from_file_location("models", Path(folder) / "models.py")
        assert place is not None
        assert place.loader is not None
        self._code: Any = importlib.util.module_from_spec(place)
        place.loader.exec_module(self._code)
        self._network: Any = self._code.load_network()
        self._forest: Any = self._code.load_forest() if sure else None

    def split(self, strip: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        return list(self._code.split(strip)["parts"][0])

    def read(self, image: NDArray[np.float32]) -> int:
        """The digit on an image (64,)."""
        chances = self._network.predict_proba(image[None])[0]
        least, most = np.partition(chances, -2)[-2:]
        if self._forest is not None and most - least < THRESHOLD:
            chances = self._forest.predict_proba(image[None])[0]
        return int(self._network.classes_[chances.argmax()])

    def join(self, labels: list[int]) -> str:
        return str(self._code.join([labels])["label"][0])


_HERE: list[Functions] = []


def begin(folder: str, core: int, sure: bool) -> None:
    """In a worker of a pool, before the first call."""
    _HERE.append(Functions(folder, core, sure))


def call(name: str, argument: Any) -> Any:
    return getattr(_HERE[0], name)(argument)
