import pytest

from gearshift.errors import how_to_write, share_of


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("93.4 %", "write a share in place of a percentage: 0.934"),
        ("93,4%", "write a share in place of a percentage: 0.934"),
        ("0,934", "write a point for the decimal comma: 0.934"),
        ("-1,5", "write a point for the decimal comma: -1.5"),
        ("1,234.5", "leave out what parts thousands, and write a point before decimals"),
        ("1.234,5", "leave out what parts thousands, and write a point before decimals"),
        ("1 234", "leave out what parts thousands, and write a point before decimals"),
        ("4.8 ms", "write seconds without their unit: 0.0048"),
        ("35s", "write seconds without their unit: 35"),
        ("high", "write a plain number, such as 0.5"),
        ("", "write a plain number, such as 0.5"),
    ],
)
def test_text_that_looks_like_a_number_says_how_to_write_it(text: str, remedy: str) -> None:
    assert how_to_write(text) == remedy


@pytest.mark.parametrize(("value", "remedy"), [(95.0, "write 0.95 for 95 %"), (1.5, ""), (0.5, ""), (200.0, "")])
def test_what_may_be_a_percentage_says_which_share_it_is(value: float, remedy: str) -> None:
    assert share_of(value) == remedy
