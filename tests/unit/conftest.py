"""Fixtures for tests of several packages."""

from collections.abc import Iterator

import pytest

from gearshift.planner.evaluate import steady_state
from gearshift.planner.search import optimal_frontier, search_space
from tests.often import often


@pytest.fixture(autouse=True, scope="module")
def little_search() -> Iterator[None]:
    """Little worlds need little search: few replays around a front, and in short tests few requests at each load.

    How many there are changes how good a plan is, and nothing that holds of it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimal_frontier, "AROUND_REPLAYS", 100)
        patch.setattr(steady_state, "SAMPLES", often(steady_state.SAMPLES))
        patch.setattr(search_space, "QUICK_SAMPLES", often(search_space.QUICK_SAMPLES))
        yield


@pytest.fixture
def lost_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulated replicas that are lost do not come back, however long the test is held up."""
    monkeypatch.setattr("gearshift.runtime.backends.emulated.RESTART_S", 3600.0)
