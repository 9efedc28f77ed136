"""Little worlds need little search."""

import pytest

from gearshift.planner.search import optimal_frontier


@pytest.fixture(autouse=True)
def little_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer replays around a front: how many there are changes how good it is, and nothing that holds of it."""
    monkeypatch.setattr(optimal_frontier, "AROUND_REPLAYS", 100)
