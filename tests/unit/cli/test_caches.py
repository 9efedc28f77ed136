"""Learned caches from the command line, of a network that nobody trained and on samples of noise."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.unit.cli.little import run

MODEL = """
import torch

def load():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 32), *(torch.nn.Linear(32, 32) for _ in range(3)), torch.nn.Linear(32, 3)]
    return torch.nn.Sequential(*layers)

def load_other():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 3))

def load_number():
    return 3
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("caches")
    (folder / "model.py").write_text(MODEL)
    x = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    np.savez(folder / "data.npz", inputs=x)
    done = run(
        *("caches", "build", f"{folder / 'model.py'}:load", "--data", folder / "data.npz", "--out", folder / "caches"),
        *("--variants", "FC(16)", "--epochs", 3, "--jobs", 1, "--accuracy", 0.9, "--json", folder / "built.json"),
    )
    assert done.exit_code == 0, done.output
    return folder


def test_build_tells_what_was_chosen_and_what_it_comes_to(built: Path) -> None:
    manifest = json.loads((built / "built.json").read_text())
    assert manifest["blocks"] == ["0", "1", "2", "3", "head"]
    assert {entry["variant"] for entry in manifest["variants"]} == {"FC(16)"}
    assert manifest["accuracy"] >= 0.9
    assert (built / "caches" / manifest["file"]).is_file()


def test_show_has_every_variant_and_a_chart(built: Path) -> None:
    done = run("caches", "show", built / "caches", "--all", "--chart", built / "chart.html")
    assert done.exit_code == 0, done.output
    for told in ("FC(16)", "relaxation", "greedy by hit rate", "exact", "joint", "run to the end"):
        assert told in done.output
    page = (built / "chart.html").read_text()
    assert "Variants: how much they hit" in page
    assert "with it" in page or "without it" in page


def test_evaluate_compares_on_other_samples(built: Path) -> None:
    model = f"{built / 'model.py'}:load"
    options = ("--data", built / "data.npz", "--caches", built / "caches", "--timed-rows", 5)
    found = json.loads(run("caches", "evaluate", model, *options, "--json", "-").stdout)
    assert found["samples"] == 300
    assert found["agreement"] > 0.7
    assert "gain" in run("caches", "evaluate", model, *options).output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("build", "model.py:load", "--data", "nothing.npz"), "nothing.npz: no such file; write it with np.savez"),
        (("build", "model.py:load", "--data", "model.py"), "model.py: holds no arrays"),
        (("build", "model.py:load", "--data", "other.npz"), "other.npz: has no array 'inputs'"),
        (("build", "model.py:load", "--data", "pickled.npz"), "pickled.npz: holds no arrays"),
        (("build", "model.py:load", "--data", "few.npz"), "99 samples are too few; give at least 100"),
        (("build", "model.py:load_number", "--data", "data.npz"), "answered int, no PyTorch module"),
        (("build", "model.py", "--data", "data.npz"), "MODEL: is 'model.py'; write it as file.py:function"),
        (("build", "model.py:missing", "--data", "data.npz"), "has no function 'missing'"),
        (("show", "nowhere"), "no such file; make it with `gearshift caches build`"),
        (("evaluate", "model.py:load_other", "--data", "data.npz"), "belong to other weights"),
    ],
)
def test_bad_input_is_one_sentence(
    built: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(built)
    np.savez("other.npz", x=np.zeros(3))
    np.savez("few.npz", inputs=np.zeros((99, 4), dtype=np.float32))
    np.savez("pickled.npz", inputs=np.array([{}], dtype=object))
    done = run("caches", *arguments)
    assert done.exit_code == 2, done.output
    assert why in done.stderr


def test_versions_are_shown_and_rolled_back(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "caches"
    shutil.copytree(built / "caches", folder, ignore=shutil.ignore_patterns("exploration"))
    second = folder / "versions" / "000001"
    shutil.copytree(built / "caches", second, ignore=shutil.ignore_patterns("exploration"))
    manifest = json.loads((second / "manifest.json").read_bytes())
    adapted = {"number": 1, "before": 0, "at_s": 0.0, "reason": "hit rate", "trained": 50}
    manifest["adapted"] = {**adapted, "accuracy_before": 0.9, "latency_s_before": 0.001}
    (second / "manifest.json").write_text(json.dumps(manifest))
    done = run("caches", "rollback", folder, "--to", 1)
    assert done.exit_code == 0, done.output
    assert "hit rate" in done.output
    assert json.loads(run("caches", "versions", folder, "--json", "-").stdout)["current"] == 1
    assert run("caches", "rollback", folder).exit_code == 0
    again = run("caches", "rollback", folder)
    assert again.exit_code == 2
    assert "the caches in use are those that were built; name a version" in again.output
