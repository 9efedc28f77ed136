"""A model with learned caches behind a real server: where each row left, over HTTP, over gRPC and in the metrics."""

import importlib.util
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import tritonclient.grpc as triton

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import identical_devices
from gearshift.model import TensorSpec
from gearshift.models.certainty import top_two_difference
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.store import write_profile
from tests.conformance.small import refining
from tests.end_to_end.test_server import Server, post, speak, until_metric

PROJECT = """operator = "sums"
samples = "task.py:samples"
[models.cached]
load = "task.py:cached"
[models.large]
load = "task.py:large"
"""
TASK = """
import numpy as np
import torch

from gearshift.caches import CachedModel
from gearshift.caches.network.tracing import chain_of
from gearshift.caches.network.learned_cache import LearnedCache
from gearshift.caches.network.learned_cache import make_predictor


def rows():
    return np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)


def cached():
    torch.manual_seed(0)
    chain = chain_of(torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3))))
    caches = {}
    with torch.inference_mode():
        for layer, hidden in enumerate(list(chain.hidden(torch.from_numpy(rows())))[:2]):
            learned = LearnedCache(make_predictor("FC(16)", (4,), 4), 4).requires_grad_(False).eval()
            judged = learned.judged(torch.softmax(learned.predicted(hidden), dim=1)).sort().values
            learned.threshold.fill_((judged[12] + judged[13]) / 2)  # seven of the twenty rows hit
            caches[layer] = learned
    return CachedModel(chain, caches, logits=True)


def large():
    return lambda x: {
        "label": np.full(len(x), 9), "scores": np.zeros((len(x), 4), np.float32), "certainty": np.ones(len(x))
    }
"""
ADDRESSES = r"serving sums at (http://[\d.]+:\d+) and grpc://([\d.]+:\d+)"


def write_task(folder: Path, *, threshold: float | None = None, refines: bool = False) -> Path:
    """Project, profile and plan of the one model, made by hand so that nothing is measured; the path of the plan.

    With a threshold `large` comes after it, and where it `refines`, within 20 s.
    """
    models = ("cached",) if threshold is None else ("cached", "large")
    (folder / "gearshift.toml").write_text(PROJECT)
    (folder / "task.py").write_text(TASK)
    times = {"batch_sizes": (1, 32), "median_s": (0.001, 0.002), "p95_s": (0.001, 0.002)}
    profile = Profile(
        operator="sums",
        curves=(
            *(msgspec.convert({"model": "cached", "segment": k, **times}, RunTimeCurve) for k in range(3)),
            *(msgspec.convert({"model": name, **times}, RunTimeCurve) for name in models[1:]),
        ),
        predictions=PredictionRecords(
            models=models,
            quality=np.ones((len(models), 10)),
            certainty=np.ones((len(models), 10)),
            part=(np.arange(10) % 4 < 2).astype(np.int8),
            exit_segment=np.array([np.arange(10) % 3, *([0] * 10 for _ in models[1:])]),
        ),
        inputs=(TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),),
        outputs=(
            TensorSpec(name="label", datatype="INT64", shape=(-1,)),
            TensorSpec(name="scores", datatype="FP32", shape=(-1, 4)),
        ),
        project="../gearshift.toml",
    )
    gear = Gear(
        load_range=LoadRange(from_=0),
        cascades=alone("sums", Cascade(models=models, thresholds=() if threshold is None else (threshold,))),
        replicas=tuple(ReplicaSettings(replica=f"{m}-0", load_share=1.0, largest_batch_size=32) for m in models),
    )
    plan = GearPlan(
        planner="by hand",
        hardware=identical_devices(1),
        placement=Placement(replicas=tuple(Replica(id=f"{m}-0", model=m, device_ids=("cpu-0",)) for m in models)),
        pipelines={
            "sums": PipelinePlan(
                nodes={"sums": Node(operator="sums")}, output="sums", objective=Objective(latency_s=0.1), gears=(gear,)
            )
        },
        profiles={"sums": SourceFile(path="profile", sha256=write_profile(profile, folder / "profile").sha256)},
        traces={"sums": SourceFile(path="trace.csv", sha256="")},
    )
    write_plan(refining(plan, {0.0: 0.5, 0.5: 0.0}, latency_ms=20_000) if refines else plan, folder / "plan.json")
    return folder / "plan.json"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(write_task(tmp_path)) as server:
        yield server


