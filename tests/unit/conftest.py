"""Fixtures for tests of several packages."""

import pytest


@pytest.fixture
def lost_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulated replicas that are lost do not come back, however long the test is held up."""
    monkeypatch.setattr("gearshift.runtime.backends.emulated.RESTART_S", 3600.0)
