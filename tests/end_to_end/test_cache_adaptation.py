"""A real server whose learned caches adapt to what they are asked, and whose attending process is killed."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors.torch import save_file

import gearshift
from gearshift.caches.store.manifest import MANIFEST, read_manifest
from gearshift.caches.store.versions import switch_to, version_folder, version_numbers
from gearshift.caches.store.weights import networks_of, save_caches, weights_of
from gearshift.traces.generate import steady
from tests.end_to_end.test_server import Server, get
from tests.programs.ray_nodes import ON_LOOPBACK, RayNodes
from tests.unit.caches.adapters import images_of
from tests.unit.caches.digit_networks import EXAMPLE, built, network

PROJECT = """
operator = "sums"
samples = "task.py:load_samples"

[models.cached]
load = "task.py:load_cached"

[profile]
batch_sizes = [1, 8]
repeats = 3
"""
TASK = """
from pathlib import Path
import networks
import gearshift
from gearshift import caches

FOLDER = Path(__file__).parent

def load_cached():
    network = networks.Network(blocks=6, width=4)
    return caches.load(FOLDER / "caches", gearshift.load_weights(network, FOLDER / "network.safetensors"))

def load_samples():
    images, labels = networks.digits()
    return gearshift.Samples({"images": images[1300:1360]}, labels=labels[1300:1360])
"""
LONGEST_S = 60.0
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapting")
    (folder / "networks.py").write_bytes(EXAMPLE.read_bytes())
    (folder / "task.py").write_text(TASK)
    (folder / "gearshift.toml").write_text(PROJECT)
    save_file(network().state_dict(), folder / "network.safetensors")
    built().save(folder / "caches")
    manifest = (
        folder / "caches" / MANIFEST
    )  # a target at which the classes of the build, which few samples judge, allow
    manifest.write_text(json.dumps({**json.loads(manifest.read_bytes()), "target": 0.1}))
    gearshift.profile(folder / "gearshift.toml", out=folder / "profile")
    gearshift.write_trace(steady(20, 5), folder / "trace.csv")
    gearshift.plan(folder / "profile", folder / "trace.csv", latency_s=1.0, out=folder / "plan.json")
    return folder / "plan.json"


@contextmanager
def serving_plan(plan: Path, backend: str = "local", **settings: Any) -> Iterator[Server]:
    server = Server(plan, backend, settings)
    try:
        server.url = server.until_it_says(r"serving sums at (https?://[\d.]+:\d+)")[1]
        yield server
    finally:
        server.process.kill()
        server.wait()


def ask(server: Server, images: Any) -> tuple[list[int], list[int]]:
    """Classes, and after which segment each image left."""
    with gearshift.Client(server.url, "sums") as client:
        said = client.infer({"images": images}, outputs=["label", "gearshift_exit_segment"]).outputs
    return said["label"].tolist(), said["gearshift_exit_segment"].tolist()


def until(found: Callable[[], Any], server: Server) -> Any:
    """What is found, asking the server all the while."""
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        ask(server, images_of(1, 2))  # many: equal inputs have one purpose
        told = found()
        if told:
            return told
    raise AssertionError("not within the longest time")


def metric(server: Server, name: str) -> float:
    lines = get(server, "/metrics")[1].splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def attendant(server: Server) -> int:
    """The child of the lowest priority."""
    return next(pid for pid in server.workers() if os.getpriority(os.PRIO_PROCESS, pid) == 19)


def test_learned_caches_adapt_while_they_serve_and_survive_what_befalls_the_process(plan: Path) -> None:
    settings = {"adapt": "cached", "adapt_share": 0.8, "adapt_interval_s": 4.0, "cache_audit_share": 0.1}
    with serving_plan(plan, **settings) as server:
        until(lambda: metric(server, "gearshift_cache_learnt_total"), server)
        victim = attendant(server)
        os.kill(victim, signal.SIGKILL)
        server.until_it_says("attends to the learned caches of model 'cached' ended by signal 9.*stay as they are")
        assert until(lambda: metric(server, "gearshift_cache_version") >= 1, server)
        until(lambda: metric(server, 'gearshift_cache_retrainings_total{model="cached",outcome="set"}'), server)
        images = images_of(1, 2, count=50)
        until(lambda: np.mean(np.array(ask(server, images)[1]) < 2) > 0.8, server)
        assert metric(server, "gearshift_cache_attendant_restarts_total") == 1
        assert metric(server, "gearshift_cache_audited_total") > 0
        assert server.end() == 0
    assert json.loads((plan.parent / "caches" / "state.json").read_bytes())["current"] >= 1
    with serving_plan(plan) as server:
        assert np.mean(np.array(ask(server, images)[1]) < 2) > 0.8


def test_a_cache_that_answers_wrongly_is_switched_off_in_service(plan: Path, tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns("state.json", "audits.json", "window.npz", "versions")
    careless = shutil.copytree(plan.parent, tmp_path / "careless", ignore=left_out)
    folder = careless / "caches"
    manifest = read_manifest(folder)
    networks = networks_of(manifest, weights_of(folder, manifest), None, where=str(folder / MANIFEST))
    first = manifest.chosen[0]
    networks[first.layer].threshold.fill_(-1e9)
    save_caches(folder, msgspec.structs.replace(manifest, target=0.97), networks)
    images = images_of(*range(10), count=50)
    with serving_plan(careless / "plan.json", cache_audit_share=0.5) as server:
        assert set(ask(server, images[:8])[1]) == {first.layer}
        off = f'gearshift_cache_off{{model="cached",segment="{first.layer}"}}'
        end = time.monotonic() + LONGEST_S
        while metric(server, off) == 0 and time.monotonic() < end:
            ask(server, images)
        server.until_it_says(f"the learned cache of model 'cached' after {first.block} is switched off")
        until(lambda: first.layer not in ask(server, images)[1], server)
        assert server.end() == 0


def version_without_caches(folder: Path) -> int:
    """Another version of the build, of which no cache is looked up."""
    number = version_numbers(folder)[-1] + 1
    manifest, home = read_manifest(folder), version_folder(folder, number)
    variants = tuple(msgspec.structs.replace(one, chosen=False) for one in manifest.variants)
    home.mkdir(parents=True)
    (home / manifest.file).write_bytes((folder / manifest.file).read_bytes())
    (home / MANIFEST).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, variants=variants)))
    return number


def test_another_version_reaches_replicas_that_are_actors_of_ray(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("ray") is None:
        pytest.skip("ray is not installed; `make test-long` does that")
    for name, value in ON_LOOPBACK.items():
        monkeypatch.setenv(name, value)
    folder, images = plan.parent / "caches", images_of(1, 2, count=50)
    switch_to(folder, 0)
    with RayNodes(1) as nodes, serving_plan(plan, "ray", address=nodes.address) as server:
        early, last = min(ask(server, images)[1]), max(ask(server, images_of(*range(10)))[1])
        assert early < last
        number = version_without_caches(folder)
        switch_to(folder, number)
        assert until(lambda: metric(server, "gearshift_cache_version") == number, server)
        until(lambda: set(ask(server, images)[1]) == {last}, server)
        switch_to(folder, 0)
        until(lambda: min(ask(server, images)[1]) == early, server)
        assert server.end() == 0
