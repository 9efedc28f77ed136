"""Looks at the server over HTTP: one as JSON, or a stream of them."""

import asyncio

import pytest
import uvloop

from gearshift.serving.door.signature import Signature
from gearshift.serving.http.application import Application
from gearshift.serving.http.connection import Connection
from gearshift.serving.http.connections import Connections
from gearshift.serving.http.handlers import Handlers
from gearshift.serving.pages import live
from tests.unit.serving.pages.test_live import World
from tests.unit.serving.wire import Response, Wire, answered


def asked(world: World, **headers: str) -> tuple[Response, Wire]:
    async def main() -> tuple[Response, Wire]:
        signature = Signature(name="sums", inputs=(), outputs=())
        handlers = Handlers(world.control, [signature], largest_body_bytes=1, live=world.live)
        connection, wire = Connection(Connections(handler=Application(handlers))), Wire()
        connection.connection_made(wire)
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        connection.data_received("\r\n".join(["GET /v2/gearshift/live HTTP/1.1", "host: x", *lines, "", ""]).encode())
        response = await answered(wire)
        world.tick()
        connection.connection_lost(None)
        return response, wire

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


@pytest.mark.parametrize("after", ["", "nonsense", "inf", "nan"])
def test_one_look_is_given_with_all_the_past_unless_a_time_is_named(after: str) -> None:
    world = World()
    world.tick()
    response, _ = asked(world, last_event_id=after)
    assert response.headers["content-type"] == "application/json"
    assert len(response.json()["past"]["sums"]) == 1


def test_a_stream_is_given_to_who_accepts_one() -> None:
    world = World()
    response, wire = asked(world, accept="text/event-stream")
    assert response.headers["content-type"] == "text/event-stream"
    assert wire.written.count(b"data: ") == 2


def test_who_comes_when_the_streams_are_taken_gets_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_VIEWERS", 0)
    response, _ = asked(World(), accept="text/event-stream")
    assert response.headers["content-type"] == "application/json"
