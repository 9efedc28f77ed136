"""LOTUS and BARGAIN on recorded answers, each in an environment of its own."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.pipelines.filters import Query

HERE = Path(__file__).parent
PACKAGES = {"lotus": "lotus-ai==1.2.4", "bargain": "bargain==0.1.3"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Calls of the dear model for 100 tuples on all rows, whether the promise broke, and whether any tuple passed.

    Without one that passed the dear model answers everything, and nothing can break.
    """

    calls: float
    broken: bool
    passed: bool


def install(folder: Path) -> None:
    for name, package in PACKAGES.items():
        if not (folder / name).is_dir():
            subprocess.run((sys.executable, "-m", "venv", folder / name), check=True)
        subprocess.run((folder / name / "bin" / "pip", "install", "--quiet", package), check=True)


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, and what is promised for its answers."""

    query: Query
    kind: str
    level: float


def peer_outcomes(folder: Path, name: str, asked: Sequence[Asked], doubt: float, draws: int) -> list[list[Outcome]]:
    """What a peer makes of each draw of each query; nothing where it is not installed, or has no such promise.

    A query's filters are asked one after another, each with the level of the query.
    """
    python = folder / name / "bin" / "python"
    if not python.exists():
        return [[] for _ in asked]
    with tempfile.TemporaryDirectory() as scratch:
        for i, each in enumerate(asked):
            np.savez(
                Path(scratch) / f"{i}.npz",
                scores=np.stack([next(iter(one.scores.values())) for one in each.query.filters]),
                dear=np.stack([one.dear for one in each.query.filters]),
                goes_on=np.array(each.query.kind == "and"),
            )
        tasks = [{"kind": each.kind, "level": each.level, "doubt": doubt, "draws": draws} for each in asked]
        (Path(scratch) / "tasks.json").write_text(json.dumps(tasks))
        command = (python, HERE / f"{name}_filter.py", scratch)
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return [[Outcome(calls, broken, True) for calls, broken in of_task] for of_task in found]
