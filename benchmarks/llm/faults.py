"""Faults under load: whatever happens to engines and clients, each request to language models ends exactly once.

Each round sends some requests, streamed and whole, and lets something happen among them: an engine is killed, one is
stopped and hangs, one breaks off every answer after its first token, streams are cut, end with an error or fall silent,
clients leave. A request ends well where its answer is whole (`[DONE]`, or its JSON), and ends badly with an error
status, an error in the stream, or a stream that breaks off with one; it is `lost` if nothing comes within the time, and
`doubled` if anything follows its end. Where only one engine is hurt, a request that ends with an error status though
nothing of its answer was shown is `given up`; 429 is none, as too much may be asked for at once. At the
end of each round the server has no open requests and holds no bytes; at the last it has counted no more than were sent.

A round mostly waits, for engines that hang or start, so `--lanes` servers with engines of their own take rounds beside
each other. With `--engines llama` the engines are llama.cpp's servers with two tiny Llamas, and faults those of
processes and clients. What a round does follows from its number and the seed. With `--state FILE` rounds that are done
are noted there, and the same command goes on after them.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import psutil
import uvloop
from tests.language_server import LanguageServer
from tests.llama import COMMAND, PATH
from tests.two_language_models import SMALL_ALONE, cascade, language_profile, write_language_plan

from benchmarks.llm.streams import DONE, request
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from gearshift.client.http_client import HttpClient
from gearshift.policies.watch.ejection import WINDOW_S
from gearshift.support.event_loop import allow_many_connections

FAULTS = {
    "emulated": ("none", "killed", "stopped", "broken", "cut", "error", "silent", "leaving", "refused", "all"),
    "llama": ("none", "killed", "stopped", "leaving", "all"),
}
BAD = ("lost", "doubled", "torn", "closed", "left over", "engines not back", "counted twice", "given up")
ONE_HURT = ("none", "killed", "stopped", "broken")
"""Faults after which another engine, or another stage, can still answer whatever was not shown."""
LONGEST_S = 60.0
LONGEST_BACK_S = 150.0
"""An engine that failed in several rounds may be left alone for a minute."""
LLAMAS = {"small": "small.gguf", "large": "medium.gguf"}
LLAMA_TOKENS = 120
"""Of an answer: some 0.2 s, so that faults come amid it."""
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


def project(profile: Path, engines: str) -> str:
    """Engines that are started by a command, within 5 s, and may be silent for a second.

    One that is stopped while it starts, after another fault, shows only by that it is not there in time.
    """
    models = ""
    for model in ("small", "large"):
        command = f"{sys.executable} -P -m gearshift.runtime.engines.emulated {profile} --model {model} --port {{port}}"
        if engines == "llama":
            file = files("gearshift.verbs.init") / "order_models" / LLAMAS[model]
            server = Path(PATH.partition(os.pathsep)[0]) / COMMAND
            command = f"{server} -m {file} --alias {model} --port {{port}} -t 1 -np 8 -c 4096 --skip-chat-parsing"
        models += (
            f'[models.{model}.engine]\nmodel = "{model}"\nlongest_s = 1.0\nlongest_start_s = 5.0\n'
            f'device_kind = "remote"\ncommand = "{command}"\n'
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
        if (
            "--port" in command
            and "serve" not in command
            and "gearshift.runtime.engines.replicas.supervise" not in command
        ):
            found.append(pid)
    return found


def content_of(chance: random.Random, fault: str, engines: str, *, stream: bool) -> bytes:
    fields: dict[str, Any] = {"stream": stream}
    if engines == "llama":
        return request("chat", chance.randrange(64), **fields, ignore_eos=True, max_tokens=LLAMA_TOKENS)
    kind = chance.choice(list(IN_BODY)) if fault == "all" else fault
    if kind in IN_BODY and chance.random() < 0.5:
        model = chance.choice(["", "small", "large"])
        fields["emulated"] = {"model": model, IN_BODY[kind]: chance.randrange(12)}
    elif fault in ("refused", "all") and chance.random() < 0.3:
        fields["emulated"] = {"model": chance.choice(["", "small"]), "status": chance.choice([400, 429, 500, 503])}
    return request("chat", chance.randrange(64), **fields)


async def one_round(server: LanguageServer, chance: random.Random, fault: str, asked: "Asked") -> Counter[str]:
    """Send the requests over half a second, and count how they ended."""
    loop, tried, sent_on = asyncio.get_running_loop(), list[Tried](), list[asyncio.Task[None]]()

    async def send(after_s: float) -> None:
        await asyncio.sleep(after_s)
        stream, leaves = chance.random() < 0.7, fault in ("leaving", "all") and chance.random() < 0.5
        one = Tried(content_of(chance, fault, asked.engines, stream=stream), chance.random() * 0.3 if leaves else None)
        tried.append(one)
        await loop.create_connection(lambda: one, "127.0.0.1", server.port)

    hurt_ones = list[int]()

    async def hurt(number: signal.Signals) -> None:
        await asyncio.sleep(0 if number == signal.SIGUSR1 else chance.random() / 2)
        if running := engines_of(server):
            hurt_ones.append(chance.choice(running))
            os.kill(hurt_ones[-1], number)

    sent_on = [asyncio.create_task(send(chance.random() / 2)) for _ in range(asked.requests)]
    if fault in ("killed", "all"):
        sent_on.append(asyncio.create_task(hurt(signal.SIGKILL)))
    if fault in ("stopped", "all"):
        sent_on.append(asyncio.create_task(hurt(signal.SIGSTOP)))
    if fault == "broken":
        sent_on.append(asyncio.create_task(hurt(signal.SIGUSR1)))
    await asyncio.gather(*sent_on)
    ends = Counter[str]()
    for one in tried:
        try:
            async with asyncio.timeout(LONGEST_S):
                ends[await asyncio.shield(one.outcome)] += 1
        except TimeoutError:
            ends["lost"] += 1
    if fault == "broken":
        for pid in hurt_ones:
            os.kill(pid, signal.SIGUSR1)
    if fault in ONE_HURT:
        ends["given up"] = sum(n for end, n in ends.items() if end.startswith("status 5"))
    await asyncio.sleep(0.2)
    ends["doubled"] += sum(one.doubled for one in tried)
    return ends


async def settled(server: LanguageServer) -> tuple[dict[str, Any], int]:
    """The server's status once all is answered and every engine is back, and how many requests that took.

    An engine that failed shows that it is back by a request that it answers.
    """
    due_s, sent = time.monotonic() + LONGEST_BACK_S, 0
    kind = {"content-type": "application/json"}
    async with HttpClient(f"http://127.0.0.1:{server.port}") as client:
        while True:
            answer = await client.response_to(client.request_bytes("GET", "/v2/gearshift/status", b"", {}), within_s=30)
            status: dict[str, Any] = json.loads(answer.body)
            is_back = all(replica["ready"] for replica in status["replicas"])
            if (is_back and status["open_requests"] == 0) or time.monotonic() > due_s:
                return status, sent
            if not is_back:
                said = [{"role": "user", "content": f"record {sent % 64}"}]
                body = json.dumps({"model": "chat", "messages": said}).encode()
                await client.response_to(client.request_bytes("POST", "/v1/chat/completions", body, kind), within_s=30)
                sent += 1
            await asyncio.sleep(0.05)


@dataclass(frozen=True)
class Asked:
    engines: str
    requests: int
    seed: int
    seconds: float


class State(msgspec.Struct):
    """Rounds that are done, and what came of all; in a file where `path` is given."""

    asked: str
    done: set[int] = msgspec.field(default_factory=set)
    total: dict[str, int] = msgspec.field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | None, asked: str) -> "State":
        if path is None or not path.exists():
            return cls(asked)
        state = msgspec.json.decode(path.read_bytes(), type=cls)
        if state.asked != asked:
            raise SystemExit(f"{path} is of other rounds: {state.asked}; name another file")
        return state

    def add(self, number: int | None, ends: Counter[str], path: Path | None) -> None:
        if number is not None:
            self.done.add(number)
        self.total = dict(Counter(self.total) + ends)
        if path is not None:
            path.write_bytes(msgspec.json.encode(self))


class Rounds:
    """Rounds that lanes take one after another, until all are done or the time is over."""

    def __init__(self, asked: Asked, rounds: int, state: State, path: Path | None) -> None:
        self.asked, self.state, self._path, self._began_s = asked, state, path, time.monotonic()
        self._left = iter(number for number in range(rounds) if number not in state.done)

    def __iter__(self) -> Iterator[int]:
        for number in self._left:
            if time.monotonic() - self._began_s > self.asked.seconds:
                return
            yield number

    def add(self, number: int, fault: str, ends: Counter[str]) -> None:
        self.state.add(number, ends, self._path)
        count = len(self.state.done)
        if any(ends[name] for name in BAD) or count % 20 == 0:
            took_s = time.monotonic() - self._began_s
            print(f"{took_s:.0f} s, {count} rounds, {number} ({fault}): {self.state.total}", flush=True)

    def count_of(self, counted: int, sent: int) -> None:
        """At the end of a lane."""
        self.state.add(None, Counter({"counted twice": max(0, counted - sent)}), self._path)


async def lane(server: LanguageServer, rounds: Rounds) -> int:
    """Take rounds; the number of requests sent."""
    asked, sent = rounds.asked, 0
    for number in rounds:
        fault = FAULTS[asked.engines][number % len(FAULTS[asked.engines])]
        ends = await one_round(server, random.Random(f"{asked.seed} {number}"), fault, asked)
        status, more = await settled(server)
        sent += asked.requests + more
        ends["sent"] = asked.requests
        ends["left over"] = status["open_requests"] + status["waiting"] + status["held_bytes"]
        ends["engines not back"] = sum(not replica["ready"] for replica in status["replicas"])
        rounds.add(number, fault, ends)
        if fault not in ONE_HURT:  # its retries would count against those of the next round
            await asyncio.sleep(WINDOW_S)
    return sent


def started(folder: Path, engines: str) -> LanguageServer:
    """A server of two small engines and a large one; above 20 requests at a time the small ones answer alone."""
    folder.mkdir()
    profile = language_profile(step_s=(0.004, 0.008), output_tokens=20)
    cascades, counts = [cascade(-0.5, 4), SMALL_ALONE], {"small": 2, "large": 1}
    plan = write_language_plan(folder, cascades, [0.0, 20.0], profile=profile, replicas=counts)
    (folder / "gearshift.toml").write_text(project(folder / "profile", engines))
    return LanguageServer(plan, "--project", f"{folder}/gearshift.toml", "--probe-s", "0.3", "--shortest-hang-s", "0.7")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--requests", type=int, default=24, help="of a round")
    parser.add_argument("--engines", choices=list(FAULTS), default="emulated")
    parser.add_argument("--lanes", type=int, default=4, help="servers that take rounds beside each other")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=570.0, help="no further round begins after so long")
    parser.add_argument("--state", type=Path, default=None, help="a file of the rounds that are done, to go on later")
    options = parser.parse_args()
    allow_many_connections()
    print(describe())
    asked = Asked(options.engines, options.requests, options.seed, options.seconds)
    state = State.read(options.state, f"{options.engines}, {options.requests} requests, seed {options.seed}")
    servers = list[LanguageServer]()
    with tempfile.TemporaryDirectory() as name:
        try:
            folders = [Path(name) / str(number) for number in range(options.lanes)]
            with ThreadPoolExecutor(options.lanes) as threads:
                for server in threads.map(lambda folder: started(folder, options.engines), folders):
                    servers.append(server)
            rounds = Rounds(asked, options.rounds, state, options.state)

            async def all_lanes() -> list[int]:
                return await asyncio.gather(*(lane(server, rounds) for server in servers))

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                sent = runner.run(all_lanes())
            for server, sent_there in zip(servers, sent, strict=True):
                lines = server.get("/metrics").splitlines()
                counts = [line for line in lines if line.startswith("gearshift_requests_total")]
                rounds.count_of(sum(int(float(line.split()[1])) for line in counts), sent_there)
        finally:
            for server in servers:
                server.end()
    bars = Bars()
    bars.at_least("rounds", len(state.done), options.rounds)
    for name in BAD:
        bars.at_most(name, state.total.get(name, 0), 0)
    print(state.total)
    print(bars)


if __name__ == "__main__":
    main()
