"""A real server whose plan is swapped while it serves."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, alone
from gearshift.plans.plan_file import read_plan, write_plan
from tests.end_to_end.test_server import LONGEST_S, Server, body, gone_within, serving, speak
from tests.little_task import closed, little_plan, renamed
from tests.unit.cli.little import run


def large_plan(sha256: str) -> GearPlan:
    """`large` alone at all loads."""
    plan = little_plan(sha256)
    operator = plan.pipelines["sums"]
    replicas = tuple(
        msgspec.structs.replace(one, load_share=float(one.replica == "large-0")) for one in operator.gears[0].replicas
    )
    gear = Gear(load_range=LoadRange(from_=0), cascades=alone("sums", Cascade(models=("large",))), replicas=replicas)
    return msgspec.structs.replace(plan, pipelines={"sums": msgspec.structs.replace(operator, gears=(gear,))})


@contextmanager
def swapping(folder: Path, backend: str = "emulated", **settings: Any) -> Iterator[Server]:
    """A server of `small > large` whose folder of plans is its own; there, `large.json` is `large` alone."""
    with serving(folder, backend, plans=str(folder), **settings) as server:
        write_plan(large_plan(read_plan(folder / "plan.json").profile.sha256), folder / "large.json")
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("swapped")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with swapping(folder) as server:
        yield server


@pytest.fixture(scope="module")
def fronted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with swapping(tmp_path_factory.mktemp("fronted"), front_ends=2) as server:
        yield server


@pytest.fixture(params=["server", "fronted"])
def either(request: pytest.FixtureRequest) -> Server:
    """One that answers by itself, and one with two front ends."""
    return request.getfixturevalue(request.param)


def sample(number: int) -> dict[str, Any]:
    return {"inputs": [{"name": "sample", "datatype": "INT64", "shape": [1], "data": [number]}]}


async def swap(client: aiohttp.ClientSession, server: Server, plan: str, **asked: Any) -> tuple[int, Any]:
    async with client.post(f"{server.url}/v2/gearshift/swap", json={"plan": plan, **asked}) as response:
        return response.status, await response.json()


async def infer(client: aiohttp.ClientSession, server: Server, asked: Any) -> tuple[int, Any]:
    async with client.post(f"{server.url}/v2/models/sums/infer", data=json.dumps(asked)) as response:
        return response.status, await response.json()


def output(answer: Any, name: str) -> Any:
    return next(one["data"][0] for one in answer["outputs"] if one["name"] == name)


def status(server: Server) -> dict[str, Any]:
    return json.loads(run("status", "--url", server.url, "--json", "-").stdout)


def test_every_request_is_answered_once_while_plans_are_swapped_to_and_fro(either: Server) -> None:
    server = either

    async def main(client: aiohttp.ClientSession) -> tuple[list[Any], list[tuple[int, str]]]:
        ended, news = asyncio.Event(), asyncio.Event()
        answered: list[tuple[int, str]] = []

        async def ask_on(first: int) -> int:
            sent = 0
            while not ended.is_set():
                number = (first + sent) % 10
                sent += 1
                code, answer = await infer(client, server, sample(number))
                assert code == 200, answer
                assert output(answer, "label").endswith(f"-{number}")
                answered.append((number, output(answer, "label")))
                news.set()
            return sent

        async def swap_and_see(plan: str, label: str) -> tuple[int, Any]:
            result = await swap(client, server, plan)
            before = len(answered)
            async with asyncio.timeout(LONGEST_S):
                while (0, label) not in answered[before:]:
                    news.clear()
                    await news.wait()
            return result

        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(ask_on(first)) for first in range(32)]
            swaps = [("large.json", "large-0"), ("plan.json", "small-0")] * 3
            swapped = [await swap_and_see(plan, label) for plan, label in swaps]
            ended.set()
        assert sum(task.result() for task in clients) == len(answered)
        return swapped, answered

    swapped, answered = speak(main)
    assert [(code, result["taken_over"]) for code, result in swapped] == [(200, True)] * 6
    assert [Path(result["plan"]["path"]).name for _, result in swapped] == ["large.json", "plan.json"] * 3
    assert {label for number, label in answered if number == 0} == {"small-0", "large-0"}
    counted = speak(lambda client: metric(client, server, "gearshift_requests_total"))
    assert counted[("sums", "answered")] == len(answered)
    assert counted["sums", "refused"] == 0


async def metric(client: aiohttp.ClientSession, server: Server, name: str) -> dict[tuple[str, str], float]:
    async with client.get(f"{server.url}/metrics") as response:
        lines = [line for line in (await response.text()).splitlines() if line.startswith(name + "{")]
    values = {}
    for line in lines:
        labels = [part.split('"')[1] for part in line[len(name) :].split("} ")[0].split(",")]
        values[labels[0], labels[-1]] = float(line.rpartition(" ")[2])
    return values


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../large.json", "/etc/hostname", "sub/large.json", "none.json", "link.json", ".hidden", "a" * 300],
)
def test_a_name_of_another_place_is_refused(server: Server, folder: Path, name: str) -> None:
    link = folder / "link.json"
    if not link.is_symlink():
        link.symlink_to(folder / "large.json")
        (folder / ".hidden").write_bytes((folder / "large.json").read_bytes())
    code, answer = speak(lambda client: swap(client, server, name))
    assert code == 400
    assert "in the folder given by --plans; name a file that lies in it" in answer["error"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"shadow": 1.5}, "shadow is 1.5, needs 0 to 1"),
        ({"shadow": 0.5, "shadow_s": 0}, "shadow_s is 0"),
        ({"take_over": False}, "a plan that does not take over needs a shadow share"),
        ({"shade": 0.5}, "unknown field `shade`"),
    ],
)
def test_a_swap_that_makes_no_sense_is_refused(server: Server, asked: dict[str, Any], said: str) -> None:
    code, answer = speak(lambda client: swap(client, server, "large.json", **asked))
    assert (code, said in answer["error"]) == (400, True), answer


@pytest.mark.parametrize("what", ["damaged", "operator", "profile"])
def test_a_plan_that_cannot_be_used_leaves_the_one_before(server: Server, folder: Path, what: str) -> None:
    plan = read_plan(folder / "plan.json")
    match what:
        case "damaged":
            (folder / "bad.json").write_text("{")
        case "operator":
            other = renamed(plan, "others")
            write_plan(other, folder / "bad.json")
        case "profile":
            write_plan(little_plan("0" * 64), folder / "bad.json")
    before = status(server)["plan"]
    done = run("swap", "bad.json", "--url", server.url)
    assert done.exit_code == 1
    assert "bad.json did not take over" in done.output
    assert "goes on" in done.output
    assert status(server)["plan"] == before
    assert speak(lambda client: infer(client, server, sample(2)))[0] == 200


def test_a_shadow_is_compared_and_does_not_answer(either: Server) -> None:
    server = either

    async def main(client: aiohttp.ClientSession) -> tuple[tuple[int, Any], set[str]]:
        ended, labels = asyncio.Event(), set()

        async def ask_on(number: int) -> None:
            while not ended.is_set():
                code, answer = await infer(client, server, sample(number % 10))
                assert code == 200
                labels.add(output(answer, "label"))
                number += 1

        async with asyncio.TaskGroup() as group:
            for first in range(4):
                group.create_task(ask_on(first))
            requests = 0
            while requests < 20:  # a machine that stands still for a second answers none in it
                compared = await swap(client, server, "large.json", shadow=0.5, shadow_s=1, take_over=False)
                requests = compared[1]["comparison"]["requests"]
            ended.set()
        return compared, labels

    before = status(server)["plan"]
    (code, result), labels = speak(main)
    assert (code, result["taken_over"], result["plan"]) == (200, False, before)
    compared = result["comparison"]
    assert compared["rows"] == compared["requests"] > 0
    assert (compared["failed"], compared["skipped"]) == (0, 0)
    assert 0 < compared["agreement"]["label"] < 1  # both say `large` of odd samples alone
    assert compared["latency_shadow_s"]["p50"] >= 0.004
    assert "large-0" not in labels
    assert status(server)["plan"] == before


def test_the_command_compares_alone_where_that_is_asked_for(server: Server) -> None:
    async def main(client: aiohttp.ClientSession) -> Any:
        asked = ("large.json", "--url", server.url, "--shadow", "1", "--shadow-s", "1", "--compare-only")
        swapping = asyncio.create_task(asyncio.to_thread(run, "swap", *asked))
        number = 0
        while not swapping.done():
            assert (await infer(client, server, sample(number % 10)))[0] == 200
            number += 1
        return swapping.result()

    before = status(server)["plan"]
    done = speak(main)
    assert done.exit_code == 0
    assert "requests compared, 0 copies failed" in done.output
    assert re.search(r"agreement on label: [\d.]+% of \d+ rows", done.output)
    assert f"in force at {server.url}: {before['path']}" in done.output
    assert status(server)["plan"] == before


def test_a_second_swap_waits_for_the_first_to_end(server: Server) -> None:
    async def main(client: aiohttp.ClientSession) -> list[tuple[int, Any]]:
        asked = {"shadow": 1.0, "shadow_s": 0.5, "take_over": False}
        return await asyncio.gather(*(swap(client, server, "large.json", **asked) for _ in range(2)))

    answers = speak(main)
    assert sorted(code for code, _ in answers) == [200, 409]
    assert "another swap is under way" in next(answer["error"] for code, answer in answers if code == 409)


def test_a_server_without_a_folder_of_plans_swaps_none(tmp_path: Path) -> None:
    with serving(tmp_path, "emulated") as server:
        done = run("swap", "plan.json", "--url", server.url)
        assert (done.exit_code, "the server has no folder of plans; serve with --plans" in done.output) == (2, True)


# Real models ---------------------------------------------------------------------------------------------------------


def test_real_workers_take_over_and_those_before_end(tmp_path: Path) -> None:
    with swapping(tmp_path, "local") as server:
        before = server.workers()
        first = speak(lambda client: infer(client, server, body((1.0, 2.0))))
        assert run("swap", "large.json", "--url", server.url).exit_code == 0
        second = speak(lambda client: infer(client, server, body((1.0, 2.0))))
        assert [(code, output(answer, "by")) for code, answer in (first, second)] == [(200, "small"), (200, "large")]
        assert all(gone_within(pid) for pid in before)
        assert server.workers()
        assert server.end() == 0


def test_a_model_that_cannot_be_loaded_leaves_the_plan_before(tmp_path: Path) -> None:
    with swapping(tmp_path, "local") as server:
        task = tmp_path / "task.py"
        task.write_text(task.read_text() + "\nraise RuntimeError('no weights')\n")
        workers = server.workers()
        done = run("swap", "large.json", "--url", server.url, "--json", "-")
        assert done.exit_code == 1
        assert "no weights" in done.output
        assert json.loads(done.stdout)["error"]["kind"] == "swap_failed"
        assert server.workers() == workers
        assert speak(lambda client: infer(client, server, body((1.0, 2.0))))[0] == 200


@pytest.mark.long
def test_a_server_that_ends_gives_up_a_swap_and_answers_what_it_accepted(tmp_path: Path) -> None:
    with swapping(tmp_path, "local") as server, closed(tmp_path) as open_gate:

        async def main(client: aiohttp.ClientSession) -> tuple[int, list[int]]:
            both = [asyncio.create_task(swap(client, server, "large.json", shadow=1.0, shadow_s=600)) for _ in range(2)]
            (refused,), (under_way,) = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            request = asyncio.create_task(infer(client, server, body((4.0, 1.0))))
            await until(client, server, lambda status: status["open_requests"] > 0)
            server.process.terminate()
            open_gate()
            return (await request)[0], [(await task)[0] for task in (refused, under_way)]

        assert speak(main) == (200, [409, 503])
        assert server.wait() == 0


@pytest.mark.long
def test_a_server_that_ends_answers_what_the_plan_before_has_accepted(tmp_path: Path) -> None:
    with swapping(tmp_path, "local") as server, closed(tmp_path) as open_gate:

        async def main(client: aiohttp.ClientSession) -> str:
            request = asyncio.create_task(infer(client, server, body((4.0, 3.0))))
            await until(client, server, lambda status: status["open_requests"] > 0)
            swapped = asyncio.create_task(swap(client, server, "large.json"))
            await until(client, server, lambda status: status["plan"]["path"].endswith("large.json"))
            assert not request.done()
            server.process.terminate()
            open_gate()
            code, answer = await request
            assert code == 200, answer
            assert (await swapped)[0] in (200, 503)
            return output(answer, "by")

        assert speak(main) == "small"
        assert server.wait() == 0


async def until(client: aiohttp.ClientSession, server: Server, holds: Callable[[Any], bool]) -> None:
    """Until something holds of the server's status."""
    async with asyncio.timeout(LONGEST_S):
        while True:
            async with client.get(f"{server.url}/v2/gearshift/status") as response:
                if holds(await response.json()):
                    return
