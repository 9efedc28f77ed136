"""Pauses between attempts at an endpoint."""

import asyncio

import pytest

from gearshift.errors import NoAnswer
from gearshift.measuring.engines import endpoint
from gearshift.measuring.engines.endpoint import LONGEST_WAIT_S, MOST_ATTEMPTS, Patience, Refused

LIMITED = Refused(429, "slow down")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those that were made, which take no time."""
    made = list[float]()

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(endpoint.asyncio, "sleep", sleep)
    return made


def until_raised(error: NoAnswer | Refused) -> None:
    async def main() -> None:
        patience = Patience()
        while True:
            await patience.pause(error)

    with pytest.raises(type(error)) as caught:
        asyncio.run(main())
    assert caught.value is error


@pytest.mark.parametrize("error", [NoAnswer("it is gone"), *(Refused(one, "later") for one in (409, 425, 503, 529))])
def test_a_pause_is_twice_the_last(pauses: list[float], error: NoAnswer | Refused) -> None:
    until_raised(error)
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert len(pauses) == MOST_ATTEMPTS - 1


def test_a_limit_on_requests_is_waited_for_longer_and_not_for_ever(pauses: list[float]) -> None:
    until_raised(LIMITED)
    assert len(pauses) > MOST_ATTEMPTS
    assert LONGEST_WAIT_S / 2 < sum(pauses) <= LONGEST_WAIT_S


def test_a_pause_is_as_long_as_the_endpoint_asks_for(pauses: list[float]) -> None:
    until_raised(Refused(429, "slow down", 60.0))
    assert pauses == [60.0, 60.0, 60.0]


@pytest.mark.parametrize("error", [Refused(400, "odd"), Refused(401, "key"), Refused(429, "come tomorrow", 86_400.0)])
def test_what_no_pause_mends_is_raised_at_once(pauses: list[float], error: Refused) -> None:
    until_raised(error)
    assert pauses == []
