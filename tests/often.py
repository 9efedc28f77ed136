"""How many examples a property is tried on: all in `make test-long`, a quarter where the long tests are left out."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

ALL = "all"
A_QUARTER = "a quarter"
USUALLY = 100
"""What hypothesis tries where a test does not say how often."""


def often(examples: int) -> int:
    """So many examples in the long form of a property."""
    tried = settings.default.max_examples if settings.default else USUALLY
    return max(1, examples * tried // USUALLY)


def first_short(cases: Sequence[Any], short: int = 1) -> list[Any]:
    """Cases of `parametrize`: the first, or the first so many, for short tests too, the others for the long ones."""
    rest = [pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.long) for each in cases]
    return [*cases[:short], *rest[short:]]
