"""The files that `gearshift init` writes; the guides' tests measure and serve them."""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import gearshift
from gearshift.measuring.passing import Flow
from gearshift.models.config import read_project
from gearshift.models.function_model import FunctionModel
from gearshift.models.loading import load_model
from gearshift.models.samples import Samples, load_samples
from gearshift.profiles.pipelines.fitting import is_gathered
from gearshift.verbs.init import strip_of_digits


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    gearshift.init(tmp_path, pipeline=True)
    return tmp_path


def answers(folder: Path, flow: Flow, node: str, model: str) -> list[dict[str, Any]]:
    """Run one model on the items of a node, one by one, as outputs of one row each."""
    items = flow.begin(node, 0)
    one = load_model(read_project(folder / "gearshift.toml"), folder, model)
    run = one.pieces if isinstance(one, FunctionModel) else lambda inputs: [([0], one.run(inputs))]
    flow.results[node] = [
        run({name: np.asarray(rows[i])[None] for name, rows in items.inputs.items()})[0][1].outputs
        for i in range(len(items))
    ]
    return list(flow.results[node])


def test_the_pipeline_reads_strips_of_digits_and_most_of_them_right(folder: Path) -> None:
    project = read_project(folder / "gearshift.toml")
    everything = load_samples(project, folder)
    assert {name: array.shape for name, array in everything.arrays.items()} == {"strip": (600, 8, 60)}
    few = Samples(everything.batch(slice(60)), everything.labels[:60])  # type: ignore[index]
    flow = Flow("digits", project.pipelines["digits"], few)
    parts = answers(folder, flow, "split", "split")
    counts = [len(digits) for digits in everything.node_labels["read"][:60]]
    assert [one["parts"].shape for one in parts] == [(1, count, 64) for count in counts]
    assert (min(counts), max(counts)) == (2, 6)
    answers(folder, flow, "read", "network")
    said = [one["label"][0] for one in answers(folder, flow, "join", "join")]
    assert 0.6 < np.mean(said == few.labels) < 1
    assert is_gathered("read", "join", flow.pipeline.nodes, flow.scopes)


def test_models_are_more_accurate_the_dearer_they_are(folder: Path) -> None:
    project = read_project(folder / "gearshift.toml")
    assert list(project.operators["read"].models) == ["logistic", "network", "forest", "large_forest"]
    sys.path.insert(0, str(folder))
    module: dict[str, Any] = {"__name__": "models_of_init"}
    exec(compile(strip_of_digits.MODELS, "models.py", "exec"), module)
    images, digits = module["noisy_digits"]("validation", copies=1, seed=7)
    with threadpool_limits(1):  # as in a worker of one core
        right = [
            (load_model(project, folder, model).run({"image": images}).outputs["label"] == digits).mean()
            for model in ("logistic", "network", "forest")
        ]
    assert right == sorted(right)


def test_the_composition_in_the_files_text_is_the_pipeline_of_the_project(folder: Path) -> None:
    (text,) = re.findall(r"    p = gearshift.*?p\.answer\(.*?\n", strip_of_digits.MODELS, re.DOTALL)
    names: dict[str, Any] = {"gearshift": gearshift}
    exec("\n".join(line.removeprefix("    ") for line in text.splitlines()), names)
    written, read = names["p"], read_project(folder / "gearshift.toml").pipelines["digits"]
    assert (written.nodes, written.edges, written.output) == (read.nodes, read.edges, read.output)
    assert written.samples == read.samples


def test_files_that_are_there_are_not_replaced(folder: Path) -> None:
    with pytest.raises(gearshift.InvalidInput, match="there is such a file already; choose another folder"):
        gearshift.init(folder)
