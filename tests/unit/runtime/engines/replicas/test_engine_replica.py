"""A replica is watched whatever goes wrong, and started again."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gearshift.errors import ModelFailed
from gearshift.runtime.engines.emulated.engine import EmulatedEngine
from gearshift.runtime.engines.replicas.engine_process import EngineProcess, engine_environment, free_port
from gearshift.runtime.engines.replicas.engine_replica import EngineReplica, Health
from gearshift.runtime.engines.replicas.identity import (
    FINGERPRINT,
    LISTED,
    MOST_KNOWN,
    NAMED,
    Identity,
    lacks,
    listed_as,
    noted,
    said_before,
)
from gearshift.runtime.engines.replicas.reach import addresses
from gearshift.runtime.engines.upstream.call import Fault
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

    def found(self, replica: int, *, restarted: bool = False) -> None:
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


def test_a_model_may_be_named_with_a_date_and_another_name_is_told_from_the_first_answer_on() -> None:
    identity = Identity("small")
    assert identity.told(NAMED, "small-2026-01-01") == ""
    assert identity.told(NAMED, "small-2026-02-02") != ""
    assert Identity("small").told(NAMED, "large") == "the model that it names is 'large', and was 'small'"


def test_what_was_said_when_an_engine_was_profiled_is_known() -> None:
    before = {FINGERPRINT: ["a", "b"]}
    for value, told in (("a", ""), ("b", ""), ("c", "its fingerprint is 'c', and was 'a'")):
        assert Identity("small", before).told(FINGERPRINT, value) == told


def test_however_many_words_were_known_new_ones_are_told() -> None:
    known = [str(number) for number in range(2 * MOST_KNOWN)]
    assert Identity("small", {FINGERPRINT: known}).told(FINGERPRINT, "new") == "its fingerprint is 'new', and was '0'"


def test_notes_have_each_word_of_all_endpoints_once() -> None:
    said = [{LISTED: "x", FINGERPRINT: "a"}, {FINGERPRINT: "b"}, {LISTED: "x", FINGERPRINT: "a"}]
    notes = noted("small", said) | noted("large", [{FINGERPRINT: "c"}])
    assert notes["small: its fingerprint"] == "a"
    assert said_before("small", notes) == {LISTED: ["x"], FINGERPRINT: ["a", "b"]}
    assert said_before("large", notes) == {FINGERPRINT: ["c"]}


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (b'{"data": [{"id": "m"}, {"id": "n"}]}', ""),
        (b'{"data": [{"id": "m-2026-01-01"}]}', ""),
        (b'{"data": [{"id": "m:latest"}]}', ""),
        (b'{"data": [{"id": "models/m"}]}', ""),
        (b'{"data": [{"id": "/files/m.gguf"}]}', "it lists '/files/m.gguf', and no model 'm'"),
        (b'{"data": [{"id": "another-m"}]}', "it lists 'another-m', and no model 'm'"),
        (b'{"data": []}', ""),
        (b"no list", ""),
        (b"[" * 100_000, ""),
        (b'{"data": [{"id": "n"}]}', "it lists 'n', and no model 'm'"),
    ],
)
def test_a_list_of_models_has_the_one_that_is_asked_for_or_says_nothing(listed: bytes, said: str) -> None:
    assert lacks(listed, "m") == said


def test_an_endpoint_with_other_models_is_refused_at_the_start_and_told_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Listening(Service):
        said_last = ""

        def said(self, replica: int, what: str, value: str) -> None:
            self.said_last = value

    async def use() -> None:
        engine = EmulatedEngine(PROFILE, PROFILE.engines[0])
        url = f"http://127.0.0.1:{await engine.start()}/v1"
        refused = EngineReplica("large-0", "large", url=url)
        with pytest.raises(ModelFailed, match="it lists 'small', and no model 'large'"):
            await refused.start()
        await refused.stop()
        replica, service = EngineReplica("small-0", "small", url=url, probe_s=0.01), Listening()
        await replica.start()
        replica.watch(service, 0)
        engine.name = "large"
        while "no model 'small'" not in service.said_last:
            await asyncio.sleep(0.002)
        assert service.losses == 0
        await replica.stop()
        await engine.stop()

    run(use)


SERVER = """
import http.server, json, sys
class Models(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": sys.argv[1]}]}).encode())
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Models).serve_forever()
"""


@pytest.mark.long
def test_an_engine_whose_port_another_has_taken_is_started_on_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async def use() -> None:
        other = EmulatedEngine(PROFILE, PROFILE.engines[1])
        taken, made = await other.start(), list[int]()

        def make() -> EngineProcess:
            made.append(free_port() if made else taken)
            return EngineProcess(
                "small-0",
                lambda port: [sys.executable, "-c", SERVER, "small", str(port)],
                folder=Path.cwd(),
                environment=engine_environment(None, 0),
                find_port=lambda: made[-1],
            )

        replica = EngineReplica("small-0", "small", make=make)
        await replica.start()
        assert replica.process is not None
        assert (len(made), replica.process.port) == (2, made[1])
        await replica.stop()
        await other.stop()

    run(use)
    assert any("it is started on a second" in record.getMessage() for record in caplog.records)


@pytest.mark.long
def test_a_command_that_ends_by_itself_is_not_started_again_at_the_start() -> None:
    async def use() -> None:
        made = list[EngineProcess]()

        def make() -> EngineProcess:
            environment = engine_environment(None, 0)
            made.append(EngineProcess("e", lambda _: ["false"], folder=Path.cwd(), environment=environment))
            return made[-1]

        replica = EngineReplica("small-0", "small", make=make)
        with pytest.raises(ModelFailed, match="its command has ended"):
            await replica.start()
        await replica.stop()
        assert len(made) == 1

    run(use)


def test_an_engine_that_lists_another_model_while_its_command_runs_is_told_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def told() -> list[str]:
        return [one.getMessage() for one in caplog.records if "has another model" in one.getMessage()]

    async def use() -> None:
        other = EmulatedEngine(PROFILE, PROFILE.engines[1])
        taken = await other.start()

        def make() -> EngineProcess:
            environment = engine_environment(None, 0)
            return EngineProcess(
                "e", lambda _: ["sleep", "60"], folder=Path.cwd(), environment=environment, find_port=lambda: taken
            )

        replica = EngineReplica("small-0", "small", make=make, longest_start_s=50)
        starting = asyncio.ensure_future(replica.start())
        try:
            async with asyncio.timeout(10):
                while not told():
                    await asyncio.sleep(0.002)
            assert not starting.done()
        finally:
            starting.cancel()
            await replica.stop()
            await other.stop()

    run(use)
    (sentence,) = told()
    assert "it lists 'large', and no model 'small'; replica 'small-0' waits 50 s" in sentence


def test_an_entry_in_the_list_of_models_is_what_stays_the_same_of_it() -> None:
    one = b'{"data": [{"id": "m", "created": 1, "root": "org/m", "permission": [1]}]}'
    again = b'{"data": [{"root": "org/m", "id": "m", "created": 2}]}'
    other = b'{"data": [{"id": "m", "root": "org/other"}]}'
    assert listed_as(one, "m") == listed_as(again, "m") != listed_as(other, "m")
    for body in (b"", b"[]", b'{"data": 7}', b'{"data": [7]}', b'{"data": []}', b"\xff"):
        assert listed_as(body, "m") == ""


def test_an_endpoint_that_is_waited_for_is_named_at_once_and_once(caplog: pytest.LogCaptureFixture) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"

    async def use() -> None:
        replica = EngineReplica("small-0", "small", url=url, longest_start_s=0.3)
        with pytest.raises(ModelFailed, match=r"is unreachable after 0\.3 s"):
            await replica.start()
        await replica.stop()

    run(use)
    assert [record.getMessage() for record in caplog.records] == [
        f"{url} of replica 'small-0' is unreachable, and is waited for, up to 0.3 s: start it, or mend its url"
    ]


@pytest.mark.parametrize(("host", "told"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_an_engine_that_listens_beyond_the_loopback_is_told_of(
    host: str, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if told and not [*addresses()]:
        pytest.skip("this machine has no address but the loopback's")

    async def use() -> None:
        def make() -> EngineProcess:
            return EngineProcess(
                "small-0",
                lambda port: [sys.executable, "-c", SERVER.replace("127.0.0.1", host), "small", str(port)],
                folder=Path.cwd(),
                environment=engine_environment(None, 0),
            )

        replica = EngineReplica("small-0", "small", make=make)
        await replica.start()
        await replica.stop()

    run(use)
    assert any("other machines may reach it" in record.getMessage() for record in caplog.records) == told
