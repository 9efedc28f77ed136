"""Steering over HTTP: status, pinned gears, draining, and who may."""

import json
from typing import Any

import pytest

from gearshift.serving.control import DRAIN_PATH, GEAR_PATH, STATUS_PATH, SWAP_PATH
from gearshift.serving.keys import read_keys
from tests.unit.serving.test_http import Response, Server, samples, serve
from tests.unit.serving.test_openapi import answers_as_described, description


async def pin(server: Server, body: Any, **headers: str) -> Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await server.ask("POST", GEAR_PATH, content, headers=headers)


def test_the_status_is_as_described():
    async def use(server: Server) -> dict[str, Any]:
        described = await description(server)
        response = await server.ask("GET", STATUS_PATH)
        assert answers_as_described(response, described["paths"][STATUS_PATH]["get"], described)
        return response.json()

    status = serve(use)
    assert (status["operator"], status["state"], status["gear"], status["pinned"]) == ("sums", "serving", 0, False)
    assert status["load_range"] == {"from": 0.0, "to": None}
    assert status["cascade"] == {"models": ["small", "large"], "thresholds": [0.5]}
    assert [replica["id"] for replica in status["replicas"]] == ["large-0", "small-0"]


def test_a_gear_is_pinned_and_freed():
    async def use(server: Server) -> list[tuple[int, bool]]:
        described = await description(server)
        seen = []
        for number in (0, None):
            response = await pin(server, {"pin": number})
            assert answers_as_described(response, described["paths"][GEAR_PATH]["post"], described)
            seen.append((response.status, response.json()["pinned"]))
        return seen

    assert serve(use) == [(200, True), (200, False)]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body does not fit"),
        (b"\xff{", "the body does not fit"),
        ({}, "the body does not fit"),
        ({"pin": "0"}, "the body does not fit"),
        ({"pin": 0, "for": 5}, "the body does not fit"),
        ({"pin": 7}, "there is no gear 7; pin one from 0 to 0"),
        ({"pin": -1}, "there is no gear -1; pin one from 0 to 0"),
    ],
)
def test_a_gear_that_makes_no_sense_is_refused(body: Any, said: str):
    async def use(server: Server) -> Response:
        response = await pin(server, body)
        assert not server.service.router.pinned
        return response

    response = serve(use)
    assert response.status == 400
    assert said in response.json()["error"]


def test_a_body_that_is_too_large_is_refused():
    assert serve(lambda server: pin(server, b" " * 5000)).status == 413


def test_a_server_that_drains_is_not_ready_and_refuses_new_requests():
    async def use(server: Server) -> list[Any]:
        drained = await server.ask("POST", DRAIN_PATH)
        ready, live = await server.ask("GET", "/readyz"), await server.ask("GET", "/livez")
        refused = await server.infer(samples(0))
        return [drained.json()["state"], ready.status, live.status, refused.status, refused.headers["connection"]]

    assert serve(use) == ["draining", 503, 200, 503, "close"]


# Who may -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "status"),
    [
        ("127.0.0.1", 200),
        ("127.8.9.1", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("10.0.0.7", 403),
        ("fe80::1%eth0", 403),
    ],
)
def test_without_keys_only_the_servers_own_machine_steers(client: str, status: int):
    async def use(server: Server) -> list[int]:
        server.client = client
        pinned, read = await pin(server, {"pin": 0}), await server.ask("GET", STATUS_PATH)
        swapped, drained = await server.ask("POST", SWAP_PATH, b"{}"), await server.ask("POST", DRAIN_PATH)
        return [response.status for response in (read, pinned, drained, swapped)]

    assert serve(use) == [200, status, status, 400 if status == 200 else status]


def test_a_page_in_a_browser_may_not_steer():
    response = serve(lambda server: pin(server, {"pin": 0}, origin="http://127.0.0.1:8000"))
    assert response.status == 403
    assert "--admin-keys" in response.json()["error"]


def test_with_keys_steering_needs_one_of_administration_wherever_it_comes_from(tmp_path):
    (tmp_path / "users").write_text("user-key")
    (tmp_path / "admins").write_text("admin-key")

    async def use(server: Server) -> list[int]:
        statuses = []
        for key in ("", "user-key", "admin-key"):
            headers = {"x-api-key": key} if key else {}
            server.client = "10.0.0.7"
            for method, path, body in (
                ("GET", STATUS_PATH, b""),
                ("POST", GEAR_PATH, b'{"pin": 0}'),
                ("POST", DRAIN_PATH, b""),
                ("POST", SWAP_PATH, b'{"plan": "next.json"}'),
            ):
                statuses.append((await server.ask(method, path, body, headers)).status)
        return statuses

    keys = read_keys(str(tmp_path / "users"), str(tmp_path / "admins"))
    assert serve(use, keys=keys) == [401, 401, 401, 401, 200, 401, 401, 401, 200, 200, 200, 400]
