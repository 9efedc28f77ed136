import pytest

from gearshift.cli.views.tokens.replay import drift_in_words


@pytest.mark.parametrize(
    ("before", "after", "changed", "others"),
    [
        (1.0, 1.02, False, False),
        (1.0, 1.3, True, False),
        (0.9, 1.3, True, False),
        (1.3, 1.31, False, True),
        (0.5, 0.5, False, True),
        (8.9, 5.1, True, True),
    ],
)
def test_engines_that_changed_and_engines_that_never_were_as_profiled_are_told_apart(
    before: float, after: float, changed: bool, others: bool
) -> None:
    told = " ".join(drift_in_words(before, after))
    assert ("meanwhile" in told, "profile them anew" in told) == (changed, others)
