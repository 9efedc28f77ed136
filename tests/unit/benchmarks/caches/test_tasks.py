import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.caches.tasks import Task, Timed, agreement, cascade_threshold, cascaded, in_turn, options_of, task_of
from benchmarks.shared.cifar_networks import home_of, normalised, pixels_of

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


@pytest.mark.parametrize(
    ("given", "in_environment", "data"),
    [
        ((), "", None),
        ((), "there", Path("there")),
        (("--data", "here"), "there", Path("here")),
        (("--digits",), "there", None),
        (("--digits", "--data", "here"), "", None),
    ],
)
def test_the_data_are_those_of_the_environment_unless_digits_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], in_environment: str, data: Path | None
) -> None:
    monkeypatch.setenv("GEARSHIFT_DATA", in_environment)
    monkeypatch.setattr("sys.argv", ["tail.py", *given])
    assert task_of(options_of("").parse_args()).data == data


def test_what_is_explored_is_chosen_by_options() -> None:
    task = task_of(options_of("").parse_args(["--digits", "--quick", "--variants", "FC(16)", "Conv(3,1)"]))
    assert task._how_to_explore()["variants"] == ("FC(16)", "Conv(3,1)")
    assert "copies" not in task._how_to_explore()
    altering = task_of(options_of("").parse_args(["--digits", "--copies", "4"]))._how_to_explore()
    assert (altering["variants"], altering["copies"]) == (None, 4)


def test_all_benchmarks_share_one_folder_per_network_and_set_of_images(tmp_path: Path) -> None:
    task = Task(tmp_path, Path("data"), "resnet56", 5, quick=False)
    home = home_of(tmp_path, quick=False)
    assert task.caches_folder("large") == home / "resnet56"
    assert task.caches_folder("small", "stage") == home / "resnet20-stage"
    asked: list[tuple[str, Path]] = []

    def fine_tuned(name: str, data: Path, out: Path, *, epochs: int, most: int | None) -> None:
        asked.append((name, out))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.caches.tasks.fine_tuned", fine_tuned)
        task.network("large")
        task.network("small")
    assert asked == [("resnet56", home), ("resnet20", home)]
    digits = Task(tmp_path, None, "resnet56", 5, quick=True)
    assert digits.caches_folder("small", "stage") == tmp_path / "digits-quick-small-stage"


def test_normalised_images_give_their_pixels_back() -> None:
    pixels = np.random.default_rng(0).random((2, 3, 32, 32), dtype=np.float32)
    assert normalised(pixels).min() < 0
    assert pixels_of(normalised(pixels)) == pytest.approx(pixels, abs=1e-6)
    assert 0 <= pixels_of(normalised(np.ones_like(pixels))).max() <= 1
