"""A server of each kind of plan over emulated devices, and what it answers."""

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.goldens.running import as_always, as_json, run, shape, without_numbers
from tests.goldens.verbs import SECOND, in_lines

LONGEST_S = 300.0
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)\S* \(")
MODEL = {"one": "words", "several": "cats", "graph": "strips", "language": "chat"}
OF_PLACE = re.compile(r"^(most_connections is|starting engines:) .*\n", re.MULTILINE)
"""What depends on how many files a process may open, and on how fast it starts."""
LEFT_OUT = ("date", "content-length", "server", "x-request-id")
HEAD = re.compile(r"\bp\d\d\b")
PAGES = {"front.html": "/", "dashboard.html": "/dashboard", "docs.html": "/docs"}
SHAPES = ("/v2/gearshift/status", "/v2/gearshift/live", "/v2/models/stats")
EVENTS = "/v2/gearshift/events"
CHANCE = re.compile(r"^model .* times the profiled time.*\n|(?<=for load ).*$|(?<=\) for load ).*$", re.MULTILINE)
"""What a status says of the load and of speed."""
EXACT = ("/v2", "/v2/gearshift/promise", "/livez", "/readyz", "/v2/health/live", "/v2/health/ready", "/v1/models")
SAMPLE = {"name": "sample", "datatype": "INT64", "shape": [1], "data": [1]}
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "record 1"}]}


class Asked(NamedTuple):
    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = MappingProxyType({})


