"""A real server steered by the command line."""

import json
import socket
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.end_to_end.test_server import Server, body, serving, speak
from tests.little_task import two_gear_plan
from tests.unit.cli.little import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operated")
    (folder / "users.txt").write_text("a-longer-user-key\n")
    (folder / "admins.txt").write_text("# of the team on call\na-longer-admin-key\n")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(
        folder, "emulated", api_keys=str(folder / "users.txt"), admin_keys=str(folder / "admins.txt")
    ) as server:
        yield server


def asked(server: Server, folder: Path, *words: object, key: str = "admins.txt") -> dict[str, object]:
    done = run(*words, "--url", server.url, "--key-file", folder / key, "--json", "-")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_status_tells_plan_gear_and_replicas(server: Server, folder: Path) -> None:
    status = asked(server, folder, "status", key="users.txt")
    plan = folder / "plan.json"
    assert status["plan"] == {"path": str(plan), "sha256": sha256(plan.read_bytes()).hexdigest()}
    assert (status["state"], status["gear"], status["open_requests"]) == ("serving", 0, 0)
    table = run("status", "--url", server.url, "--key-file", folder / "users.txt").output
    assert "gear 0 for load [0, inf): small <0.5 > large" in table
    assert "large-0" in table


def test_a_gear_is_pinned_and_freed(server: Server, folder: Path) -> None:
    assert asked(server, folder, "gear", "pin", 0)["pinned"] is True
    assert "gear 0 (pinned)" in run("status", "--url", server.url, "--key-file", folder / "users.txt").output
    assert asked(server, folder, "gear", "free")["pinned"] is False


@pytest.mark.parametrize(
    ("words", "key", "said", "code"),
    [
        (("gear", "pin", 3), "admins.txt", "there is no gear 3; pin one from 0 to 0", 2),
        (("gear", "pin"), "admins.txt", "pin needs the number of a gear", 2),
        (("gear", "free", 1), "admins.txt", "and free none", 2),
        (("gear", "free"), "users.txt", "an administration key is needed", 2),
        (("drain",), "users.txt", "an administration key is needed", 2),
        (("status",), "none.txt", "no such file", 2),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(
    server: Server, folder: Path, words: tuple[object, ...], key: str, said: str, code: int
) -> None:
    done = run(*words, "--url", server.url, "--key-file", folder / key)
    assert (done.exit_code, done.output.startswith("error: "), said in done.output) == (code, True, True), done.output


def test_a_server_that_is_not_there_is_told_of() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        done = run("status", "--url", f"http://127.0.0.1:{held.getsockname()[1]}")
    assert done.exit_code == 1
    assert "is the server running?" in done.output


def test_a_pinned_gear_answers_by_its_own_cascade_and_a_drain_ends_it_until_it_is_undone(tmp_path: Path) -> None:
    with serving(tmp_path, make_plan=two_gear_plan) as server:

        async def by(client: object) -> tuple[int, object]:
            async with client.post(f"{server.url}/v2/models/sums/infer", data=json.dumps(body((0.0, 2.0)))) as answer:
                return answer.status, await answer.json()

        _, before = speak(by)
        assert asked_locally(server, "gear", "pin", 1)["gear"] == 1
        _, pinned = speak(by)
        assert [before["outputs"][1]["data"], pinned["outputs"][1]["data"]] == [["large"], ["small"]]
        assert asked_locally(server, "drain")["state"] == "draining"
        assert speak(by)[0] == 503
        assert asked_locally(server, "drain", "--undo")["state"] == "serving"
        assert speak(by)[0] == 200
        assert server.end() == 0


def asked_locally(server: Server, *words: object) -> dict[str, object]:
    done = run(*words, "--url", server.url, "--json", "-")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)
