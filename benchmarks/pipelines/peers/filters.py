"""Filters of a query one after another, as a peer answers them; imports nothing but NumPy."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

Way = Callable[[np.ndarray, np.ndarray, float, float, int], tuple[np.ndarray, np.ndarray]]


def run_all(folder: Path, ways: Mapping[str, Way]) -> None:
    """Print the outcomes of all tasks in a folder as JSON: for each task a list of [calls for 100 tuples, broken].

    `ways` are by kind of promise; a kind without one gives an empty list.
    """
    tasks = json.loads((folder / "tasks.json").read_text())
    found = [
        run(folder / f"{i}.npz", way=ways[task["kind"]], **task) if task["kind"] in ways else []
        for i, task in enumerate(tasks)
    ]
    print(json.dumps(found))


def run(file: Path, *, kind: str, level: float, doubt: float, draws: int, way: Way) -> list[tuple[float, bool]]:
    """Calls of the dear model for 100 tuples, and whether the promise broke, for each draw.

    `way` gives what a filter says of its rows, and for which of them it called the dear model. A second filter gets
    the rows on which the first has not decided the query.
    """
    content = np.load(file)
    scores, dear, goes_on = content["scores"].astype(float), content["dear"].astype(bool), bool(content["goes_on"])
    found = []
    for seed in range(draws):
        order = np.random.default_rng([seed, 42]).permutation(scores.shape[1])
        says, calls = query(scores[:, order], dear[:, order], goes_on, level, doubt, seed, way)
        right = dear[:, order].all(axis=0) if goes_on else dear[:, order].any(axis=0)
        found.append((100 * calls / len(order), broken(kind, says, right, level)))
    return found


def query(scores, dear, goes_on: bool, level: float, doubt: float, seed: int, way: Way) -> tuple[np.ndarray, int]:
    rows = np.arange(scores.shape[1])
    says = np.full(len(rows), not goes_on)
    calls = 0
    for score, answer in zip(scores, dear, strict=True):
        now, asked = way(score[rows], answer[rows], level, doubt, seed)
        calls += int(asked.sum())
        rows = rows[now == goes_on]
    says[rows] = goes_on
    return says, calls


def broken(kind: str, says: np.ndarray, right: np.ndarray, level: float) -> bool:
    if kind == "agreement":
        return bool((says == right).mean() < level - 1e-9)
    both = (says & right).sum()
    recall = both / max(1, right.sum())
    precision = both / max(1, says.sum()) if says.any() else 1.0
    return bool(min(recall, precision) < level - 1e-9)
