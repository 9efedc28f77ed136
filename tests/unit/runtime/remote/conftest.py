from collections.abc import Iterator

import pytest

from tests.unit.runtime.remote.endpoints import OPENED


@pytest.fixture(autouse=True)
def every_connection_is_closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().model.endpoint.close()
