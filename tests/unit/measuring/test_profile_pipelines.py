"""A strip of numbers is split into these, each is read, and the digits read are joined to one number."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gearshift.errors import InvalidInput, ModelFailed
from gearshift.measuring.profile_pipelines import profile_pipelines
from gearshift.model import TensorSpec
from gearshift.profiles.pipelines.profile_folder import read_profiles, write_profiles

PROJECT = """
[operators.split]
function = "steps.py:split"
[operators.read.models.small]
load = "steps.py:small"
[operators.read.models.large]
load = "steps.py:large"
memory_mib = 7
[operators.join]
function = "steps.py:join"

[pipelines.digits]
output = "join"
samples = "steps.py:strips"
edges = [{from = "split", to = "read"}, {from = "read", to = "join"}]
[pipelines.digits.nodes.split]
operator = "split"
inputs = {strip = "strip"}
[pipelines.digits.nodes.read]
operator = "read"
inputs = {image = "split.parts"}
fan_out = {per_row = "split.parts", most = 8}
[pipelines.digits.nodes.join]
operator = "join"
inputs = {labels = "read.label"}
fan_in = true

[pipelines.digit]
output = "read"
samples = "steps.py:digits"
[pipelines.digit.nodes.read]
operator = "read"
inputs = {image = "x"}

[operators.sign.models.only]
load = "steps.py:sign"
[operators.sign]
samples = "steps.py:signs"

[profile]
batch_sizes = [1, 4]
repeats = 3
longest_s = 0.1
"""

STEPS = """
import numpy as np
import gearshift

LENGTHS = np.random.default_rng(0).integers(0, 4, 40)
STRIPS = [np.random.default_rng(i).integers(1, 10, k) for i, k in enumerate(LENGTHS)]

def number(digits):
    return int("0" + "".join(str(int(digit)) for digit in digits))

def strips():
    x = np.zeros((40, 3), np.float32)
    for row, strip in enumerate(STRIPS):
        x[row, :len(strip)] = strip
    return gearshift.Samples({"strip": x}, [number(s) for s in STRIPS], node_labels={"read": [list(s) for s in STRIPS]})

def digits():
    x = np.arange(20, dtype=np.float32)[:, None] % 10
    return gearshift.Samples({"x": x}, x[:, 0].astype(int))

def signs():
    x = np.linspace(-1, 1, 20)
    return gearshift.Samples(x, x > 0)

def sign():
    return lambda x: (x > 0, np.abs(x))

def split(strip):
    return {"parts": [row[row > 0][:, None] for row in strip]}

def join(labels):
    return {"label": [number(row) for row in labels]}

def reader(wrong_from):
    def scores(image):
        digit = image[:, 0].astype(int)
        sure = np.where(digit >= wrong_from, 0.5, 1.0)
        return np.eye(10)[np.where(digit >= wrong_from, 0, digit)] * sure[:, None]
    return scores

def small():
    return reader(7)

def large():
    return reader(10)
