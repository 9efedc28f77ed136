"""Items of a nested fan-out: a page has lines, a line has words; words are counted in lines, lines in pages."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.measuring.passing import Flow
from gearshift.models.config import PipelineSettings
from gearshift.models.samples import Samples
from gearshift.pipeline import Edge, FanOut, Node

NODES = {
    "lines": Node(operator="lines", inputs={"page": "page"}),
    "words": Node(operator="words", inputs={"line": "lines.line"}, fan_out=FanOut(per_row="lines.line", most=3)),
    "word": Node(
        operator="word", inputs={"word": "words.word", "page": "page"}, fan_out=FanOut(per_row="words.word", most=9)
    ),
    "line_sum": Node(operator="sum", inputs={"values": "word.value", "line": "words.word"}, fan_in=True),
    "page_sum": Node(operator="sum", inputs={"values": "line_sum.value", "lines": "lines.line"}, fan_in=True),
}
EDGES = tuple(
    Edge(from_=a, to=b)
    for a, b in [("lines", "words"), ("words", "word"), ("word", "line_sum"), ("line_sum", "page_sum")]
)
PAGES = [[[1, 2], [3]], [], [[], [4, 5, 6]]]
"""Lines and words of three pages."""


def flow(**changed: Any) -> Flow:
    nodes = NODES | changed
    settings = PipelineSettings(output="page_sum", nodes=nodes, edges=EDGES, samples="s.py:s")
    return Flow("text", settings, Samples({"page": np.array([7, 8, 9])}, labels=[6, 0, 15]))  # type: ignore[arg-type]


def ragged(rows: Sequence[Any]) -> list[np.ndarray]:
    return [np.array(row, dtype=np.int64) for row in rows]


def through(made: Flow) -> Flow:
    """Run all nodes, by hand: a line is its number among all, a word its value."""
    made.begin("lines", 0)
    numbers = iter(range(9))
    lines = [np.array([next(numbers) for _ in page], dtype=np.int64) for page in PAGES]
    made.results["lines"] = [{"line": one[None]} for one in lines]
    made.begin("words", 0)
    all_lines = [line for page in PAGES for line in page]
    made.results["words"] = [{"word": np.array(line, dtype=np.int64)[None]} for line in all_lines]
    made.begin("word", 0)
    made.results["word"] = [{"value": np.array([word])} for line in all_lines for word in line]
    made.begin("line_sum", 0)
    made.results["line_sum"] = [{"value": np.array([sum(line)])} for line in all_lines]
    made.begin("page_sum", 4)
    return made


def test_items_are_made_for_each_row_of_each_fan_out() -> None:
    items = through(flow()).items
    assert {name: one.of_tuple.tolist() for name, one in items.items()} == {
        "lines": [0, 1, 2],
        "words": [0, 0, 2, 2],
        "word": [0, 0, 0, 2, 2, 2],
        "line_sum": [0, 0, 2, 2],
        "page_sum": [0, 1, 2],
    }
    assert {name: one.around.tolist() for name, one in items.items()} == {
        "lines": [-1, -1, -1],
        "words": [-1, -1, -1, -1],
        "word": [0, 0, 1, 3, 3, 3],
        "line_sum": [0, 1, 2, 3],
        "page_sum": [-1, -1, -1],
    }
    assert items["page_sum"].first_row == 4


def test_rows_are_passed_down_one_by_one_and_gathered_as_lists() -> None:
    items = through(flow()).items

    def passed(node: str, to: str) -> list[Any]:
        return [np.asarray(row).tolist() for row in items[node].inputs[to]]

    assert passed("lines", "page") == [7, 8, 9]
    assert passed("words", "line") == [0, 1, 2, 3]
    assert passed("word", "word") == [1, 2, 3, 4, 5, 6]
    assert passed("word", "page") == [7, 7, 7, 9, 9, 9]
    assert passed("line_sum", "values") == [[1, 2], [3], [], [4, 5, 6]]
    assert passed("line_sum", "line") == [[1, 2], [3], [], [4, 5, 6]]
    assert passed("page_sum", "values") == [[3, 3], [], [0, 15]]
    assert passed("page_sum", "lines") == [[0, 1], [], [2, 3]]


def test_the_output_node_has_the_requests_labels_and_others_those_of_their_items() -> None:
    made = through(flow())
    made.samples.node_labels["words"] = [[1, 2], [], [3, 4]]  # type: ignore[index]
    assert made.labels("page_sum")[0].tolist() == [6, 0, 15]  # type: ignore[union-attr]
    assert made.labels("words")[0].tolist() == [1, 2, 3, 4]  # type: ignore[union-attr]
    assert made.labels("word") == (None, "")


def test_a_request_with_another_number_of_labels_than_items_is_never_right() -> None:
    made = through(flow())
    made.samples.node_labels["words"] = [[1, 2], [], [3]]  # type: ignore[index]
    labels, sentence = made.labels("words")
    assert labels is not None
    assert labels.tolist() == ["1", "2", "", ""]
    assert sentence.startswith("pipeline 'text', node 'words': 1 of 3 requests have another number of items than of")


def refusal(made: Flow) -> str:
    with pytest.raises(InvalidInput) as caught:
        through(made)
    return str(caught.value)


@pytest.mark.parametrize(
    ("node", "fields", "told"),
    [
        ("lines", {"inputs": {"page": "pages"}}, "node 'lines': it takes 'pages', and the request's tensors are"),
        ("line_sum", {"inputs": {"v": "word.values"}}, "it takes 'word.values', and node 'word' answers 'value'; mend"),
        (
            "words",
            {"inputs": {"line": "lines.line"}, "fan_out": FanOut(per_row="lines.line", most=1), "fan_in": False},
            "node 'words': a sample has 2 rows of 'lines.line', and at most 1 are let in; raise most, or set beyond =",
        ),
        (
            "words",
            {"inputs": {"line": "page"}, "fan_out": FanOut(per_row="page", most=1), "fan_in": False},
            "tensor 'page' has a single value for each item, and no rows to run once for each",
        ),
    ],
)  # fmt: skip
def test_nodes_that_do_not_fit_are_told_in_a_sentence(node: str, fields: dict[str, Any], told: str) -> None:
    changed = {"operator": NODES[node].operator, "fan_in": NODES[node].fan_in} | fields
    assert told in refusal(flow(**{node: Node(**changed)}))


def test_more_rows_than_the_most_are_cut_where_the_node_says_so() -> None:
    cut = Node(
        operator="words", inputs={"line": "lines.line"}, fan_out=FanOut(per_row="lines.line", most=1, beyond="cut")
    )
    made = flow(words=cut)
    made.begin("lines", 0)
    made.results["lines"] = [{"line": np.array([[1, 2]])}, {"line": np.array([[3]])}, {"line": np.zeros((1, 0))}]
    assert made.begin("words", 0).of_tuple.tolist() == [0, 1]


def test_a_fan_out_that_no_sample_has_a_row_for_is_refused() -> None:
    made = flow()
    made.begin("lines", 0)
    made.results["lines"] = [{"line": np.zeros((1, 0))}] * 3
    with pytest.raises(InvalidInput, match=r"no sample has a row of 'lines\.line'"):
        made.begin("words", 0)
