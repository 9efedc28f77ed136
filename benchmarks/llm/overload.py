"""Goodput of a server of language models under overload: answers seen in time, of streams their first token.

Emulated engines, two small and two large; above 12 requests at a time the small ones answer alone, which end some 20
requests a second. A third of the clients do not stream: they see their answer when it is whole.
"""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

import uvloop
from tests.language_server import LanguageServer
from tests.two_language_models import ALONE, SMALL_ALONE, language_profile, write_language_plan

from benchmarks.llm.streams import request
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from gearshift.support.event_loop import allow_many_connections

CAPACITY_QPS, OBJECTIVE_S, TOKENS = 20.0, 1.0, 40
WARM_S = 2.0
"""The queues are filled by then."""


async def ask(port: int, number: int, deadline_ms: int | None) -> tuple[int, float]:
    """The status, and the seconds until the client sees something of the answer."""
    streams = number % 3 != 0
    content = request("chat", number % 64, stream=streams)
    if deadline_ms is not None:
        content = content.replace(b"\r\n\r\n", b"\r\nx-slo-ms: %d\r\n\r\n" % deadline_ms, 1)
    began_s = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(content)
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split()[1])
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    if length:
        await reader.readexactly(int(length))
        seen_s = time.perf_counter() - began_s
    else:
        seen_s = time.perf_counter() - began_s
        while not (await reader.readline()).startswith(b"data: [DONE]"):
            pass
    writer.close()
    return status, seen_s


async def goodput(port: int, rate_qps: float, seconds: float, deadline_ms: int | None) -> float:
    """Answers in time per second, of requests that came after `WARM_S`."""
    chance, loop = random.Random(0), asyncio.get_running_loop()
    begin_s, due_s, asked = loop.time(), 0.0, list[tuple[float, asyncio.Task[tuple[int, float]]]]()
    while due_s < seconds:
        await asyncio.sleep(max(0.0, begin_s + due_s - loop.time()))
        asked.append((due_s, asyncio.create_task(ask(port, len(asked), deadline_ms))))
        due_s += chance.expovariate(rate_qps)
    ends = [(at_s, *await task) for at_s, task in asked]
    in_time = [at_s for at_s, status, seen_s in ends if status == 200 and seen_s <= OBJECTIVE_S and at_s >= WARM_S]
    return len(in_time) / (seconds - WARM_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--factors", type=float, nargs="+", default=[1.0, 2.0, 4.0], help="times what it can carry")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    allow_many_connections()
    print(describe())
    bars = Bars()
    with tempfile.TemporaryDirectory() as name:
        profile = language_profile(step_s=(0.02, 0.06), output_tokens=TOKENS)
        plan = write_language_plan(
            Path(name), [ALONE, SMALL_ALONE], [0.0, 12.0], profile=profile, replicas={"small": 2, "large": 2}
        )
        for factor in options.factors:
            for deadline_ms in (None, round(1000 * OBJECTIVE_S)):
                server = LanguageServer(plan, "--backend", "emulated")
                try:
                    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                        rate_qps = factor * CAPACITY_QPS
                        good = runner.run(goodput(server.port, rate_qps, options.seconds, deadline_ms))
                finally:
                    server.end()
                what = f"{factor:g} x {CAPACITY_QPS:g}/s, {'no deadlines' if deadline_ms is None else 'deadlines'}"
                print(f"{what}: goodput {good:.1f}/s", flush=True)
                if factor > 1:
                    bars.at_least(f"goodput at {what}, of what it carries", good / CAPACITY_QPS, 0.9)
    print(bars)


if __name__ == "__main__":
    main()
