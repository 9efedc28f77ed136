"""Faults under load: whatever happens to engines and clients, each request to language models ends exactly once.

Each round sends some requests, streamed and whole, and lets something happen among them: an engine is killed, one is
stopped and hangs, streams are cut, end with an error or fall silent, clients leave. A request ends well where its
answer is whole (`[DONE]`, or its JSON), and ends badly with an error status, an error in the stream, or a stream that
breaks off with one; it is `lost` if nothing comes within the time, and `doubled` if anything follows its end. At the
end of each round the server has no open requests and holds no bytes; at the last it has counted no more than were sent.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import uvloop
from tests.language_server import LanguageServer
from tests.two_language_models import SMALL_ALONE, cascade, language_profile, write_language_plan

from benchmarks.llm.streams import DONE, request
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from gearshift.client.http_client import HttpClient
from gearshift.support.event_loop import allow_many_connections

FAULTS = ("none", "killed", "stopped", "cut", "error", "silent", "leaving", "refused", "all")
LONGEST_S = 60.0
IN_BODY = {"cut": "cut_after", "error": "error_after", "silent": "silent_after"}


class Tried(asyncio.Protocol):
    """One request over a connection of its own, and what came of it."""

    def __init__(self, content: bytes, leaves_after_s: float | None) -> None:
        self._content, self._leaves_after_s = content, leaves_after_s
        self._answer, self.doubled = b"", False
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self._content)
        if self._leaves_after_s is not None:
            asyncio.get_running_loop().call_later(self._leaves_after_s, self._leave)

    def data_received(self, data: bytes) -> None:
        if self.outcome.done():
            self.doubled = True
            return
        self._answer += data
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("closed")

    def _leave(self) -> None:
        self._end("left")
        self.transport.abort()

    def _look(self) -> None:
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if not found:
            return
        status = int(head.split()[1])
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if lengths:
            if len(body) >= int(lengths[0].partition(b":")[2]):
                self._end("whole" if status == 200 else f"status {status}")
        elif body.endswith(b"0\r\n\r\n"):
            ends = [DONE in body, b'data: {"error"' in body]
            self._end("whole" if ends == [True, False] else "error" if ends == [False, True] else "torn")

    def _end(self, outcome: str) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)
            # What follows would be a second answer.
            asyncio.get_running_loop().call_later(0.2, self.transport.abort)


def project(profile: Path) -> str:
    """Engines that are started by a command, and may be silent for two seconds."""
    run = f"{sys.executable} -P -m gearshift.runtime.engines.emulated {profile}"
    models = "".join(
        f'[models.{model}.engine]\nmodel = "{model}"\nlongest_s = 2.0\ndevice_kind = "remote"\n'
        f'command = "{run} --model {model} --port {{port}}"\n'
        for model in ("small", "large")
    )
    return f'operator = "chat"\nprompts = "prompts.jsonl"\n{models}'


def engines_of(server: LanguageServer) -> list[int]:
    """The processes that emulate engines, without those that look after them."""
    found = []
    for pid in server.descendants():
        try:
            command = psutil.Process(pid).cmdline()
        except psutil.Error:
            continue
        if "gearshift.runtime.engines.emulated" in command and "gearshift.runtime.engines.supervise" not in command:
            found.append(pid)
    return found


def content_of(chance: random.Random, fault: str, *, stream: bool) -> bytes:
    fields: dict[str, Any] = {"stream": stream}
    kind = chance.choice(list(IN_BODY)) if fault == "all" else fault
    if kind in IN_BODY and chance.random() < 0.5:
        model = chance.choice(["", "small", "large"])
        fields["emulated"] = {"model": model, IN_BODY[kind]: chance.randrange(12)}
    elif fault in ("refused", "all") and chance.random() < 0.3:
        fields["emulated"] = {"model": chance.choice(["", "small"]), "status": chance.choice([400, 429, 500, 503])}
    return request("chat", chance.randrange(64), **fields)


async def one_round(server: LanguageServer, chance: random.Random, fault: str, requests: int) -> Counter[str]:
    """Send the requests over half a second, and count how they ended."""
    loop, tried, sent_on = asyncio.get_running_loop(), list[Tried](), list[asyncio.Task[None]]()

    async def send(after_s: float) -> None:
        await asyncio.sleep(after_s)
        stream, leaves = chance.random() < 0.7, fault in ("leaving", "all") and chance.random() < 0.5
        one = Tried(content_of(chance, fault, stream=stream), chance.random() * 0.3 if leaves else None)
        tried.append(one)
        await loop.create_connection(lambda: one, "127.0.0.1", server.port)

    async def hurt(number: signal.Signals) -> None:
        await asyncio.sleep(chance.random() / 2)
        if running := engines_of(server):
            os.kill(chance.choice(running), number)

    sent_on = [asyncio.create_task(send(chance.random() / 2)) for _ in range(requests)]
    if fault in ("killed", "all"):
        sent_on.append(asyncio.create_task(hurt(signal.SIGKILL)))
    if fault in ("stopped", "all"):
        sent_on.append(asyncio.create_task(hurt(signal.SIGSTOP)))
    await asyncio.gather(*sent_on)
    ends = Counter[str]()
    for one in tried:
        try:
            async with asyncio.timeout(LONGEST_S):
                ends[await asyncio.shield(one.outcome)] += 1
        except TimeoutError:
            ends["lost"] += 1
    await asyncio.sleep(0.2)
    ends["doubled"] += sum(one.doubled for one in tried)
    return ends


async def settled(server: LanguageServer) -> dict[str, Any]:
    """The server's status once all is answered and every engine is back."""
    due_s = time.monotonic() + LONGEST_S
    async with HttpClient(f"http://127.0.0.1:{server.port}") as client:
        while True:
            answer = await client.response_to(client.request_bytes("GET", "/v2/gearshift/status", b"", {}), within_s=30)
            status: dict[str, Any] = json.loads(answer.body)
            is_back = all(replica["ready"] for replica in status["replicas"])
            if (is_back and status["open_requests"] == 0) or time.monotonic() > due_s:
                return status
            await asyncio.sleep(0.05)


