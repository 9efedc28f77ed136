"""The bounds on tokens and bytes of one answer."""

import pytest

from gearshift.runtime.engines.answers.growth import ECHO_BYTES, FIRST_BYTES, TOKEN_BYTES, Growth


@pytest.mark.parametrize(
    ("given", "most", "why"),
    [
        ({"most_tokens": 10, "held_tokens": 1000}, 84, "10 were asked for"),
        ({"most_tokens": 10, "held_tokens": 1000, "choices": 3}, 252, "10 were asked for in each of 3 answers"),
        ({"most_tokens": 1 << 30, "held_tokens": 100}, 264, "it holds 100 as it was profiled"),
        ({"most_tokens": 90, "held_tokens": 100, "choices": 3}, 264, "it holds 100 as it was profiled"),
        ({"most_tokens": 1, "held_tokens": 100, "echo_bytes": 5}, 264, "it holds 100 as it was profiled"),
        (
            {"most_tokens": 1, "held_tokens": 100, "choices": 3, "echo_bytes": 5},
            792,
            "it holds 100 as it was profiled in each of 3 answers",
        ),
    ],
    ids=["asked for", "in each choice", "held", "held over all choices", "repeated", "repeated in each choice"],
)
def test_an_answer_has_a_most_number_of_tokens(given: dict[str, int], most: int, why: str) -> None:
    growth = Growth(**given)
    assert growth.add(most, 0) == ""
    assert growth.add(1, 0) == f"it gave {most + 1} tokens, and {why}"


def test_each_token_makes_room_for_bytes() -> None:
    growth = Growth(most_tokens=10, held_tokens=1000)
    assert growth.add(0, FIRST_BYTES) == ""
    assert growth.add(2, 2 * TOKEN_BYTES) == ""
    assert growth.add(0, 1) == f"it gave {FIRST_BYTES + 2 * TOKEN_BYTES + 1} bytes in 2 tokens, which is no text"


def test_a_prompt_that_is_repeated_makes_room_for_its_bytes_in_each_choice() -> None:
    growth = Growth(most_tokens=10, held_tokens=1000, choices=2, echo_bytes=1000)
    assert growth.add(0, FIRST_BYTES + 2 * ECHO_BYTES * 1000) == ""
    assert growth.add(0, 1) != ""
