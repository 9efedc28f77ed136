import xml.etree.ElementTree as ET

from gearshift.reporting.drawing.page import html_page
from gearshift.reporting.graph_svg import graph_svg, places
from gearshift.reporting.rows_page import pipelines_sections
from gearshift.reporting.shown import shown_of_each
from tests.graph_task import graph_plan


def test_a_node_stands_behind_all_that_lead_to_it() -> None:
    boxes = places(graph_plan().pipeline)
    x = {name: box.x for name, box in boxes.items()}
    assert x["split"] < x["read"] < x["check"] < x["join"]


def test_nodes_of_one_column_stand_below_each_other() -> None:
    boxes = places(graph_plan().pipeline)
    assert len({(box.x, box.y) for box in boxes.values()}) == len(boxes)


def test_edges_have_their_conditions_and_nodes_their_kind() -> None:
    drawn = graph_svg("pairs", graph_plan().pipeline, None)
    texts = [text.text for text in ET.fromstring(drawn).iter("text")]
    assert "label is odd" in texts
    assert "join (answer)" in texts
    assert {"reader", "for each row of split.parts"} <= set(texts)
    assert drawn.count("<path") == 1 + 4


def test_a_page_without_a_run_has_graph_gears_and_plan() -> None:
    page = html_page("", "", pipelines_sections(graph_plan(), shown_of_each(graph_plan(), {})))
    for title in ("The graph of pairs", "Gears of pairs", "The plan"):
        assert f"<h2>{title}</h2>" in page
    assert "Nodes of pairs" not in page
    assert "<script" not in page
