import json
from typing import Any

import pytest

from gearshift.errors import Forbidden, InvalidInput
from gearshift.serving.door.keys import read_keys
from gearshift.serving.door.origins import MOST_REMEMBERED, OwnNames, allowed_names, host_name
from gearshift.serving.operate.control import DRAIN_PATH, GEAR_PATH, STATUS_PATH
from tests.unit.serving.http.test_application import ANYBODY, INFER, Server, samples, serve

EVERY_PAGE = ["/v2", "/metrics", "/openapi.json", STATUS_PATH, "/v2/models/sums", "/v2/models/stats", "/nothing"]
BODY = json.dumps(samples(0)).encode()


def knows(names: OwnNames, host: str) -> bool:
    try:
        names.require_known({b"host": host.encode()})
    except Forbidden:
        return False
    return True


def own_page(names: OwnNames, **headers: str) -> bool:
    try:
        names.require_own_page({name.replace("_", "-").encode(): value.encode() for name, value in headers.items()})
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:8000", "localhost"),
        ("LocalHost", "localhost"),
        ("127.0.0.1:8000", "127.0.0.1"),
        ("[::1]:8000", "[::1]"),
        ("gears.example:", "gears.example"),
        ("", ""),
        ("a, b", None),
        ("user@gears.example", None),
        ("gears.example/v2", None),
        ("gears.example:80a", None),
        ("::1", None),
        ("g\u00e9ars.example", None),
        ("a" * 301, None),
    ],
)
def test_a_host_is_a_name_or_an_address_and_perhaps_a_port(host, name):
    assert host_name(host.encode()) == name


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "127.0.0.1:8000", "127.9.9.9", "[::1]:8000", "10.0.0.7:8000", "[fe80::7]",
     "gears.example:8000", "GEARS.example", "also.example", "gears", "gears:8000", "0x7f000001"],
)  # fmt: skip
def test_a_server_is_known_by_addresses_names_without_a_dot_its_own_name_and_those_that_are_allowed(host):
    assert knows(OwnNames("Gears.example", ["Also.example"]), host)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "evil.localhost",
     "127.1", "", "a.gears.example", "gears.example.", "localhost, localhost", "[::1", "x."],
)  # fmt: skip
def test_a_server_is_not_known_by_any_other_name(host):
    assert not knows(OwnNames("gears.example"), host)


def test_what_names_no_host_comes_from_no_browser():
    OwnNames().require_known({})


def test_what_is_remembered_of_names_is_bounded():
    names = OwnNames()
    for number in range(3 * MOST_REMEMBERED):
        assert not knows(names, f"name-{number}.example")
    assert names._known.cache_info().currsize == MOST_REMEMBERED


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost:8000"},
        {"host": "localhost:8000", "origin": "http://localhost:8000"},
        {"host": "Gears.example", "origin": "https://gears.example", "sec_fetch_site": "same-origin"},
        {"host": "localhost:8000", "sec_fetch_site": "none"},
        {"host": "127.0.0.1:8000", "origin": "https://page.example"},
    ],
)
def test_programs_and_pages_of_the_server_itself_or_of_an_allowed_host_may_ask(headers):
    assert own_page(OwnNames(allowed=["page.example"]), **headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://evil.example", "sec_fetch_site": "same-origin"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://127.0.0.1:8000"},
        {"origin": "chrome-extension://localhost:8000"},
        {"origin": "http://localhost:8000, http://evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "https://page.example", "sec_fetch_site": "cross-site"},
    ],
)
def test_pages_of_other_sites_may_not(headers):
    assert not own_page(OwnNames(allowed=["page.example"]), host="localhost:8000", **headers)


@pytest.mark.parametrize("text", ["a b", "a.example:80", "http://a.example", "g\u00e9"])
def test_what_can_be_no_name_is_refused(text):
    with pytest.raises(InvalidInput, match="is no host's name"):
        allowed_names(f"good.example, {text}")


def test_names_stand_between_commas():
    assert allowed_names(" a.example,b.example , ") == ("a.example", "b.example")
    assert allowed_names(None) == ()


# At the door ---------------------------------------------------------------------------------------------------------


async def statuses(server: Server, method: str, paths: list[str], headers: dict[str, str]) -> list[int]:
    return [(await server.ask(method, path, BODY if method == "POST" else b"", headers)).status for path in paths]


def test_by_a_foreign_name_only_health_and_the_empty_live_page_are_told():
    async def use(server: Server) -> Any:
        foreign = {"host": "evil.example:8000", "sec-fetch-site": "same-origin"}
        posts = [INFER, "/v2/repository/index", GEAR_PATH, DRAIN_PATH, "http://evil.example/v2/models/sums/infer"]
        return (
            await statuses(server, "GET", ANYBODY, foreign),
            await statuses(server, "GET", EVERY_PAGE, foreign),
            await statuses(server, "POST", posts, foreign),
            await statuses(server, "POST", ["http://evil.example/v2/models/sums/infer"], {}),
            await statuses(server, "POST", [INFER, "http://[::1]:1/v2/models/sums/infer"], {"host": "[::1]:8000"}),
        )

    assert serve(use) == ([200] * len(ANYBODY), [403] * 7, [403] * 5, [403], [200, 200])


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}])
def test_a_page_of_another_site_may_not_even_ask_for_an_inference(headers):
    async def use(server: Server) -> list[int]:
        plain = {"content-type": "text/plain", **headers}
        return await statuses(server, "POST", [INFER, "/v2/repository/index", GEAR_PATH, DRAIN_PATH], plain)

    assert serve(use) == [403] * 4


