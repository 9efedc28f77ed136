"""Little worlds need little search."""

from collections.abc import Iterator

import pytest

from gearshift.planner.evaluate import steady_state
from gearshift.planner.search import optimal_frontier, search_space
from tests.often import often


@pytest.fixture(autouse=True, scope="module")
def little_search() -> Iterator[None]:
    """Fewer replays around a front, and in short tests of fewer requests at each load.

    How many there are changes how good a plan is, and nothing that holds of it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimal_frontier, "AROUND_REPLAYS", 100)
        patch.setattr(steady_state, "SAMPLES", often(steady_state.SAMPLES))
        patch.setattr(search_space, "QUICK_SAMPLES", often(search_space.QUICK_SAMPLES))
        yield
