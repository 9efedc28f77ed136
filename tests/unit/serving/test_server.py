"""A server of each kind of plan in this process, from its start to its end."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from gearshift.client.http_client import HttpClient
from gearshift.observability.journal import Journal
from gearshift.observability.recent_events import RecentEvents
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.sockets import bound_sockets
from gearshift.serving.server import Server
from tests.unit.serving.swap_worlds import EnginesHere, LosingRows

LONGEST_S = 20.0
KINDS: Sequence[Callable[[], Any]] = (LosingRows, EnginesHere)


def served(kind: Any, folder: Path, use: Callable[["Running"], Awaitable[None]]) -> tuple[int, "Running"]:
    """The exit code of a server that is used once it is ready, and then gets a signal."""

    async def main() -> tuple[int, Running]:
        await kind.write(folder)
        said: asyncio.Queue[str] = asyncio.Queue()
        journal = RecentEvents(Journal())
        try:
            with bound_sockets("127.0.0.1", 0) as socks:
                task, settings = kind.read(folder / "plan.json"), ServerSettings(plans=str(folder))
                server = Server(kind, task, kind.read, settings, None, journal, socks, said.put_nowait)
                running = Running(server, journal, f"http://127.0.0.1:{socks[0].getsockname()[1]}")
                async with asyncio.timeout(LONGEST_S), asyncio.TaskGroup() as group:
                    code = group.create_task(server.main())
                    while not running.said or not running.said[-1].startswith("try: "):
                        running.said.append(await said.get())
                    await use(running)
                    server._signalled()
            return code.result(), running
        finally:
            gc.unfreeze()
            await kind.end()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


class Running:
    def __init__(self, server: Server, journal: RecentEvents, url: str) -> None:
        self.server, self.url = server, url
        self.said: list[str] = []
        self._journal = journal

    @property
    def events(self) -> list[str]:
        return [event["event"] for event in msgspec.json.decode(self._journal.as_json())]

    async def get(self, path: str, body: bytes = b"") -> tuple[int, Any]:
        async with HttpClient(self.url) as client:
            request = client.request_bytes("POST" if body else "GET", path, body, {})
            answer = await client.response_to(request, within_s=LONGEST_S)
        return answer.status, msgspec.json.decode(answer.body)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_says_what_it_serves_answers_and_ends_in_order(kind: Callable[[], Any], tmp_path: Path) -> None:
    async def use(running: Running) -> None:
        assert await running.get("/readyz") == (200, {"ready": True})
        status, said = await running.get("/v2/gearshift/swap", b'{"plan": "other.json"}')
        assert (status, said["taken_over"]) == (200, True)
        status, said = await running.get("/v2/gearshift/status")
        assert (said["state"], Path(said["plan"]["path"]).name) == ("serving", "other.json")
        status, said = await running.get("/v2/gearshift/live")
        assert (status, "status" in said) == (200, True)

    code, running = served(kind(), tmp_path, use)
    assert code == 0
    words = [line.split()[0] for line in running.said]
    assert words == ["serving", "up", "watch", "try:"]
    assert running.url in running.said[0]
    ended = [event for event in running.events if not event.startswith(("replica", "found"))]
    assert sorted(ended[:4]) == ["ready", "ready", "swap", "taken_over"]
    assert ended[4:] == ["drain", "stop", "drain", "stop"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_was_let_in_is_answered_after_the_signal(kind: Callable[[], Any], tmp_path: Path) -> None:
    asked: list[asyncio.Task[Any]] = []
    made = kind()

    async def use(running: Running) -> None:
        asked.append(asyncio.create_task(made.infer(running.server._swaps.deployment, 3)))
        await asyncio.sleep(0)
        assert running.server._control.status().open_requests == 1

    assert served(made, tmp_path, use)[0] == 0
    assert asked[0].result() is not None