@contextmanager
def serving(plan: Path) -> Iterator[Server]:
    server = Server(plan, "local", {"grpc_port": 0})
    try:
        said = server.until_it_says(ADDRESSES)
        server.url, server.grpc = said[1], said[2]
        yield server
    finally:
        server.process.kill()
        server.wait()


def expected(folder: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The rows, and what the model says of them in this process."""
    spec = importlib.util.spec_from_file_location("task_with_caches", folder / "task.py")
    assert spec is not None
    assert spec.loader is not None
    task = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(task)
    return task.rows(), task.cached().predict(task.rows())


def test_every_row_says_after_which_segment_it_left_over_http_and_grpc_and_in_the_metrics(
    server: Server, tmp_path: Path
) -> None:
    rows, said = expected(tmp_path)
    exits = said["exit_segment"].tolist()
    assert set(exits) == {0, 1, 2}
    names = ["label", "scores", "gearshift_exit_segment"]
    asked = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [20, 4], "data": rows.ravel().tolist()}],
        "outputs": [{"name": name} for name in names],
    }
    status, answer, _ = speak(lambda session: post(session, server, asked))
    assert status == 200, answer
    outputs = {one["name"]: one["data"] for one in answer["outputs"]}
    assert outputs["gearshift_exit_segment"] == exits
    assert outputs["label"] == said["scores"].argmax(axis=1).tolist()
    assert np.allclose(np.reshape(outputs["scores"], (20, 4)), said["scores"], atol=1e-5)

    tensor: Any = triton.InferInput("x", [20, 4], "FP32")
    tensor.set_data_from_numpy(rows)
    with triton.InferenceServerClient(server.grpc) as client:
        over_grpc = client.infer("sums", [tensor], outputs=[triton.InferRequestedOutput(name) for name in names])
    assert over_grpc.as_numpy("gearshift_exit_segment").tolist() == exits
    assert over_grpc.as_numpy("label").tolist() == outputs["label"]

    for segment, count in Counter(exits).items():
        counted = rf'gearshift_exits_total\{{model="cached",segment="{segment}"\}} {2 * count}\.0'
        speak(lambda session, counted=counted: until_metric(session, server, counted))


@pytest.mark.long
@pytest.mark.parametrize("refines", [False, True])
def test_in_a_cascade_rows_go_on_or_not_by_their_certainty_wherever_they_left(refines: bool, tmp_path: Path) -> None:
    write_task(tmp_path)
    rows, said = expected(tmp_path)
    certainty = top_two_difference(said["scores"])
    threshold, why = float(np.sort(certainty)[9:11].mean()), f'reason="{"refine" if refines else "full"}"'
    names = ["label", "gearshift_model", "gearshift_exit_segment"]
    asked = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [20, 4], "data": rows.ravel().tolist()}],
        "outputs": [{"name": name} for name in names],
    }
    with serving(write_task(tmp_path, threshold=threshold, refines=refines)) as server:
        status, answer, _ = speak(lambda session: post(session, server, asked))
        speak(lambda session: until_metric(session, server, rf'gearshift_batches_total\{{model="large",{why}'))
    assert status == 200, answer
    assert answer["parameters"]["outcome"] == "answered"
    outputs = {one["name"]: one["data"] for one in answer["outputs"]}
    stays = certainty >= threshold
    assert min(len(set(said["exit_segment"][rows])) for rows in (stays, ~stays)) > 1
    assert outputs["gearshift_model"] == ["cached" if stay else "large" for stay in stays]
    assert outputs["label"] == np.where(stays, said["scores"].argmax(axis=1), 9).tolist()
    assert outputs["gearshift_exit_segment"] == np.where(stays, said["exit_segment"], 0).tolist()
