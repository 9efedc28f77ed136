"""A pipeline of several nodes whose plan is swapped while its requests are under way."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_server import Server, speak
from tests.end_to_end.test_swap import swap
from tests.graph_task import write_graph_plan

WAITS = [4.0, 1.0, 1.0, 1.0, 2.0, 1.0]
"""A request whose first pair is odd and keeps `check` busy for a while."""
WHOLE, CUT = "odd even odd 10 6", "odd even 10"


@pytest.mark.long
@pytest.mark.parametrize("front_ends", [1, 2])
def test_requests_in_a_graph_end_on_the_plan_with_which_they_began(tmp_path: Path, front_ends: int) -> None:
    """The other plan takes two rows of three."""
    write_graph_plan(tmp_path, check_s=0.5, most=2, beyond="cut").rename(tmp_path / "other.json")
    plan = write_graph_plan(tmp_path, check_s=0.5)
    server = Server(plan, "local", {"front_ends": front_ends, "plans": str(tmp_path)})
    try:
        server.url = server.until_it_says(r"serving pairs at (http://\S+) \(4 replicas")[1]

        async def text(client: Any) -> str:
            tensor = {"name": "x", "datatype": "FP64", "shape": [1, 6], "data": WAITS}
            async with client.post(f"{server.url}/v2/models/pairs/infer", json={"inputs": [tensor]}) as response:
                answer = await response.json()
                assert response.status == 200, answer
                return str(answer["outputs"][0]["data"][0])

        async def main(client: Any) -> tuple[Any, set[str], set[str], set[str]]:
            before = [asyncio.create_task(text(client)) for _ in range(3)]
            swapping = asyncio.create_task(swap(client, server, "other.json"))
            under_way = []
            while not swapping.done():
                under_way.append(asyncio.create_task(text(client)))
                await asyncio.wait([swapping], timeout=0.2)
            after = [await text(client)]
            return await swapping, set(await asyncio.gather(*before)), set(await asyncio.gather(*under_way)), set(after)

        swapped, before, under_way, after = speak(main)
    finally:
        server.process.kill()
        server.wait()
    assert (swapped[0], swapped[1]["taken_over"]) == (200, True)
    assert (before, after) == ({WHOLE}, {CUT})
    assert under_way <= {WHOLE, CUT}