"""


def project(folder: Path, change: Callable[[str], str] = str, steps: Callable[[str], str] = str) -> Path:
    (folder / "gearshift.toml").write_text(change(PROJECT))
    (folder / "steps.py").write_text(steps(STEPS))
    return folder / "gearshift.toml"


def silent(what: str, share: float) -> None:
    pass


def test_requests_go_through_all_nodes_and_each_operator_is_measured(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    path = project(tmp_path)
    made = profile_pipelines(path, progress=lambda *one: told.append(one), folder=tmp_path / "profile")

    assert list(made.operators) == ["split", "read", "join", "sign"]
    split, read, join, sign = made.operators.values()
    assert split.models == ("split",)
    assert split.curves[0].batch_sizes == (1, 4)
    assert split.predictions.certainty.tolist() == [[1.0] * 40]
    assert split.outputs == (TensorSpec(name="parts", datatype="FP32", shape=(-1, -1, 1)),)
    assert read.models == ("small", "large")
    assert [one.memory_bytes for one in read.curves if one.model == "large"] == [7 << 20]
    assert read.predictions.quality[1].tolist() == [1.0] * len(read.predictions.part)
    assert 0.5 < read.predictions.quality[0].mean() < 1
    assert join.inputs == (TensorSpec(name="labels", datatype="INT64", shape=(-1, -1)),)
    assert (sign.models, len(sign.predictions.part)) == (("only",), 20)
    assert split.project == "../../gearshift.toml"
    assert [one.model for one in read.loaded_from] == ["small", "large"]

    digits, digit, alone = made.pipelines.values()
    assert list(made.pipelines) == ["digits", "digit", "sign"]
    assert (digits.requests, digits.right, digit.requests, digit.right) == (40, 1.0, 20, 1.0)
    assert (alone.output, alone.requests, list(made.tuples)) == ("sign", 0, ["digits", "digit"])
    items = made.items_by_node("digits")
    assert (items["split"], items["join"]) == (40, 40)
    assert items["read"] + 20 == len(read.predictions.part)

    for name, records in made.tuples.items():
        part = {
            node.operator: made.operators[node.operator].predictions.part
            for node in made.pipelines[name].nodes.values()
        }
        operator = [made.pipelines[name].nodes[node].operator for node in records.nodes]
        for of_tuple, node, row in zip(records.tuple_of, records.node, records.row, strict=True):
            assert part[operator[node]][row] == records.part[of_tuple], "all items of a request are in its part"
    assert told[-1][1] == 1.0
    assert [share for _, share in told] == sorted(share for _, share in told)

    written = write_profiles(made, tmp_path / "profile")
    again = read_profiles(tmp_path / "profile")
    assert again.pipelines == made.pipelines
    assert {name: one.sha256 for name, one in again.operators.items()} == {
        name: one.sha256 for name, one in written.operators.items()
    }
    for name, records in again.tuples.items():
        for column in ("begin", "node", "row", "parent", "part"):
            np.testing.assert_array_equal(getattr(records, column), getattr(made.tuples[name], column))


@pytest.mark.long
def test_without_labels_answers_are_compared_with_the_strongest_model_and_the_profile_says_so(tmp_path: Path) -> None:
    def change(text: str) -> str:
        return text[: text.index("[pipelines.digit]")] + "[profile]\nbatch_sizes = [1]\nrepeats = 3\nlongest_s = 0.1\n"

    def steps(text: str) -> str:
        return text.replace(', node_labels={"read": [list(s) for s in STRIPS]}', "")

    made = profile_pipelines(project(tmp_path, change, steps), progress=silent)
    read = made.operators["read"]
    assert not read.predictions.labelled
    assert any("operator 'read' has no labels: its answers are compared with" in one for one in read.warnings)
    assert made.pipelines["digits"].right is not None


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "inputs = {strip = ",
            "inputs = {strips = ",
            "node 'split': function 'split' takes 'strip', and is passed 'st",
        ),
        ('{strip = "strip"}', '{strip = "image"}', "node 'split': it takes 'image', and the request's tensors are 'st"),
        ("steps.py:split", "steps.py:splits", r"operators\.split\.function: .* has no function 'splits'"),
        ("batch_sizes = [1, 4]", "batch_sizes = []", "batch_sizes is"),
    ],
)
def test_wrong_nodes_are_told_before_anything_is_measured(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in PROJECT
    with pytest.raises(InvalidInput, match=told):
        profile_pipelines(project(tmp_path, lambda text: text.replace(old, new)), progress=silent)


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ("reed", "steps.py:strips, node_labels: pipeline 'digits' has no node 'reed'; name one of split, read, join"),
        ("split", "steps.py:strips, node_labels: node 'split' is a function, which counts as right; leave its labels"),
    ],
)
def test_labels_are_of_nodes_with_models(tmp_path: Path, node: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        profile_pipelines(
            project(tmp_path, steps=lambda text: text.replace('{"read": [', f'{{"{node}": [')), progress=silent
        )
    assert told in str(caught.value)


def test_operators_that_pass_items_to_each_other_are_refused(tmp_path: Path) -> None:
    again = """
[pipelines.twice]
output = "join"
samples = "steps.py:strips"
edges = [{from = "read", to = "split"}, {from = "split", to = "join"}]
[pipelines.twice.nodes.read]
operator = "join"
[pipelines.twice.nodes.split]
operator = "read"
[pipelines.twice.nodes.join]
operator = "split"
"""
    with pytest.raises(InvalidInput, match=r"operators .* pass items to each other, and none can be measured first"):
        profile_pipelines(project(tmp_path, lambda text: text + again), progress=silent)


@pytest.mark.long
def test_a_label_in_a_condition_that_no_model_answers_is_refused_once_its_operator_is_measured(tmp_path: Path) -> None:
    def change(text: str) -> str:
        return text.replace(
            '{from = "read", to = "join"}', '{from = "read", to = "join", when = {output = "label", one_of = [77]}}'
        )

    with pytest.raises(
        InvalidInput, match="waits for the label 77, which no model of operator 'read' answers; use one"
    ):
        profile_pipelines(project(tmp_path, change), progress=silent)


def test_a_function_that_fails_is_named(tmp_path: Path) -> None:
    def steps(text: str) -> str:
        return text.replace('return {"parts": [', 'raise ValueError("torn")\n    return {"parts": [')

    with pytest.raises(ModelFailed, match=r"model 'split' failed on .*raised ValueError: torn"):
        profile_pipelines(project(tmp_path, steps=steps), progress=silent)
