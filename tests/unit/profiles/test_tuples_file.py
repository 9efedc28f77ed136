from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.pipeline import Edge, FanOut, Node
from gearshift.profiles.profile import PredictionRecords
from gearshift.profiles.tuples import independent
from gearshift.profiles.tuples_file import encoded_joint_records, read_joint_records

NODES = {
    "split": Node(operator="split"),
    "digit": Node(operator="digit", fan_out=FanOut(per_row="split.crops", most=9)),
    "check": Node(operator="check"),
    "join": Node(operator="join", fan_in=True),
}
EDGES = [Edge(from_="split", to="digit"), Edge(from_="digit", to="check"), Edge(from_="check", to="join")]
SAMPLES = dict.fromkeys(NODES, 100)

WELL = """\
tuple,node,parent,row
a,split,,0
a,digit,,10
a,digit,,11
a,check,11,21
a,check,10,20
a,join,,0
b,split,,1
b,join,,1
"""


def read(folder: Path, content: str, samples: dict[str, object] | None = None):
    (folder / "tuples.csv").write_text(content)
    return read_joint_records(folder, NODES, EDGES, samples or SAMPLES)


def test_rows_of_a_fan_out_know_their_items(tmp_path: Path) -> None:
    made = read(tmp_path, WELL)

    assert made.names == ("a", "b")
    assert made.nodes == tuple(NODES)
    assert made.begin.tolist() == [0, 6, 8]
    assert made.node.tolist() == [0, 1, 1, 2, 2, 3, 0, 3]
    assert made.row.tolist() == [0, 10, 11, 20, 21, 0, 1, 1]
    assert made.parent.tolist() == [-1, -1, -1, 1, 2, -1, -1, -1]
    assert sorted(made.part.tolist()) == [0, 1]


def test_samples_may_have_names(tmp_path: Path) -> None:
    content = WELL.replace(",10\n", ",x.png\n").replace("check,10", "check,x.png")
    digits = [str(i) for i in range(11, 40)] + ["x.png"]
    made = read(tmp_path, content, SAMPLES | {"digit": digits})

    assert made.row.tolist() == [0, 29, 0, 20, 21, 0, 1, 1]


def test_a_pipeline_without_fan_out_needs_no_column_of_parents(tmp_path: Path) -> None:
    (tmp_path / "tuples.csv").write_text("node,row,tuple\nx,3,one\ny,4,one\ny,6,two\nx,5,two\n")
    nodes = {"x": Node(operator="x"), "y": Node(operator="y")}
    made = read_joint_records(tmp_path, nodes, [Edge(from_="x", to="y")], {"x": 9, "y": 9})

    assert made.row.tolist() == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "a,join,,0",
            "a,jion,,0",
            "line 7, column 'node': the pipeline has no node 'jion'; its nodes are split, digit",
        ),
        ("a,join,,0", "a,,,0", "line 7, column 'node': the cell is empty"),
        ("a,join,,0", ",join,,0", "line 7, column 'tuple': the cell is empty"),
        (
            "a,digit,,11",
            "a,digit,,100",
            "line 4, column 'row': the cell is '100', and operator 'digit' has predictions",
        ),
        ("a,digit,,11", f"a,digit,,{'9' * 5000}", "line 4, column 'row': the cell is '9999"),
        ("a,digit,,11", "a,digit,,-1", "line 4, column 'row': the cell is '-1'; give a whole number"),
        ("a,digit,,11", "a,digit,0,11", "line 4, column 'parent': the cell is '0', and no fan-out is around this node"),
        ("a,check,11,21", "a,check,,21", "line 5, column 'parent': the cell is empty"),
        ("a,check,11,21", "a,check,12,21", "line 5, column 'parent': the tuple has no row '12' of node 'digit'"),
        ("a,check,11,21", "b,check,11,21", "line 5, column 'parent': the tuple has no row '11' of node 'digit'"),
        ("a,check,11,21", "a,check,10,21", "line 6, column 'node': node 'check' of tuple 'a' is there a second time"),
        (
            "a,check,11,21\n",
            "",
            "line 4, column 'tuple': row '11' of node 'digit' in tuple 'a' has no row of node 'che",
        ),
        ("b,join,,1\n", "", "line 8, column 'tuple': tuple 'b' has no row of node 'join'"),
        (
            "b,join,,1",
            "a,join,,1",
            "line 9, column 'node': node 'join' of tuple 'a' is there a second time, after line 7",
        ),
        ("a,digit,,11", "a,digit,,10", "line 4, column 'row': the tuple has this row of node 'digit' a second time"),
        ("tuple,node,parent,row", "tuple,node,row,x", "column 'x' is unknown"),
        ("a,join,,0", "a,join,0", "line 7: the row has 3 cells"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in WELL
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path, WELL.replace(old, new))
    assert message in str(refused.value)
    assert "tuples.csv" in str(refused.value)


def test_a_node_without_rows_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there are no rows of nodes 'digit', 'check'"):
        read(tmp_path, "tuple,node,parent,row\na,split,,0\na,join,,0\nb,split,,0\nb,join,,0\n")


def test_one_tuple_is_too_few(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is one tuple, and plans need some"):
        read(tmp_path, "".join(line for line in WELL.splitlines(True) if not line.startswith("b")))


def test_a_missing_file_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"tuples.csv.*columns tuple, node, parent, row"):
        read_joint_records(tmp_path, NODES, EDGES, SAMPLES)


@given(st.integers(2, 12), st.integers(1, 3), st.integers(0, 9))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, tuples: int, rows: int, seed: int):
    distinct = PredictionRecords(
        models=("only",),
        quality=np.ones((1, 100_000)),
        certainty=np.ones((1, 100_000)),
        part=(np.arange(100_000) % 2).astype(np.int8),
    )
    made = independent(
        NODES, EDGES, dict.fromkeys(NODES, distinct), tuples=tuples, fan_out_rows={"digit": rows}, seed=seed
    )
    folder = tmp_path_factory.mktemp("records")
    (folder / "tuples.csv").write_bytes(encoded_joint_records(made))
    again = read_joint_records(folder, NODES, EDGES, dict.fromkeys(NODES, 100_000), seed=seed)

    assert again.names == made.names
    for name in ("begin", "node", "row", "parent", "part"):
        assert (getattr(again, name) == getattr(made, name)).all(), name
    assert not again.assumed_independent
