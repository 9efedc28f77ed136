"""Steering over HTTP: status, pinned gears, draining, and who may."""

import json
from typing import Any

import pytest

from gearshift.serving.door.keys import read_keys
from gearshift.serving.operate.control import DRAIN_PATH, GEAR_PATH, STATUS_PATH, SWAP_PATH
from tests.unit.serving.http.test_application import Response, Server, samples, serve
from tests.unit.serving.http.test_openapi import answers_as_described, description


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
        assert not server.service.router.pipeline.pinned
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


def test_a_drain_is_undone_and_the_server_ready_again():
    async def use(server: Server) -> list[Any]:
        described = (await description(server))["paths"][DRAIN_PATH]["post"]
        seen = []
        for body in (b"", b'{"undo": true}', b"{}", b'{"undo": true}', b'{"undo": true}'):
            response = await server.ask("POST", DRAIN_PATH, body)
            assert answers_as_described(response, described, await description(server))
            ready, answered = await server.ask("GET", "/readyz"), await server.infer(samples(0))
            seen.append((response.json()["state"], ready.status, answered.status))
        return seen

    drained, undone = ("draining", 503, 503), ("serving", 200, 200)
    assert serve(use) == [drained, undone, drained, undone, undone]


def test_an_end_is_no_drain_that_could_be_undone():
    async def use(server: Server) -> list[int]:
        await server.service.drain(1.0)
        return [
            (await server.ask("POST", DRAIN_PATH, b'{"undo": true}')).status,
            (await server.infer(samples(0))).status,
        ]

    assert serve(use) == [503, 503]


def test_a_body_of_a_drain_that_makes_no_sense_drains_nothing():
    async def use(server: Server) -> list[int]:
        drained = await server.ask("POST", DRAIN_PATH, b'{"undone": true}')
        return [drained.status, (await server.ask("GET", "/readyz")).status]

    assert serve(use) == [400, 200]


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


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://127.0.0.1"},
        {"x-forwarded-for": "203.0.113.9"},
        {"forwarded": "for=203.0.113.9"},
        {"via": "1.1 proxy"},
    ],
)
def test_a_page_in_a_browser_and_what_a_proxy_passes_on_may_not_steer(headers: dict[str, str]):
    response = serve(lambda server: pin(server, {"pin": 0}, **headers))
    assert response.status == 403
    assert "--admin-keys" in response.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/v2/%67earshift/gear",
        "/v2/gearshift/%67ear",
        "//v2/gearshift/gear",
        "/v2//gearshift/gear",
        "/v2/./gearshift/gear",
        "/v2/models/../gearshift/gear",
        "/v2/gearshift/gear/",
        "/v2/gearshift%2fgear",
        "http://127.0.0.1/v2/gearshift/gear",
    ],
)
def test_paths_of_administration_count_only_as_they_are_written(path: str):
    async def use(server: Server) -> int:
        response = await server.ask("POST", path, b'{"pin": 0}')
        assert not server.service.router.pipeline.pinned
        return response.status

    assert serve(use) == 404


def test_with_keys_of_users_alone_nobody_steers_and_it_says_why(tmp_path):
    (tmp_path / "users").write_text("a-longer-user-key\n")

    async def use(server: Server) -> list[int]:
        described, statuses = await description(server, **{"x-api-key": "a-longer-user-key"}), []
        for key in ("no-key", "a-longer-user-key"):
            for path in (GEAR_PATH, DRAIN_PATH, SWAP_PATH, "/v2/repository/models/sums/unload"):
                response = await server.ask("POST", path, b"{}", {"x-api-key": key})
                operation = described["paths"][path.replace("sums", "{model}")]["post"]
                assert answers_as_described(response, operation, described)
                assert ("--admin-keys" in response.json()["error"]) == (response.status == 403)
                statuses.append(response.status)
        return [*statuses, (await server.ask("GET", STATUS_PATH, headers={"x-api-key": key})).status]

    assert serve(use, keys=read_keys(str(tmp_path / "users"), None)) == [401] * 4 + [403] * 4 + [200]


def test_with_keys_steering_needs_one_of_administration_wherever_it_comes_from(tmp_path):
    (tmp_path / "users").write_text("a-longer-user-key\n")
    (tmp_path / "admins").write_text("a-longer-admin-key\n")

    async def use(server: Server) -> list[int]:
        statuses = []
        for key in ("", "a-longer-user-key", "a-longer-admin-key"):
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
