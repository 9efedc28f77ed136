"""The probability of a label, by the tokens that spell it."""

import math

import pytest

from gearshift.runtime.remote.label_tokens import peeled, probability, stripped

GOOD = pytest.approx(0.25)
"""The probability of `good` in each of these answers; all other tokens have probability 0.9."""


def tokens(*spelled: str | bytes) -> list[tuple[bytes, float]]:
    """`go` and `od` have probability 0.5, `good` 0.25, others 0.9."""
    of = {b"good": 0.25, b"go": 0.5, b"od": 0.5}
    made = [one if isinstance(one, bytes) else one.encode() for one in spelled]
    return [
        (one, math.log(of.get(one.decode(errors="ignore").strip(' \n"*.\u2581\u0120').encode(), 0.9))) for one in made
    ]


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("good", ["good"]),
        (" good", [" good"]),
        ("good", [" good"]),  # the server has cut the blank
        ("\n\ngood", ["\n\n", "good"]),
        ("good", ["\n", "\n", " ", "good"]),
        ("good", ["go", "od"]),
        ("\n good.", ["\n", " go", "od", "."]),
        ('"good"', ['"', "good", '"']),
        ('"good"', ['"go', 'od"']),
        ("**good**", ["**", "good", "**"]),
        ("good", ["good", "<|end|>"]),
        ("good", ["\u2581good"]),
        ("\ngood", ["\u010a", "\u0120go", "od"]),
        ("good", ["I think, it is no good one: ", "good"]),  # tokens of a thought that is not shown
        ("good \n", ["good", " \n"]),
    ],
)
def test_only_tokens_that_spell_the_label_count(text, spelled):
    assert probability(text, peeled(text), tokens(*spelled)) == GOOD


def test_a_class_of_several_words_has_the_product_of_its_tokens():
    spelled = [(b"\n", -1.0), (b"very", -0.1), (b" ", -0.2), (b"bad", -0.3), (b".", -2.0)]
    assert probability("\nvery bad.", peeled("\nvery bad."), spelled) == pytest.approx(math.exp(-0.6))


def test_a_token_may_be_a_part_of_a_character():
    spelled = [(b" ", -5.0), (b"sch\xc3", -0.1), (b"\xb6n", -0.2), (b"!", -5.0)]
    assert probability(" sch\u00f6n!", peeled(" sch\u00f6n!"), spelled) == pytest.approx(math.exp(-0.3))


def test_a_short_label_is_not_found_within_the_tokens_of_a_server():
    spelled = [(b"a", -0.5), (b"<|im_start|>", -3.0)]
    assert probability("a", (0, 1), spelled) == pytest.approx(math.exp(-0.5))


def test_tokens_that_do_not_spell_the_answer_count_all():
    assert probability("good", (0, 4), [(b"x", -1.0), (b"y", -2.0)]) == pytest.approx(math.exp(-3))


def test_a_probability_is_at_most_one():
    assert probability("a", (0, 1), [(b"a", 1e-6)]) == 1


@pytest.mark.parametrize(
    ("text", "without_blanks", "alone"),
    [
        ("good", "good", "good"),
        (' \n"Good." ', '"Good."', "Good"),
        ("\u201cgood\u201d!", "\u201cgood\u201d!", "good"),
        ("", "", ""),
        (" \n", "", ""),
        ("...", "...", ""),
    ],
)
def test_an_answer_is_taken_without_what_stands_around_it(text, without_blanks, alone):
    assert text[slice(*stripped(text))] == without_blanks
    assert text[slice(*peeled(text))] == alone
