"""The cost of the front end of language models: time to the first token, engines that are free again, many streams.

Bars: one connection waits at most 2 ms longer for its first token than at the engine itself; an engine is idle at most
100 ms after a client has left, streamed or not; one core carries 2,000 streams of 5 tokens/s each, with at most 30 KB
of memory for each. Engines are emulated, in processes of their own; they and the client share the other cores. With
`--engines llama` one connection is tried over llama.cpp's server with two tiny Llamas, and no streams.
"""

import argparse
import asyncio
import json
import re
import time
import urllib.request

import numpy as np
import uvloop
from tests.two_language_models import ALONE, cascade, engine, language_profile

from benchmarks.llm.served import LLAMA_RUNNING, Engines, Served, cores_of_all, served
from benchmarks.llm.streams import Stream, begun, request, whole
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_table, spread
from gearshift.support.event_loop import allow_many_connections
from gearshift.support.processors import pin

TOKENS_PER_S = 5.0
LONG_TOKENS = 400
PROCESSING = re.compile(rb"^llamacpp:requests_processing (\S+)$", re.MULTILINE)
MOST_ADDED_S, MOST_IDLE_S, MOST_STREAM_BYTES = 0.002, 0.1, 30_000


# One connection ------------------------------------------------------------------------------------------------------


async def added_ttft(here: Served, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds to the first token at the engine and through the server, in turn."""
    direct, through = [], []
    for number in range(rounds):
        record = number % 64
        asked = {"max_tokens": 2, "cache_prompt": False}
        direct.append((await whole(here.engines["large"], request("large", record, **asked))).ttft_s)
        through.append((await whole(here.port, request("chat", record, **asked))).ttft_s)
    return direct, through


async def idle_after(here: Served, *, stream: bool, rounds: int) -> list[float]:
    """Seconds from a client's leaving until its engine has nothing to do."""
    found = []
    goes_on = {"emulated": {"silent_after": 2}} if here.emulated else {"ignore_eos": True, "max_tokens": LONG_TOKENS}
    for number in range(rounds):
        content = request("chat", number % 64, stream=stream, **goes_on)
        asked = await begun(here.port, content)
        while running(here) != 1:
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.02)
        assert asked.transport is not None
        began_s = time.perf_counter()
        asked.transport.abort()
        while running(here):
            await asyncio.sleep(0)
        found.append(time.perf_counter() - began_s)
    return found


def running(here: Served) -> int:
    """Requests that engines run, by what they say themselves."""
    total = 0
    for port in here.engines.values():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{'health' if here.emulated else 'metrics'}") as answer:
            said = answer.read()
        total += json.loads(said)["running"] if here.emulated else int(float(PROCESSING.findall(said)[0]))
    return total


def one_connection(bars: Bars, rounds: int, engines: Engines) -> None:
    profile = language_profile(step_s=(0.002, 0.005), output_tokens=200)
    most = 64 if engines == "emulated" else LLAMA_RUNNING
    with (
        served(profile, [ALONE], most=most, engines=engines) as here,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        direct, through = runner.run(added_ttft(here, rounds))
        added_s = float(np.median(through) - np.median(direct))
        print_table(
            ("time to the first token, ms", "median (range)"),
            [
                ("at the engine", spread(np.array(direct) * 1e3)),
                ("through the server", spread(np.array(through) * 1e3)),
            ],
        )
        bars.at_most("added time to the first token, ms", added_s * 1e3, MOST_ADDED_S * 1e3)
        for stream in (True, False):
            idle = runner.run(idle_after(here, stream=stream, rounds=max(10, rounds // 20)))
            how = "streamed" if stream else "whole"
            print(f"idle after a client of a {how} answer has left, ms: {spread(np.array(idle) * 1e3)}", flush=True)
            bars.at_most(
                f"engine idle after a client has left ({how}), ms, slowest", max(idle) * 1e3, MOST_IDLE_S * 1e3
            )


# Many streams --------------------------------------------------------------------------------------------------------


async def many(here: Served, streams: int, seconds: float, tokens_per_s: float) -> tuple[list[Stream], int, float]:
    """So many streams at a time for so many seconds; the memory that they take, and the server's share of a core."""
    tokens = max(2, round((seconds + streams / 400) * tokens_per_s))
    contents = [request("chat", number % 64, max_tokens=tokens) for number in range(streams)]
    await whole(here.port, request("chat", 0, max_tokens=2))
    before = here.process.memory_info().rss
    asked = []
    for number, content in enumerate(contents):
        asked.append(await begun(here.port, content))
        if number % 20 == 19:
            await asyncio.sleep(0.05)
    while not all(stream.tokens or stream.over.done() for stream in asked):
        await asyncio.sleep(0.1)
    began_s, cpu_s = time.perf_counter(), sum(here.process.cpu_times()[:2])
    await asyncio.sleep(seconds / 2)
    used = (sum(here.process.cpu_times()[:2]) - cpu_s) / (time.perf_counter() - began_s)
    memory = here.process.memory_info().rss - before
    await asyncio.gather(*(stream.over for stream in asked))
    return asked, memory, used


def many_streams(bars: Bars, streams: int, seconds: float, tokens_per_s: float) -> None:
    step_s = 1 / tokens_per_s
    base = language_profile(output_tokens=round((seconds + streams / 400) * tokens_per_s * 2 + 100))
    running = streams + 8
    shape = {"running": running, "kv_blocks": 4_000_000, "flat": max(4096, running)}
    engines = tuple(engine(model, step_s, **shape) for model in base.models)
    profile = type(base)(operator="chat", engines=engines, answers=base.answers, ranks=base.ranks)
    rows = []
    for name, gear in (("one model", ALONE), ("two stages, the first is sure", cascade(-2.0, 4))):
        with (
            served(profile, [gear], "--most-connections", str(running + 64), most=running) as here,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            asked, memory, used = runner.run(many(here, streams, seconds, tokens_per_s))
        rates = np.array([stream.tokens_per_s if stream.tokens > 1 else 0.0 for stream in asked])
        ended = sum(stream.is_whole for stream in asked)
        gaps = np.array([stream.longest_gap_s for stream in asked])
        each = memory / streams
        rows.append((name, ended, f"{used:.2f}", spread(rates), f"{np.percentile(gaps, 99):.3f}", f"{each / 1e3:.1f}"))
        bars.at_least(f"{name}: streams that ended whole", ended, streams)
        bars.at_least(f"{name}: slowest stream, tokens/s", float(rates.min()), 0.95 * tokens_per_s)
        bars.at_most(f"{name}: memory for each stream, KB", each / 1e3, MOST_STREAM_BYTES / 1e3)
    print_table(
        (f"{streams} streams", "whole", "cores used", "tokens/s of a stream", "longest gap p99, s", "KB a stream"), rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--tokens-per-s", type=float, default=TOKENS_PER_S, help="of each of these streams")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long all streams run at a time")
    parser.add_argument("--rounds", type=int, default=400, help="requests of one connection")
    parser.add_argument("--engines", choices=["emulated", "llama"], default="emulated")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.streams, options.seconds, options.rounds = 50, 4.0, 20
    allow_many_connections()
    pin(cores_of_all()[1])
    print(describe())
    bars = Bars()
    one_connection(bars, options.rounds, options.engines)
    if options.engines == "emulated":
        many_streams(bars, options.streams, options.seconds, options.tokens_per_s)
    print(bars)


if __name__ == "__main__":
    main()
