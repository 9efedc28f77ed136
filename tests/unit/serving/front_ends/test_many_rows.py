"""The tests of requests of many rows once more, behind a front end."""

import pytest

from tests.unit.serving.front_ends.test_front_ends import front_end
from tests.unit.serving.http import test_application as test_http
from tests.unit.serving.http.test_many_rows import *  # noqa: F403


@pytest.fixture(autouse=True)
def _a_front_end_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_http, "door", front_end)
