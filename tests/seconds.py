"""Counts the processor seconds of each module of tests, with the processes that its tests start and wait for.

`python -m pytest -p tests.seconds` writes a file for each process into the folder of GEARSHIFT_TEST_SECONDS.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

spent: Counter[str] = Counter()


def used_s() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = used_s()
    try:
        return (yield)
    finally:
        spent[item.nodeid] += used_s() - before


def pytest_sessionfinish() -> None:
    folder = os.environ.get("GEARSHIFT_TEST_SECONDS")
    if folder and spent:
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(spent))