def test_with_keys_of_users_the_name_does_not_matter_and_the_page_does(tmp_path):
    (tmp_path / "users").write_text("a-longer-user-key\n")

    async def use(server: Server) -> list[int]:
        key = {"x-api-key": "a-longer-user-key", "host": "gears.example"}
        own, foreign = {"origin": "https://gears.example"}, {"origin": "https://evil.example"}
        return [status for page in (own, foreign) for status in await statuses(server, "POST", [INFER], key | page)]

    assert serve(use, keys=read_keys(str(tmp_path / "users"), None)) == [200, 403]


def test_with_keys_of_administration_alone_the_name_matters(tmp_path):
    (tmp_path / "admins").write_text("a-longer-admin-key\n")

    async def use(server: Server) -> list[int]:
        return await statuses(server, "POST", [INFER], {"host": "evil.example"})

    assert serve(use, keys=read_keys(None, str(tmp_path / "admins"))) == [403]


def test_a_model_is_found_however_its_path_is_encoded():
    async def use(server: Server) -> list[int]:
        return await statuses(server, "POST", ["/v2/models/%73ums/infer", "/v2/models%2fsums/infer"], {})

    assert serve(use) == [200, 404]


# Pages of allowed hosts ----------------------------------------------------------------------------------------------

PAGE = {"origin": "https://page.example:8443", "sec-fetch-site": "cross-site"}
ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,authorization"}


def at_a_server_with_keys(tmp_path, use):
    (tmp_path / "users").write_text("a-longer-user-key\n")
    (tmp_path / "admins").write_text("a-longer-admin-key\n")
    keys = read_keys(str(tmp_path / "users"), str(tmp_path / "admins"))
    return serve(use, keys=keys, names=OwnNames(allowed=["page.example"]))


def allows(response) -> str | None:
    return response.headers.get("access-control-allow-origin")


def test_a_page_of_an_allowed_host_is_given_permission_without_a_key_and_reads_its_answers(tmp_path):
    async def use(server: Server) -> Any:
        key = {"authorization": "Bearer a-longer-user-key"}
        return (
            await server.ask("OPTIONS", INFER, headers=PAGE | ASKS),
            await server.ask("POST", INFER, BODY, PAGE | key),
            await server.ask("POST", INFER, BODY, PAGE),
            await server.ask("GET", "/v2", headers=PAGE | key),
        )

    preflight, *answers = at_a_server_with_keys(tmp_path, use)
    assert preflight.status == 200
    assert preflight.headers["access-control-allow-methods"] == "POST"
    assert preflight.headers["access-control-allow-headers"] == "content-type,authorization"
    assert [answer.status for answer in answers] == [200, 401, 200]
    for answer in (preflight, *answers):
        assert allows(answer) == PAGE["origin"]
        assert answer.headers["vary"] == "origin"
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "https://page.example.evil.example", "page.example"]
)
def test_pages_of_other_hosts_get_no_permission_and_can_read_nothing(tmp_path, origin):
    async def use(server: Server) -> Any:
        page = PAGE | {"origin": origin}
        key = {"authorization": "Bearer a-longer-user-key"}
        return (
            await server.ask("OPTIONS", INFER, headers=page | ASKS),
            await server.ask("POST", INFER, BODY, page | key),
            await server.ask("GET", "/v2", headers=page | key),
        )

    answers = at_a_server_with_keys(tmp_path, use)
    assert [answer.status for answer in answers] == [401, 403, 200]
    assert [allows(answer) for answer in answers] == [None] * 3


@pytest.mark.parametrize("path", [GEAR_PATH, DRAIN_PATH, "/v2/repository/models/sums/load"])
def test_pages_of_allowed_hosts_may_not_steer(tmp_path, path):
    async def use(server: Server) -> Any:
        key = {"authorization": "Bearer a-longer-admin-key"}
        return (
            await server.ask("OPTIONS", path, headers=PAGE | ASKS | key),
            await server.ask("POST", path, b"{}", PAGE | key),
        )

    preflight, post = at_a_server_with_keys(tmp_path, use)
    assert (allows(preflight), allows(post), post.status) == (None, None, 403)


def test_headers_that_are_no_names_are_not_granted(tmp_path):
    async def use(server: Server) -> Any:
        asks = ASKS | {"access-control-request-headers": "a: b", "access-control-request-private-network": "true"}
        return await server.ask("OPTIONS", INFER, headers=PAGE | asks)

    response = at_a_server_with_keys(tmp_path, use)
    assert "access-control-allow-headers" not in response.headers
    assert response.headers["access-control-allow-private-network"] == "true"
