import os

import numpy as np
import pytest
from cache_tasks import Timed, agreement, cascade_threshold, cascaded, in_turn

SURE, UNSURE, OTHER = [0.95, 0.05], [0.6, 0.4], [0.0, 1.0]


def answering(table: dict[float, list[float]], seen: list[int]):
    """Probabilities by an image's first value."""

    def run(images: np.ndarray) -> np.ndarray:
        seen.append(len(images))
        return np.array([table[float(image[0])] for image in images])

    return run


def images(*values: float) -> np.ndarray:
    return np.array([[value] for value in values])


def test_only_images_of_which_the_small_model_is_not_certain_go_on() -> None:
    small, large = list[int](), list[int]()
    run = cascaded(answering({0: SURE, 1: UNSURE}, small), answering({0: OTHER, 1: OTHER}, large), 0.5)
    assert run(images(0, 1, 0, 1, 1)).argmax(axis=1).tolist() == [0, 1, 0, 1, 1]
    assert (small, large) == ([5], [3])
    run(images(0))
    assert large == [3]


@pytest.mark.parametrize(("target", "threshold"), [(0.5, 0.1), (0.75, 0.3), (1.0, 0.6)])
def test_the_threshold_is_the_least_that_keeps_the_target(target: float, threshold: float) -> None:
    """The small model is wrong where it is least certain, the large one never."""
    table = {k: [0.5 + c / 2, 0.5 - c / 2] for k, c in enumerate((0.1, 0.3, 0.6, 0.9))}
    right = {k: [float(k > 1), float(k < 2)] for k in range(4)}
    base = np.array([1, 1, 0, 0])
    found = cascade_threshold(answering(table, []), answering(right, []), base, images(0, 1, 2, 3), target)
    assert found == pytest.approx(threshold)
    wrong_too = {k: [1.0, 0.0] for k in range(4)}
    assert cascade_threshold(answering(table, []), answering(wrong_too, []), base, images(0, 1, 2, 3), 1.0) == 1.0


def test_every_round_runs_all_in_turn_beginning_with_another() -> None:
    order: list[str] = []
    cores = frozenset(os.sched_getaffinity(0))

    def run(name: str):
        def note(batch: np.ndarray) -> None:
            assert os.sched_getaffinity(0) == {min(cores)}
            order.append(name)

        return Timed(note, frozenset({min(cores)}))

    seconds = in_turn({"a": run("a"), "b": run("b")}, images(*range(5)), rounds=3, size=2)
    assert {name: each.shape for name, each in seconds.items()} == {"a": (3, 2), "b": (3, 2)}
    assert order == (["a"] * 4 + ["b"] * 4) + (["b"] * 4 + ["a"] * 4) + (["a"] * 4 + ["b"] * 4)
    assert os.sched_getaffinity(0) == cores


def test_agreement_is_told_with_its_interval() -> None:
    run = answering({0: SURE, 1: OTHER}, [])
    assert agreement(run, np.array([0, 1, 1, 0]), images(0, 1, 0, 0)) == "75.00% (30.06% to 95.44%)"
