"""Two tasks of one plan file in one real server, with loads of their own."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gearshift.plans.plan_file import read_plan, write_plan
from tests.end_to_end.test_server import LONGEST_S, PAUSE_S, Server, gone_within, speak
from tests.often import first_short
from tests.two_tasks import two_task_plan, write_two_tasks
from tests.unit.cli.little import run

EDGE_QPS = 40.0
BOTH = ("sums", "numbers")


@contextmanager
def serving_both(folder: Path, **settings: Any) -> Iterator[Server]:
    """A server of both tasks in worker processes; `other.json` is a plan in which `sums` keeps its first gear."""
    path = write_two_tasks(folder, edge_qps=EDGE_QPS)
    profiles = read_plan(path).profiles
    sha256 = (profiles["sums"].sha256, profiles["numbers"].sha256)
    write_plan(two_task_plan(*sha256, edge_qps=1e6), folder / "other.json")
    server = Server(path, "local", {"plans": str(folder), **settings})
    try:
        server.url = server.until_it_says(r"serving sums, numbers at (http://\S+) \(3 replicas on 1 device\)")[1]
        yield server
    finally:
        workers = server.workers() if server.process.poll() is None else []
        server.process.kill()
        server.wait()
        assert all(gone_within(pid) for pid in workers)


RETRY_S = 0.05


class Clients:
    """Requests to one of the tasks, and how often each was answered, by its number."""

    def __init__(self, session: aiohttp.ClientSession, server: Server, name: str) -> None:
        self._session, self._url, self._name = session, f"{server.url}/v2/models/{name}/infer", name
        self.sent = 0
        self.answered: Counter[int] = Counter()
        self.asks_again = False
        """Whether requests are sent again that were refused as no worker runs."""
        self.news = asyncio.Event()

    async def ask(self) -> None:
        """Send one request; its answer has to be its own."""
        self.sent += 1
        number = self.sent
        shape, data = ([1, 2], [1, number]) if self._name == "sums" else ([1, 1], [number])
        tensor = {"name": "x", "datatype": "FP64", "shape": shape, "data": data}
        while True:
            async with self._session.post(self._url, json={"id": str(number), "inputs": [tensor]}) as response:
                answer = await response.json()
            if not (self.asks_again and response.status == 503 and answer["error"].startswith("no worker of model")):
                break
            await asyncio.sleep(RETRY_S)
        assert response.status == 200, answer
        (value,) = next(one["data"] for one in answer["outputs"] if one["name"] in ("sum", "label"))
        assert (answer["model_name"], answer["id"]) == (self._name, str(number))
        assert value == ({"sums": 1 + number, "numbers": "a"}[self._name])
        self.answered[number] += 1
        self.news.set()

    @asynccontextmanager
    async def loading(self, clients: int, pause_s: float = 0.0) -> AsyncIterator[None]:
        """Each client asks again and again, during the block; all are answered at its end."""
        ended = asyncio.Event()

        async def ask_on() -> None:
            while not ended.is_set():
                await self.ask()
                await asyncio.sleep(pause_s)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(ask_on())
            try:
                yield
            finally:
                ended.set()

    async def until_more(self, count: int) -> None:
        """Until so many more requests are answered."""
        enough = self.answered.total() + count
        async with asyncio.timeout(LONGEST_S):
            while self.answered.total() < enough:
                self.news.clear()
                await self.news.wait()


async def status(session: aiohttp.ClientSession, server: Server) -> Any:
    async with session.get(f"{server.url}/v2/gearshift/status") as response:
        return await response.json()


async def until_gears(session: aiohttp.ClientSession, server: Server, **gears: int) -> None:
    async with asyncio.timeout(LONGEST_S):
        while {one["name"]: one["gear"] for one in (await status(session, server))["pipelines"]} != gears:
            await asyncio.sleep(PAUSE_S)


async def counted(session: aiohttp.ClientSession, server: Server) -> dict[str, float]:
    """The requests that the server has counted, by pipeline and outcome."""
    async with session.get(f"{server.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    found = [line.removeprefix("gearshift_requests_total{") for line in lines if "requests_total{" in line]
    return {line.split("}")[0]: float(line.rpartition(" ")[2]) for line in found}


Use = Callable[[aiohttp.ClientSession, Server, Clients, Clients], Awaitable[None]]


def with_both(folder: Path, use: Use, **settings: Any) -> None:
    """Run `use`; then each request has been answered once, and the server has counted them so."""

    async def main(session: aiohttp.ClientSession) -> None:
        sums, numbers = (Clients(session, server, name) for name in BOTH)
        await use(session, server, sums, numbers)
        outcomes = await counted(session, server)
        for name, clients in zip(BOTH, (sums, numbers), strict=True):
            assert set(clients.answered) == set(range(1, clients.sent + 1))
            assert set(clients.answered.values()) == {1}
            assert outcomes[f'operator="{name}",outcome="answered"'] == clients.sent
            assert outcomes[f'operator="{name}",outcome="failed"'] == 0

    with serving_both(folder, **settings) as server:
        speak(main)
        assert server.end() == 0


@pytest.mark.parametrize("front_ends", first_short([1, 2]))
def test_one_shifts_gears_with_its_own_load_while_the_other_stays(tmp_path: Path, front_ends: int) -> None:
    async def use(session: aiohttp.ClientSession, server: Server, sums: Clients, numbers: Clients) -> None:
        async with numbers.loading(1, pause_s=0.02):
            await numbers.until_more(5)
            await until_gears(session, server, sums=0, numbers=0)
            async with sums.loading(8):
                await until_gears(session, server, sums=1, numbers=0)
                await sums.until_more(50)
                assert (await status(session, server))["pipelines"][1]["gear"] == 0
            await until_gears(session, server, sums=0, numbers=0)
            await numbers.until_more(5)
        shown = run("status", "--url", server.url)
        assert "sums, numbers at" in shown.output
        assert json.loads(run("status", "--url", server.url, "--json", "-").stdout)["state"] == "serving"
        pinned = run("gear", "pin", "1", "--model", "sums", "--url", server.url, "--json", "-")
        assert [one["gear"] for one in json.loads(pinned.stdout)["pipelines"]] == [1, 0]
        unclear = run("gear", "free", "--url", server.url)
        assert (unclear.exit_code, "the plan has pipelines ['sums', 'numbers']" in unclear.output) == (2, True)

    with_both(tmp_path, use, front_ends=front_ends)


@pytest.mark.long
def test_a_killed_worker_and_swaps_lose_and_double_nothing_of_either(tmp_path: Path) -> None:
    async def use(session: aiohttp.ClientSession, server: Server, sums: Clients, numbers: Clients) -> None:
        sums.asks_again = numbers.asks_again = (
            True  # between a worker's end and the start of the next, they are refused
        )
        async with sums.loading(4), numbers.loading(2):
            await sums.until_more(20)
            os.kill(server.workers()[0], signal.SIGKILL)
            await asyncio.gather(sums.until_more(50), numbers.until_more(20))
            for plan in ("other.json", "plan.json"):
                asked = {"plan": plan, "shadow": 0.5, "shadow_s": 0.3}
                async with session.post(f"{server.url}/v2/gearshift/swap", json=asked) as response:
                    result = await response.json()
                    assert response.status == 200, result
                assert (result["taken_over"], Path(result["plan"]["path"]).name) == (True, plan)
                assert {name: each["failed"] for name, each in result["comparisons"].items()} == dict.fromkeys(BOTH, 0)
                assert result["comparisons"]["numbers"]["agreement"] == {"label": 1.0}
                await asyncio.gather(sums.until_more(50), numbers.until_more(20))

    with_both(tmp_path, use)


def test_a_drain_refuses_both_and_answers_what_was_accepted(tmp_path: Path) -> None:
    async def use(session: aiohttp.ClientSession, server: Server, sums: Clients, numbers: Clients) -> None:
        await asyncio.gather(*(clients.ask() for clients in (sums, numbers) for _ in range(5)))
        async with session.post(f"{server.url}/v2/gearshift/drain") as response:
            assert (await response.json())["state"] == "draining"
        for name in BOTH:
            async with session.get(f"{server.url}/v2/models/{name}/ready") as response:
                assert response.status == 503
        async with session.post(f"{server.url}/v2/gearshift/drain", json={"undo": True}) as response:
            assert (await response.json())["state"] == "serving"
        await asyncio.gather(*(clients.ask() for clients in (sums, numbers)))

    with_both(tmp_path, use)


@pytest.mark.long
def test_a_request_for_each_task_is_printed_at_the_start(tmp_path: Path) -> None:
    with serving_both(tmp_path) as server:
        for name in BOTH:
            server.until_it_says(rf"try: .*curl {server.url}/predict/{name} ")
