"""A replica is watched whatever goes wrong, and started again."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gearshift.errors import ModelFailed
from gearshift.runtime.engines.emulated.engine import EmulatedEngine
from gearshift.runtime.engines.engine_process import EngineProcess, engine_environment
from gearshift.runtime.engines.engine_replica import EngineReplica, Health
from gearshift.runtime.engines.identity import MOST_KNOWN, Identity, listed_as
from gearshift.runtime.engines.link import Fault
from gearshift.support.event_loop import loop_factory
from tests.two_language_models import language_profile

PROFILE = language_profile()


class Service:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.losses = 0
        self.back = asyncio.Event()

    def lost(self, replica: int) -> None:
        self.losses += 1

    def found(self, replica: int) -> None:
        self.back.set()

    def said(self, replica: int, what: str, value: str) -> None:
        pass


def run(use: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await use()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


def test_an_error_amid_watching_is_logged_once_and_watching_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(EngineReplica):
        looks = 0

        async def _health(self, longest_s: float | None = None) -> Health:
            self.looks += 1
            if 2 <= self.looks <= 6:
                raise ZeroDivisionError
            return await super()._health(longest_s)

    async def use() -> None:
        engine = EmulatedEngine(PROFILE, PROFILE.engines[0])
        port = await engine.start()
        replica, service = Faulty("small-0", "small", url=f"http://127.0.0.1:{port}/v1", probe_s=0.01), Service()
        await replica.start()
        replica.watch(service, 0)
        while replica.looks < 7:
            await asyncio.sleep(0.001)
        replica.suspect(Fault("it is suspected"))
        await service.back.wait()
        await replica.stop()
        await engine.stop()

    run(use)
    assert [record.levelname for record in caplog.records if "fault while replica" in record.getMessage()] == ["ERROR"]


@pytest.mark.long
def test_an_engine_that_cannot_be_started_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    folder = Path("/no/such/folder")

    async def use() -> None:
        made = list[Path]()

        def make() -> EngineProcess:
            made.append(folder if len(made) == 1 else Path.cwd())
            code = "import sys, http.server as h; h.test(h.SimpleHTTPRequestHandler, port=int(sys.argv[1]))"
            return EngineProcess(
                "small-0",
                lambda port: [sys.executable, "-c", code, str(port)],
                folder=made[-1],
                environment=engine_environment(None, 0),
            )

        replica, service = EngineReplica("small-0", "small", make=make, probe_s=0.05), Service()
        await replica.start()
        replica.watch(service, 0)
        assert replica.process is not None
        await replica.process.stop()
        await service.back.wait()
        assert made == [Path.cwd(), folder, Path.cwd()]
        await replica.stop()

    run(use)
    assert any("does not start" in record.getMessage() for record in caplog.records)


def test_an_engine_that_cannot_be_started_at_first_is_a_fault_of_the_model() -> None:
    async def use() -> None:
        def make() -> EngineProcess:
            return EngineProcess("e", lambda _: ["true"], folder=Path("/no/such/folder"), environment={})

        with pytest.raises(ModelFailed, match="cannot be started"):
            await EngineReplica("small-0", "small", make=make).start()

    run(use)


def test_a_replica_tells_all_services_that_have_it() -> None:
    async def use() -> None:
        replica, services = (
            EngineReplica("small-0", "small", url="http://127.0.0.1:1/v1", probe_s=60),
            [Service(), Service()],
        )
        for number, service in enumerate(services):
            replica.watch(service, number)
        replica.leave(services[0])
        replica.suspect(Fault("it is gone"))
        assert [service.losses for service in services] == [0, 1]
        late = Service()
        replica.watch(late, 0)
        assert late.losses == 1
        await replica.stop()

    run(use)


def test_what_an_endpoint_says_is_told_when_it_is_new_and_no_more_often_than_bounded() -> None:
    identity = Identity()
    assert identity.told("its model", "a") == identity.told("its model", "") == identity.told("its model", "a") == ""
    assert identity.told("its model", "b") == "its model is 'b', and was 'a'"
    assert identity.told("its model", "a") == ""
    told = [identity.told("its model", str(number)) for number in range(100)]
    assert sum(map(bool, told)) == MOST_KNOWN - 2


def test_an_entry_in_the_list_of_models_is_what_stays_the_same_of_it() -> None:
    one = b'{"data": [{"id": "m", "created": 1, "root": "org/m", "permission": [1]}]}'
    again = b'{"data": [{"root": "org/m", "id": "m", "created": 2}]}'
    other = b'{"data": [{"id": "m", "root": "org/other"}]}'
    assert listed_as(one, "m") == listed_as(again, "m") != listed_as(other, "m")
    for body in (b"", b"[]", b'{"data": 7}', b'{"data": [7]}', b'{"data": []}', b"\xff"):
        assert listed_as(body, "m") == ""
