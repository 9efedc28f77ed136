from gearshift.reporting.gear_rows import gear_rows
from tests.graph_task import graph_plan


def test_a_gear_of_a_graph_names_the_cascade_of_each_node() -> None:
    (row,) = gear_rows(graph_plan(), "pairs")
    assert row.cascade == "split: split; read: read; check: check; join: join"
