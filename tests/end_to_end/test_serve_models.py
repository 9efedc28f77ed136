"""Models without a plan, served by the command line, and the request that it prints."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gearshift.traces.logs.journal import read_journal

pytestmark = pytest.mark.long

MODELS = """
import numpy as np
import gearshift

def load():
    return lambda x: np.stack([x[:, 0], 1 - x[:, 0]], axis=1)

def load_slow():
    def model(x):
        grid = np.add.outer(x[:, 0], np.zeros(20_000)).mean(axis=1)
        return np.stack([grid, 1 - grid], axis=1)
    return model

def {samples}():
    x = np.random.default_rng(0).random((300, 2)).astype(np.float32)
    return gearshift.Samples(x, labels=(x[:, 0] < 0.5).astype(int))
"""


@contextmanager
def served(*arguments: str, folder: Path) -> Iterator[tuple[list[str], str]]:
    """What a server said until it was ready, and the command to try."""
    program = [sys.executable, "-m", "gearshift", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(program, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder)
    try:
        said = []
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line.strip())
            if match := re.match("try: (.*)", line):
                yield said, match[1]
                break
        else:
            raise AssertionError(said)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def answer(call: str) -> dict[str, object]:
    done = subprocess.run(["sh", "-c", call], capture_output=True, check=True)
    made: dict[str, object] = json.loads(done.stdout)
    return made


def test_one_model_is_served_and_the_printed_request_works(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS.format(samples="none"))
    with served("models.py:load", "--example", "[0.2, 0.4]", folder=tmp_path) as (said, call):
        assert answer(call)["label"] == 0
        url = re.search("http://[^/]+", call)
        assert url is not None
        status = answer(f"curl -s {url[0]}/metrics | grep '^gearshift_predicted_accuracy' | sed 's/.* /\"/; s/$/\"/'")
        assert str(status) == "NaN"
    assert not any("accuracy" in line or "%" in line for line in said)


def test_models_with_labels_become_gears_that_are_kept(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS.format(samples="load_samples"))
    with served("models.py", "--p95-ms", "5000", "--keep", "kept", folder=tmp_path) as (_, call):
        assert "label" in answer(call)
    plan = json.loads((tmp_path / "kept" / "plan.json").read_text())
    assert plan["pipelines"]["models"]["gears"][0]["predicted"]["accuracy"] > 0.9
    assert read_journal(tmp_path / "kept" / "journal.jsonl").requests == 1


def test_the_journal_of_a_server_that_ended_becomes_a_trace(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS.format(samples="none"))
    journal = tmp_path / "journal.jsonl"
    with served("models.py:load", "--example", "[0.2, 0.4]", "--journal", str(journal), folder=tmp_path) as (_, call):
        for _ in range(3):
            answer(call)
    assert read_journal(journal).requests == 3
