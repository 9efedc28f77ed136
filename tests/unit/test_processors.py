import os

import pytest

from gearshift.processors import usable_processors


def test_those_are_counted_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
    assert usable_processors() == 3


@pytest.mark.parametrize(("there", "counted"), [(8, 8), (None, 1)])
def test_all_are_counted_where_there_is_no_affinity(
    there: int | None, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: there)
    assert usable_processors() == counted