async def all_rounds(server: LanguageServer, rounds: int, requests: int, seed: int, longest_s: float) -> Counter[str]:
    chance, total, began_s = random.Random(seed), Counter[str](), time.monotonic()
    for number in range(rounds):
        fault = FAULTS[number % len(FAULTS)]
        ends = await one_round(server, chance, fault, requests)
        status = await settled(server)
        total += ends
        total["rounds"] += 1
        total["sent"] += requests
        total["left over"] += status["open_requests"] + status["waiting"] + status["held_bytes"]
        total["engines not back"] += sum(not replica["ready"] for replica in status["replicas"])
        bad = {name: ends[name] for name in ("lost", "doubled", "torn") if ends[name]}
        if bad or number % 20 == 19:
            print(f"{time.monotonic() - began_s:.0f} s, round {number + 1} ({fault}): {dict(total)}", flush=True)
        if time.monotonic() - began_s > longest_s:
            break
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--requests", type=int, default=24, help="of a round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest-s", type=float, default=570.0, help="no further round begins after so long")
    options = parser.parse_args()
    allow_many_connections()
    print(describe())
    profile = language_profile(step_s=(0.004, 0.008), output_tokens=20)
    with tempfile.TemporaryDirectory() as name:
        plan = write_language_plan(
            Path(name), [cascade(-0.5, 4), SMALL_ALONE], [0.0, 20.0], profile=profile, replicas={"small": 2, "large": 1}
        )
        (Path(name) / "gearshift.toml").write_text(project(Path(name) / "profile"))
        options_of_server = ("--project", f"{name}/gearshift.toml", "--probe-s", "0.3", "--shortest-hang-s", "0.7")
        server = LanguageServer(plan, *options_of_server)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                total = runner.run(
                    all_rounds(server, options.rounds, options.requests, options.seed, options.longest_s)
                )
            counts = [
                line for line in server.get("/metrics").splitlines() if line.startswith("gearshift_requests_total")
            ]
            print("\n".join(counts))
            total["counted twice"] = max(0, sum(int(float(line.split()[1])) for line in counts) - total["sent"])
        finally:
            server.end()
    bars = Bars()
    bars.at_least("rounds", total["rounds"], options.rounds)
    for name in ("lost", "doubled", "torn", "closed", "left over", "engines not back", "counted twice"):
        bars.at_most(name, total[name], 0)
    print(dict(total))
    print(bars)


if __name__ == "__main__":
    main()
