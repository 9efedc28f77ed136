"""The quality of an answer of a graph, from its items and the records of a tuple."""

import json
from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.load_generator.sources import quality_of
from gearshift.load_generator.tuples_source import RecordedTuples
from gearshift.profiles.profile import PredictionRecords
from gearshift.profiles.tuples import JointRecords

# Tuple 1: page 0 with words 0 and 1, page 1 with word 2; each word is read. Tuple 0 has a page of one word.
PAGES, WORDS = [0.9, 0.5, 0.25], [1.0, 1.0, 0.5, 0.125]
JOINT = JointRecords(
    nodes=("page", "word", "read"),
    names=("0", "1"),
    begin=np.array([0, 3, 11]),
    node=np.array([0, 1, 2, 0, 0, 1, 1, 1, 2, 2, 2], dtype=np.int32),
    row=np.array([0, 0, 0, 1, 2, 1, 2, 3, 1, 2, 3], dtype=np.int32),
    parent=np.array([-1, 0, 1, -1, -1, 0, 0, 1, 2, 3, 4], dtype=np.int32),
    part=np.array([0, 1], dtype=np.int8),
)


def records(*quality: list[float]) -> PredictionRecords:
    models, samples = tuple("ab"[: len(quality)]), len(quality[0])
    part = (np.arange(samples) % 2).astype(np.int8)
    return PredictionRecords(
        models=models, quality=np.array(quality), certainty=np.ones((len(models), samples)), part=part
    )


SOURCE = RecordedTuples(
    operator="pages",
    joint=JOINT,
    fan_outs={"page", "word"},
    predictions={"page": records(PAGES), "word": records(WORDS, [1.0] * 4), "read": records([1.0, 1.0, 1.0, 0.75])},
    samples=None,
)


def item(node: str, *inside: int, model: str = "a", **more: Any) -> dict[str, Any]:
    return {"node": node, "row": 0, "inside": inside, "model": model, **more}


def quality(*items: dict[str, Any]) -> float:
    return quality_of(json.dumps(items), SOURCE.label(1))


def test_an_item_is_found_by_its_rows_in_the_fan_outs_around_it() -> None:
    assert SOURCE.label(0) == {"page 0": {"a": 0.9}, "word 0 0": {"a": 1.0, "b": 1.0}, "read 0 0": {"a": 1.0}}
    assert quality(item("page", 1)) == 0.25
    assert quality(item("word", 0, 1)) == 0.5
    assert quality(item("word", 1, 0)) == 0.125
    assert quality(item("read", 1, 0)) == 0.75


def test_an_answer_is_as_good_as_the_product_over_what_it_went_through() -> None:
    assert quality(item("page", 0), item("page", 1), item("word", 1, 0, model="b"), item("read", 1, 0)) == 0.09375
    assert quality() == 1


def test_a_node_that_failed_has_no_quality_and_an_unknown_item_is_wrong() -> None:
    assert quality(item("page", 0), item("word", 1, 0, model="", error="it failed")) == 0.5
    assert quality(item("page", 2)) == 0
    assert quality(item("page", 0, model="unknown")) == 0


@pytest.mark.parametrize("answer", [3, "cat", '[{"label": 3}]'])
def test_an_answer_without_items_is_another_server_s(answer: object) -> None:
    with pytest.raises(InvalidInput, match="does not tell the items of its nodes"):
        quality_of(answer, SOURCE.label(1))


def test_emulated_devices_take_the_number_of_a_tuple() -> None:
    assert SOURCE.inputs(1)["sample"].tolist() == [1]
    with pytest.raises(InvalidInput, match="asks for tuple 2; there are tuples 0 to 1"):
        SOURCE.inputs(2)