def record(world: Path, out: Path, kind: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with _serving(world, out) as port:
        url = f"http://127.0.0.1:{port}"
        answers = [_text(port, one) for one in _exchanges(kind)]
        (out / "answers.txt").write_text("\n".join(answers))
        (out / "metrics.txt").write_text(_names(_ask(port, Asked("GET", "/metrics"))[2]))
        (out / "openapi.json").write_text(as_always(as_json(json.loads(_ask(port, Asked("GET", "/openapi.json"))[2]))))
        for name, path in PAGES.items():
            (out / name).write_text(in_lines(as_always(_ask(port, Asked("GET", path))[2])))
        shapes = {path: shape(json.loads(_ask(port, Asked("GET", path))[2])) for path in SHAPES}
        events = json.loads(_ask(port, Asked("GET", EVENTS))[2])
        (out / "shapes.json").write_text(as_json({**shapes, EVENTS: shape(events[:1] if events else events)}))
        (out / "replay.txt").write_text(_replayed(world, url, kind))
        (out / "operating.txt").write_text(_operating(world, url, kind))
    (out / "validate.txt").write_text(_validated(world, kind))


@contextmanager
def _serving(world: Path, out: Path) -> Iterator[int]:
    """A server, until it has ended; what it said goes to `log.txt`."""
    log = world / "serve.log"
    command = [sys.executable, "-P", "-m", "gearshift", "serve", "plan.json", "--backend", "emulated", "--port", "0"]
    with log.open("w") as file:
        process = subprocess.Popen(
            [*command, "--plans", "."], cwd=world, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield _port(process, log)
        process.send_signal(signal.SIGTERM)
        code = process.wait(LONGEST_S)
        said = OF_PLACE.sub("", as_always(log.read_text()))
        (out / "log.txt").write_text(f"{said}exit {code}\n")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    due_s = time.monotonic() + LONGEST_S
    while time.monotonic() < due_s:
        if found := ADDRESS.search(log.read_text()):
            return int(found[1])
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise SystemExit(f"the server did not start: {log.read_text()}")


def _ask(port: int, asked: Asked) -> tuple[int, list[tuple[str, str]], str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST_S)
    body = asked.body if asked.body is None or isinstance(asked.body, str) else json.dumps(asked.body)
    try:
        connection.request(asked.method, asked.path, body, dict(asked.headers))
        response = connection.getresponse()
        return response.status, response.getheaders(), response.read().decode()
    finally:
        connection.close()


def _exchanges(kind: str) -> list[Asked]:
    model = MODEL[kind]
    common = [Asked("GET", path) for path in (*EXACT, "/nothing", "/v2/models/nothing", "/v2/models/nothing/ready")]
    common += [Asked("POST", path) for path in ("/v2/repository/index", "/v2/repository/models/x/load", "/v2")]
    common += [
        Asked("POST", "/v2/gearshift/gear", body) for body in ({}, {"gear": 99}, {"gear": 0, "model": "x"}, "no JSON")
    ]
    common += [
        Asked("POST", "/v2/gearshift/swap", body) for body in ({}, {"plan": "none.json"}, {"plan": "../x"}, "no JSON")
    ]
    common += [Asked("HEAD", "/metrics"), Asked("OPTIONS", "/v2"), Asked("DELETE", "/v2")]
    return common + (_openai() if kind == "language" else _v2(model))


def _v2(model: str) -> list[Asked]:
    path = f"/v2/models/{model}"
    infer = f"{path}/infer"
    wrong = ({**SAMPLE, **changed} for changed in ({"name": "x"}, {"datatype": "FP64"}, {"shape": [2]}, {"data": [-1]}))
    return [
        *(Asked("GET", each) for each in (path, f"{path}/config", f"{path}/ready", f"{path}/versions/1")),
        Asked("GET", infer),
        Asked("POST", infer, {"id": "7", "inputs": [SAMPLE]}),
        Asked("POST", infer, {"inputs": [SAMPLE]}, {"x-slo-ms": "60000"}),
        Asked("POST", infer, {"inputs": [SAMPLE]}, {"x-slo-ms": "no number"}),
        Asked("POST", infer, {"inputs": [SAMPLE]}, {"x-slo-ms": "0.000001"}),
        Asked("POST", infer, {"inputs": []}),
        Asked("POST", infer, {}),
        Asked("POST", infer, "no JSON"),
        Asked("POST", infer, {"inputs": [SAMPLE], "parameters": {"priority": "x"}}),
        Asked("POST", infer, {"inputs": [SAMPLE], "outputs": [{"name": "nothing"}]}),
        *(Asked("POST", infer, {"inputs": [each]}) for each in wrong),
        Asked("POST", "/v2/models/nothing/infer", {"inputs": [SAMPLE]}),
        Asked("POST", f"/predict/{model}", {"sample": 1}),
        Asked("POST", f"/predict/{model}", [{"sample": 1}, {"sample": 2}]),
        Asked("POST", f"/predict/{model}", {"x": 1}),
        Asked("POST", "/v1/chat/completions", CHAT),
    ]


def _openai() -> list[Asked]:
    chat, text = "/v1/chat/completions", "/v1/completions"
    bad: tuple[Any, ...] = (
        {},
        "no JSON",
        {"model": "nothing", "messages": CHAT["messages"]},
        {"model": "chat"},
        {**CHAT, "messages": []},
        {**CHAT, "max_tokens": -1},
        {**CHAT, "max_tokens": 100_000},
        {**CHAT, "n": 0},
        {**CHAT, "stream": "x"},
        {**CHAT, "logprobs": "x"},
    )
    return [
        *(Asked("GET", each) for each in ("/v1/models/chat", "/v1/models/nothing", "/v2/models/chat", chat)),
        Asked("POST", chat, CHAT),
        Asked("POST", chat, {**CHAT, "stream": True, "max_tokens": 3}),
        Asked("POST", chat, {**CHAT, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 2}),
        Asked("POST", chat, CHAT, {"x-slo-ms": "60000"}),
        Asked("POST", chat, CHAT, {"x-slo-ms": "no number"}),
        Asked("POST", chat, CHAT, {"x-slo-ms": "0.000001"}),
        Asked("POST", chat, CHAT, {"x-gearshift-decide": "whole"}),
        Asked("POST", chat, CHAT, {"x-gearshift-decide": "x"}),
        Asked("POST", text, {"model": "chat", "prompt": "record 1"}),
        *(Asked("POST", chat, body) for body in bad),
        Asked("POST", "/v2/models/chat/infer", {"inputs": [SAMPLE]}),
    ]


def _text(port: int, asked: Asked) -> str:
    """The exchange, with answers but for times and ids."""
    status, headers, content = _ask(port, asked)
    shown = asked.body if asked.body is None or isinstance(asked.body, str) else json.dumps(asked.body)
    named = " ".join(f"{name}: {value}" for name, value in asked.headers.items())
    lines = [" ".join(part for part in (asked.method, asked.path, shown, named) if part), str(status)]
    lines += sorted(f"{name.lower()}: {_of_header(value)}" for name, value in headers if name.lower() not in LEFT_OUT)
    promised = asked.path == "/v2/gearshift/promise"
    return as_always("\n".join([*lines, content if promised else _content(content, status), ""]))


def _of_header(value: str) -> str:
    return without_numbers(re.sub(r"sha256-[\w+/=]+", "sha256-HASH", value))


def _content(content: str, status: int) -> str:
    if status >= 400:
        return re.sub(r"\b[\d.]+ (ms|s)\b", r"# \1", content)
    content = re.sub(r'"(created|system_fingerprint)":("[^"]*"|\d+)', r'"\1":ID', content)
    content = re.sub(r'"id":"(?!chat")(\w+-)?[0-9a-f]{8,}[^"]*"', r'"id":"\1ID"', content)
    return re.sub(r'"(\w+_(?:s|ms))":[\d.e-]+', r'"\1":TIME', content)


def _names(text: str) -> str:
    """Names, types, help and labels of metrics without their values; the edges of buckets are one line."""
    lines = [line if line.startswith("#") else line.rpartition(" ")[0] for line in text.splitlines()]
    lines = [re.sub(r'le="[^"]*"', 'le="..."', line) for line in lines]
    lines = [re.sub(r'(version|implementation|major|minor|patchlevel)="[^"]*"', r'\1="..."', line) for line in lines]
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _operating(world: Path, url: str, kind: str) -> str:
    """What the verbs around a server print, without numbers."""
    lines = (
        "status",
        "gear pin 0",
        "gear pin 99",
        "gear free",
        f"gear pin 0 --model {MODEL[kind]}",
        f"gear free --model {MODEL[kind]}",
        "gear pin 0 --model nothing",
        "swap none.json",
        f"swap {SECOND[kind]}",
        "swap plan.json --shadow 0.5 --shadow-s 0.1",
        "swap plan.json",
        "drain",
        "status",
    )
    texts = []
    for line in lines:
        facts = world / "operating.json"
        facts.unlink(missing_ok=True)
        said = run(world, *line.split(), "--url", url, "--json", facts.name)
        text = as_always(said.text())
        texts.append(text if said.code else _quiet(text))
        if facts.exists() and not said.code:
            texts.append(as_json(shape(json.loads(facts.read_text()))))
    return "\n".join(texts)


def _quiet(text: str) -> str:
    """The words of a status, without its numbers, and without the gear that the load has chosen."""
    text = re.sub(" +", " ", without_numbers(CHANCE.sub("", text)))
    return re.sub(r"of # to #.*$", "of # to # ...", text, flags=re.MULTILINE)


def _replayed(world: Path, url: str, kind: str) -> str:
    of = {
        "several": f"{url} --trace cats=cats-short.csv --trace dogs=dogs-short.csv --emulated",
        "language": f"{url}/v1 --trace short.csv --profile profile --emulated",
        "graph": f"{url} --trace short.csv --profile profile --emulated",
    }
    return _measured(world, f"replay {of.get(kind) or f'{url} --trace short.csv --profile profile --emulated'}")


def _validated(world: Path, kind: str) -> str:
    traces = "--trace cats=cats-short.csv --trace dogs=dogs-short.csv" if kind == "several" else "--trace short.csv"
    return _measured(world, f"validate plan.json {traces} --backend emulated")


def _measured(world: Path, line: str) -> str:
    """The heads of the tables and the keys that stand around what is measured."""
    facts = world / "measured.json"
    facts.unlink(missing_ok=True)
    said = run(world, *line.split(), "--json", facts.name)
    shapes = as_json(shape(json.loads(facts.read_text()))) if facts.exists() else said.err
    heads = [head for head in said.out.splitlines() if "  " in head and not re.search(r"\d", HEAD.sub("", head))]
    return as_always("\n".join([f"$ {said.line}", *(re.sub(" +", " ", head) for head in heads), shapes]))
