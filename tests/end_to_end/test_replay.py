"""The load generator against a real server with emulated devices, over every protocol and from several processes."""

import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import psutil
import pytest

from gearshift.errors import GearshiftError, InvalidInput
from gearshift.load_generator.replay import run_replay
from gearshift.load_generator.replay_result import OUTCOMES, Replay
from gearshift.load_generator.sources import RecordedSamples, SampleSource
from gearshift.load_generator.targets import Sending
from gearshift.request import NO_DEADLINE_NS
from gearshift.workload import Workload
from tests.certificates import write_certificate
from tests.end_to_end.test_server import Server, serving
from tests.little_task import little_profile
from tests.often import first_short

KEY = "a-key-of-the-load-generator"
SOURCE = RecordedSamples(operator="sums", samples=10)
WAYS = {
    "http": ("http", 1, {}),
    "binary": ("http", 1, {"binary": True}),
    "grpc": ("grpc", 1, {}),
    "http from three processes": ("http", 3, {}),
    "grpc from two processes": ("grpc", 2, {"deadline_s": 60.0, "priority": 2}),
}
PROTOCOLS = ["http", pytest.param("grpc", marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("task")
    (folder / "keys.txt").write_text(f"{KEY}\n")
    with serving(folder, "emulated", grpc_port=0, api_keys=str(folder / "keys.txt")) as server:
        yield server


@pytest.fixture
def open_server(tmp_path: Path) -> Iterator[Server]:
    """One that asks for no key and lets few requests wait."""
    with serving(tmp_path, "emulated", grpc_port=0, most_waiting_requests=2) as server:
        yield server


def workload(count: int, *, apart_s: float = 0.005) -> Workload:
    arrivals = (np.arange(count) * apart_s * 1e9).astype(np.int64)
    return Workload(
        arrivals_ns=arrivals, record=np.arange(count, dtype=np.int32) % 10, duration_s=count * apart_s + 0.1
    )


def url_of(server: Server, protocol: str) -> str:
    return f"grpc://{server.grpc}" if protocol == "grpc" else server.url


def replayed(
    url: str,
    load: Workload,
    *,
    source: SampleSource = SOURCE,
    processes: int = 1,
    progress: Any = None,
    under_way_s: Any = None,
    **sending: Any,
) -> Replay:
    how = Sending(**sending)
    return run_replay(url, load, source, processes=processes, progress=progress, under_way_s=under_way_s, sending=how)


def senders() -> list[psutil.Process]:
    """The processes of the load generator that are alive."""
    alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if "gearshift.load_generator.sender_process" in child.cmdline()]


@pytest.mark.parametrize(
    ("protocol", "processes", "options"),
    [
        pytest.param(*way, id=name, marks=[pytest.mark.long] * (name == "grpc from two processes"))
        for name, way in WAYS.items()
    ],
)
def test_every_request_is_sent_once_and_told_apart_whatever_the_way(
    server: Server, protocol: str, processes: int, options: dict[str, Any]
) -> None:
    load = workload(50)
    run = replayed(url_of(server, protocol), load, processes=processes, api_key=KEY, facts=True, **options)
    log = run.log
    assert [OUTCOMES[code] for code in log.outcome] == ["answered"] * 50
    assert log.record.tolist() == load.record.tolist()
    assert log.due_s.tolist() == (load.arrivals_ns / 1e9).tolist()
    assert [log.models[model] for model in log.model] == ["small", "large"] * 25
    assert log.stage.tolist() == [0, 1] * 25
    assert log.gear.tolist() == [0] * 50
    assert log.quality.tolist() == [1.0] * 50
    assert set(log.status.tolist()) == {200}
    assert np.all(log.sent_s >= log.due_s)
    assert np.all(log.answered_s > log.sent_s)
    assert run.effort.processes == processes
    assert run.effort.processor_s > 0
    if protocol == "http":
        assert (run.runs["small"].samples, run.runs["large"].samples) == (50, 25)
        assert set(run.result.utilisation) == {"cpu-0"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requests_under_way_say_when_they_were_sent_and_deadlines_count_from_then(
    server: Server, protocol: str
) -> None:
    def told(name: str) -> float:
        metrics = Request(f"{server.url}/metrics", headers={"x-api-key": KEY})
        with urlopen(metrics) as answer:
            return float(re.search(rf"(?m)^gearshift_{name} (\S+)$", answer.read().decode())[1])  # type: ignore[index]

    before = told("communication_seconds_count"), told("communication_seconds_sum")
    how = {"api_key": KEY, "under_way_s": np.full(6, 0.5)}
    kept = replayed(url_of(server, protocol), workload(6), deadline_s=60.0, **how)
    assert (told("communication_seconds_count"), kept.log.answered.all()) == (before[0] + 6, True)
    assert 3.0 <= told("communication_seconds_sum") - before[1] <= np.sum(kept.log.latency_s + 0.5)
    assert kept.result.latency_s.p50 > 0.5
    passed = replayed(url_of(server, protocol), workload(6), deadline_s=0.4, **how)
    assert set(passed.log.status.tolist()) == {504}


def test_no_process_is_started_for_nothing(server: Server) -> None:
    run = replayed(server.url, workload(2), processes=5, api_key=KEY)
    assert run.effort.processes == 2
    assert run.log.answered.all()


def test_model_and_stage_are_asked_for_only_where_they_are_wanted(server: Server) -> None:
    run = replayed(server.url, workload(2), api_key=KEY)
    assert run.log.models == []
    assert run.log.stage.tolist() == [-1, -1]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("sending", first_short([{}, {"api_key": "another"}]))
def test_a_server_that_needs_a_key_says_so_at_once(server: Server, protocol: str, sending: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match=r"an API key is needed.*--key-file") as error:
        replayed(url_of(server, protocol), workload(1), **sending)
    assert "another" not in str(error.value).replace("another one", "")


@pytest.mark.parametrize(
    ("protocol", "processes"), [("http", 1), ("grpc", 1), pytest.param("http", 3, marks=pytest.mark.long)]
)
def test_each_request_is_sent_with_its_own_deadline_in_place_of_everyones(
    server: Server, protocol: str, processes: int
) -> None:
    load = workload(30)
    hopeless = np.arange(30) % 2 == 0
    deadline_ns = np.where(hopeless, load.arrivals_ns + 1000, NO_DEADLINE_NS)
    run = replayed(
        url_of(server, protocol), replace(load, deadline_ns=deadline_ns), processes=processes, api_key=KEY,
        deadline_s=60.0,
    )  # fmt: skip
    refused = [OUTCOMES[code] == "refused" for code in run.log.outcome]
    assert refused == hopeless.tolist()
    assert run.result.share_late == 0.5


@pytest.mark.parametrize(("protocol", "processes"), first_short([("grpc", 1), ("http", 1), ("http", 2)]))
def test_a_wrong_operator_ends_the_replay(server: Server, protocol: str, processes: int) -> None:
    source = RecordedSamples(operator="nothing", samples=10)
    with pytest.raises(InvalidInput, match=r"status 404: .*there is no model 'nothing'"):
        replayed(url_of(server, protocol), workload(4), source=source, processes=processes, api_key=KEY)
    assert senders() == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_refusals_are_told_apart_from_failures(open_server: Server, protocol: str) -> None:
    run = replayed(url_of(open_server, protocol), workload(60, apart_s=0.0))
    outcomes = [OUTCOMES[code] for code in run.log.outcome]
    assert set(outcomes) == {"answered", "refused"}
    assert set(run.log.status[run.log.outcome == OUTCOMES.index("refused")].tolist()) == {429}
    assert run.failed == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requests_to_a_server_that_dies_have_failed(open_server: Server, protocol: str) -> None:
    def kill(done: int, total: int) -> None:
        open_server.process.kill()

    run = replayed(url_of(open_server, protocol), workload(40), progress=kill, longest_s=5.0)
    assert run.failed > 0
    assert set(run.log.status[run.log.outcome == OUTCOMES.index("failed")].tolist()) == {0}
    others = {OUTCOMES[code] for code in run.log.outcome[~run.log.answered].tolist()} - {"failed"}
    assert others <= {"refused"}  # before it died, where it was behind


def test_a_process_that_dies_ends_the_replay_and_leaves_none_behind(open_server: Server) -> None:
    killed: list[psutil.Process] = []

    def kill(done: int, total: int) -> None:
        if not killed:
            killed.append(senders()[0])
            killed[0].kill()

    with pytest.raises(GearshiftError, match="a process of the load generator ended with status -9"):
        replayed(open_server.url, workload(4000, apart_s=0.01), processes=2, progress=kill)
    assert senders() == []


@pytest.mark.parametrize("scheme", ["https", pytest.param("grpcs", marks=pytest.mark.long)])
def test_certificates_are_checked(tmp_path: Path, scheme: str) -> None:
    settings = write_certificate(tmp_path)
    certificate = settings["tls_certificate"]
    with serving(tmp_path, "emulated", grpc_port=0, **settings) as server:
        url = server.url if scheme == "https" else f"grpcs://{server.grpc}"
        run = replayed(url, workload(3), ca_file=certificate)
        assert np.all(run.log.answered)
        with pytest.raises(InvalidInput, match="cannot be reached"):
            replayed(url, workload(1))
        with pytest.raises(InvalidInput, match="no certificates can be read"):
            replayed(url, workload(1), ca_file=str(tmp_path / "none.pem"))


@pytest.mark.long
def test_an_address_without_a_grpc_server_is_refused_with_a_remedy() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(InvalidInput, match=r"cannot be reached.*gearshift serve"):
            replayed(f"grpc://127.0.0.1:{unused.getsockname()[1]}", workload(1))
    for url in ("grpc://127.0.0.1", "grpc://:x", "grpc://127.0.0.1:99999"):
        with pytest.raises(InvalidInput, match="no URL of a server; give it as grpc://HOST:PORT"):
            replayed(url, workload(1))


def test_the_little_profile_is_what_the_sources_samples_are() -> None:
    assert little_profile().predictions.quality.shape[1] == SOURCE.samples
