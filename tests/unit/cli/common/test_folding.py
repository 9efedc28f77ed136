"""Tables at the widths of terminals: folded where they do not fit, and no value cut."""

import io

import pytest
from rich.console import Console

from gearshift.cli.common.folding import folded
from gearshift.cli.common.output import table
from gearshift.cli.common.tables import profile_table, results_table
from gearshift.profiles.profile import Profile
from gearshift.result import LatencySummary, ServingResult
from tests.little_task import little_profile

WIDTHS = (60, 80, 120)


def printed(made, width: int) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, soft_wrap=True)
    for part in folded(console, made):
        console.print(part)
    return file.getvalue()


def wide(cell: str):
    made = table("A title that is longer than many a narrow terminal, of 1234567 requests", *"abcdefgh")
    for row in range(3):
        made.add_row(f"row {row}", *(f"{cell}{row}{column}" for column in range(7)))
    return made


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("cell", ["v", "a longer value ", "a value that is wider than half of a narrow terminal, "])
def test_every_value_is_there_and_no_line_is_wider_than_the_terminal(width: int, cell: str) -> None:
    text = printed(wide(cell), width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    joined = " ".join(text.split())
    if "wider" not in cell:
        assert all(f"{cell}{row}{column}" in joined for row in range(3) for column in range(7))
    assert "…" not in text


def test_a_table_that_fits_stays_one() -> None:
    made = table("Title", "a", "b")
    made.add_row("1", "2")
    assert folded(Console(width=60), made) == [made]


def test_parts_repeat_the_first_column() -> None:
    lines = printed(wide("a longer value "), 60).splitlines()
    assert sum(line.startswith("row 1") for line in lines) > 1


def test_a_row_too_wide_for_two_columns_becomes_lines_of_name_and_value() -> None:
    made = table("Gears", "gear", "cascade", "to")
    made.add_row("0", "a-model-with-a-long-name > another-model-with-a-long-name > a-third", "")
    assert printed(made, 60).split() == [
        *("Gears", "gear", "0", "cascade", "a-model-with-a-long-name", ">"),
        *("another-model-with-a-long-name", ">", "a-third"),
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_results_are_whole_at_every_width(width: int) -> None:
    result = ServingResult(
        requests=123_456,
        accuracy=0.9123,
        accuracy_interval=(0.9, 0.92),
        latency_s=LatencySummary(mean=0.1, p50=0.0123, p95=0.123, p99=1.23),
        share_late=0.01,
        share_refused=0.02,
        share_degraded=0.03,
        goodput_qps=1234.5,
        devices=1,
        utilisation={},
        core_s=99.5,
    )
    text = printed(results_table("Predicted for the trace", [("gear plan", result), ("another", result)]), width)
    for figure in ("91.2 %", "12.3 ms", "123 ms", "1.23 s", "1.0 %", "2.0 %", "3.0 %", "1234.5/s", "99.5"):
        assert text.count(figure) == 2


def test_what_was_not_measured_is_not_shown() -> None:
    profile: Profile = little_profile()
    cells = [list(column.cells) for column in profile_table(profile).columns]
    assert set(cells[-1]) == {"-"}
    assert all(curve.memory_bytes == 0 for curve in profile.whole_curves)
