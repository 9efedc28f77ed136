"""How many examples a property is tried on: all in `make test-long`, a quarter where the long tests are left out."""

from hypothesis import settings

ALL = "all"
A_QUARTER = "a quarter"
USUALLY = 100
"""What hypothesis tries where a test does not say how often."""


def often(examples: int) -> int:
    """So many examples in the long form of a property."""
    tried = settings.default.max_examples if settings.default else USUALLY
    return max(1, examples * tried // USUALLY)
