import re

import numpy as np
from markupsafe import escape

from gearshift.reporting.drawing.charts import Blocks, Chart, Label, Line, Panel, Rule, dots
from gearshift.reporting.drawing.scales import linear

AXIS = linear([0, 10])


def drawn(*marks: Line | Blocks, labels: tuple[Label, ...] = (), rules: tuple[Rule, ...] = ()) -> str:
    return str(escape(Chart("c", "title", "", "x", (Panel("y", AXIS, AXIS, marks, rules, labels),))))


def test_a_line_breaks_where_nothing_is_known() -> None:
    shown = drawn(Line("", [0, 1, 2, 3, 4], [1, 2, np.nan, 3, 4], "--plan"))
    (path,) = re.findall('stroke="var\\(--plan\\)".*? d="(.*?)"', shown)
    assert path.count("M") == 2


def test_of_labels_that_would_lie_on_each_other_some_are_left_out() -> None:
    crowd = tuple(Label(5 + 0.001 * n, 5, f"name-{n}") for n in range(20))
    shown = drawn(dots("", [5], [5], "--plan"), labels=crowd)
    assert 1 <= len(re.findall('class="label [a-z]+ slim"', shown)) <= 4
    apart = tuple(Label(2.0 * n, 5, f"{n}") for n in range(5))
    assert len(re.findall('class="label [a-z]+ slim"', drawn(labels=apart))) == 5


def test_a_legend_names_each_thing_once_and_only_where_there_are_several() -> None:
    one, other = Line("one", [0, 1], [0, 1], "--m1"), dots("other", [1], [1], "--m2")
    assert "legend" not in drawn(one, one)
    assert drawn(one, other, one).count("<li>") == 2
    assert "other" not in drawn(one, dots("other", [], [], "--m2"))


def test_what_one_points_at_has_places_from_0_to_1_and_its_words() -> None:
    blocks = Blocks("share", [0], [10], [0], [5], "--m1", texts=["a half"])
    chart = Chart("c", "", "", "", (Panel("", AXIS, AXIS, (blocks,)),))
    assert chart.pointed == {"c-0": [{"name": "share", "colour": "--m1", "x": [0.5], "y": [0.75], "text": ["a half"]}]}


def test_words_of_others_are_escaped() -> None:
    shown = drawn(Line("<b>", [0], [0], "--m1"), Line("&", [0], [0], "--m2"), rules=(Rule(1, "<i>"),))
    assert "<b>" not in shown
    assert "&lt;i&gt;" in shown
