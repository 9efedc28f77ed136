"""A model behind a real server as the last stage of a cascade: profiled, planned and served."""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gearshift
from benchmarks.shared.plan_by_hand import plan_by_hand
from gearshift.cascade import Cascade, ExpectedGain
from gearshift.errors import ModelFailed
from gearshift.gear import Gear, GearPlan, LoadRange, ReplicaSettings, alone
from gearshift.hardware import Device, Hardware
from gearshift.placement import Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import Profile, RunTimeCurve
from gearshift.profiles.store import write_profile
from gearshift.traces.generate import steady
from gearshift.traces.read import write_trace
from tests.certificates import write_certificate
from tests.end_to_end.test_server import Server, body, outputs, serving, speak
from tests.unit.runtime.remote.endpoints import OPENED, as_json, endpoint, opened

BY = {"by": "label", "sum": "sum", "gearshift_certainty": "certainty"}


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("remote"), api_keys=key_file(tmp_path_factory.mktemp("keys"))) as server:
        yield server


@pytest.fixture(autouse=True)
def key_and_connections(monkeypatch) -> Iterator[None]:
    monkeypatch.setenv("THE_KEY", "a-key-of-the-remote")
    yield
    while OPENED:
        OPENED.pop().model.endpoint.close()


def key_file(folder: Path) -> str:
    (folder / "keys").write_text("a-key-of-the-remote\n")
    return str(folder / "keys")


def remote(url: str, **changed: Any) -> dict[str, Any]:
    settings = {"url": url, "protocol": "v2", "model": "sums", "api_key_env": "THE_KEY", "outputs": BY}
    return settings | {"longest_s": 20.0} | changed


def x(*rows: tuple[float, float]) -> dict[str, np.ndarray]:
    return {"x": np.array(rows, dtype=np.float64)}


def test_a_batch_is_one_request_and_outputs_are_called_as_the_project_says(server):
    predicted = opened(remote(server.url)).run(x((1, 2), (0, 4), (3, 3)))
    assert predicted.outputs["label"].tolist() == ["small", "large", "small"]
    assert predicted.outputs["sum"].tolist() == [3, 4, 6]
    assert predicted.certainty.tolist() == [1, 1, 1]
    assert predicted.outputs.keys() == {"label", "sum"}


def test_an_only_input_needs_no_name_in_common(server):
    assert opened(remote(server.url)).run({"mine": x((1, 2))["x"]}).outputs["sum"].tolist() == [3]


def test_scores_are_made_probabilities_and_certainties_as_of_any_model():
    def answer(path: str, data: bytes) -> Any:
        scores = {"name": "logits", "datatype": "FP32", "shape": [2, 2], "data": [0, 0, 3, 1]}
        texts = {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]}
        content = {"/v2": {"extensions": ["binary_tensor_data"]}, "/v2/models/m": {"inputs": [{"name": "x"}]}}
        return as_json(content.get(path, {"outputs": [scores, texts]}))

    with endpoint(answer) as there:
        predicted = opened(remote(there.url, model="m", outputs={}), softmax=True).run(x((1, 2), (3, 4)))
    assert predicted.outputs["label"].tolist() == [0, 0]
    assert predicted.outputs["text"].tolist() == ["a", "b"]
    assert predicted.certainty == pytest.approx([0, np.tanh(1)])


def test_a_sample_that_the_endpoint_cannot_answer_is_told_apart(server):
    model = opened(remote(server.url))
    with pytest.raises(ModelFailed, match=r"model 'large' failed: http\S+ answered with status 500: .*this sample"):
        model.run(x((1, 2), (666, 1)))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model": "other"}, "model 'large' cannot be found: .* status 404: .*there is no model 'other'"),
        ({"api_key_env": None}, "model 'large' cannot be found: .* status 401: .*an API key is needed"),
        ({"url": "http://127.0.0.1:9"}, "model 'large' cannot be found: .* gave no answer"),
    ],
)
def test_a_model_that_is_not_there_is_told_when_it_is_loaded(server, changed, told):
    with pytest.raises(ModelFailed, match=told):
        opened(remote(**({"url": server.url} | changed)))


def test_what_is_no_v2_server_is_told_when_it_is_loaded():
    with endpoint(lambda path, data: (200, {}, b"<html>")) as there:
        with pytest.raises(ModelFailed, match="does not speak the V2 protocol"):
            opened(remote(there.url))
        there.answer = lambda path, data: as_json({"extensions": []})
        with pytest.raises(ModelFailed, match="needs the extension binary_tensor_data"):
            opened(remote(there.url))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (as_json({"error": "draining"}, 503), "status 503: .*draining"),
        (as_json({"outputs": [{"name": "by", "datatype": "FP99", "shape": [1], "data": [1]}]}), "none of the V2"),
        (as_json({"outputs": [{"name": "by", "datatype": "FP32", "shape": [1 << 62, 4], "data": []}]}), "none of"),
        (as_json({"outputs": []}), "without the output 'by'"),
        ((307, {"location": "http://127.0.0.1:1/"}, b""), "status 307, and redirects are not followed"),
    ],
)
def test_an_endpoint_that_fails_fails_the_batch_without_asking_again(answer, told):
    found = {"/v2": as_json({"extensions": ["binary_tensor_data"]}), "/v2/models/sums": as_json({"inputs": []})}
    with endpoint(lambda path, data: found.get(path, answer)) as there:
        predicted = opened(remote(there.url)).run(x(*[(1, 2)] * 8))
        assert len(there.asked) == 3
    assert np.isnan(predicted.certainty).all()
    assert re.search(told, predicted.failure)


PROJECT = """
operator = "copy"
samples = "task.py:samples"
[profile]
batch_sizes = [1, 4]
repeats = 3
[models.small]
load = "task.py:small"
[models.large.remote]
url = "{url}"
protocol = "v2"
model = "sums"
longest_s = 20.0
api_key_env = "THE_KEY"
ca_file = "remote.pem"
[models.large.remote.outputs]
by = "label"
gearshift_certainty = "certainty"
"""
TASK = """
import gearshift
import numpy as np

X = np.array([[i % 3, 1] for i in range(40)], dtype=np.float64)

def samples():
    return gearshift.Samples({"x": X}, np.where(X[:, 0] >= 1, "small", "large"))

def small():
    return lambda x: ({"label": np.full(len(x), "small", dtype=object)}, np.where(x[:, 0] >= 1, 1.0, 0.0))
"""


@contextmanager
def remote_and_profile(tmp_path):
    """A server with a key and a certificate, and the profile of a project whose larger model is there."""
    (tmp_path / "remote").mkdir()
    certificate = write_certificate(tmp_path / "remote")
    with serving(tmp_path / "remote", api_keys=key_file(tmp_path), **certificate) as there:
        (tmp_path / "gearshift.toml").write_text(PROJECT.format(url=there.url))
        (tmp_path / "remote.pem").write_bytes(Path(certificate["tls_certificate"]).read_bytes())
        (tmp_path / "task.py").write_text(TASK)
        yield there, gearshift.profile(tmp_path, out=tmp_path / "profile")


@pytest.mark.long
def test_a_remote_model_is_profiled_planned_and_served_as_a_stage(tmp_path):
    with remote_and_profile(tmp_path) as (there, profile):
        assert [(c.model, c.device_kind) for c in profile.curves] == [("small", "cpu"), ("large", "remote")]
        assert profile.predictions.quality.mean(axis=1).tolist() == pytest.approx([26 / 40, 1])
        with served(tmp_path, profile, percentile=0.5) as server:
            asked = body((1, 1), (0, 1), outputs=[{"name": "label"}, {"name": "gearshift_model"}])
            status, answer, _ = speak(lambda client: post_to(client, server.url, asked))
            assert status == 200
            assert outputs(answer) == {"label": ["small", "large"], "gearshift_model": ["small", "large"]}
            there.end()
            status, answer, _ = speak(lambda client: post_to(client, server.url, asked))
            assert status == 200
            assert (answer["parameters"]["outcome"], outputs(answer)["label"]) == ("degraded", ["small", "small"])
            assert answer["parameters"]["reason"] == "model 'large' gave no answer"
            server.until_it_says(r"model 'large' failed on 1 of 1 samples .* gave no answer \(ConnectionRefusedError")
            assert speak(lambda client: post_to(client, server.url, body((1, 1))))[0] == 200
            assert not any("a-key-of-the-remote" in line for line in server.said)


@pytest.mark.long
def test_rows_are_refined_with_a_remote_model_and_kept_as_they_are_where_it_is_gone(tmp_path):
    with (
        remote_and_profile(tmp_path) as (there, profile),
        served(tmp_path, profile, percentile=0.5, refine_within_s=20.0) as server,
    ):
        asked = body((1, 1), (0, 1), outputs=[{"name": "label"}, {"name": "gearshift_model"}])
        status, answer, _ = speak(lambda client: post_to(client, server.url, asked))
        assert (status, answer["parameters"]["outcome"]) == (200, "answered")
        assert outputs(answer)["gearshift_model"] == ["small", "large"]
        there.end()
        status, answer, _ = speak(lambda client: post_to(client, server.url, asked))
        assert (status, answer["parameters"]["outcome"]) == (200, "degraded")
        assert outputs(answer)["label"] == ["small", "small"]
        assert answer["parameters"]["reason"] == "model 'large' gave no answer"


@pytest.mark.long
def test_a_row_whose_remote_model_is_slow_is_answered_by_time_and_later_ones_are_refined(tmp_path):
    with (
        remote_and_profile(tmp_path) as (there, profile),
        served(tmp_path, profile, percentile=0.5, refine_within_s=3.0) as server,
    ):
        asked = body((1, 1), (0, 1), outputs=[{"name": "label"}, {"name": "gearshift_model"}])

        def answers() -> tuple[Any, ...]:
            status, answer, _ = speak(lambda client: post_to(client, server.url, asked))
            told = answer["parameters"]
            return status, told["outcome"], told.get("reason", ""), outputs(answer)["gearshift_model"]

        assert answers() == (200, "answered", "", ["small", "large"])
        there.process.send_signal(signal.SIGSTOP)
        assert answers() == (200, "answered", "time", ["small", "small"])
        there.process.send_signal(signal.SIGCONT)
        end_s = time.monotonic() + 20.0
        while (found := answers())[3] != ["small", "large"]:
            assert found[:3] == (200, "answered", "time")
            assert time.monotonic() < end_s


def refining(profile: Profile, devices: Hardware, within_s: float) -> GearPlan:
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades=alone("copy", Cascade(models=("small", "large"), thresholds=(0.5,))),
        replicas=tuple(
            ReplicaSettings(replica=model, load_share=1.0, largest_batch_size=4) for model in ("small", "large")
        ),
        order="gain",
    )
    placed = (("small", "here"), ("large", "there"))
    return plan_by_hand(
        "copy",
        (gear,),
        tuple(Replica(id=model, model=model, device_ids=(device,)) for model, device in placed),
        devices,
        latency_s=within_s,
        profile_sha256=profile.sha256,
        gains=(ExpectedGain(kept="small", later="large", certainty=(0.0, 0.5), gain=(0.5, 0.0)),),
    )


@contextmanager
def served(
    folder: Path, profile: Profile, *, percentile: float, refine_within_s: float | None = None
) -> Iterator[Server]:
    """The project in `folder`, planned for a percentile that is small's: at 95 % large alone would be as good."""
    curves = tuple(took(curve, 0.001 if curve.model == "small" else 0.02) for curve in profile.curves)
    known = replace(profile, curves=curves, front_end_s=0.0005, router_s=0.0002)
    known = write_profile(known, folder / "profile")  # of times measured beside others, plans differ
    write_trace(steady(20, 5), folder / "trace.csv")
    devices = Hardware(devices=(Device(id="here"), Device(id="there", kind="remote")))
    if refine_within_s is None:
        asked = {"accuracy": 0.99, "percentile": percentile, "devices": devices, "out": folder / "plan.json"}
        plan = gearshift.plan(folder / "profile", folder / "trace.csv", **asked)
    else:
        plan = refining(known, devices, refine_within_s)
        write_plan(plan, folder / "plan.json")
    assert {r.model: r.device_ids for r in plan.placement.replicas} == {"small": ("here",), "large": ("there",)}
    server = Server(folder / "plan.json", "local", {})
    try:
        server.url = server.until_it_says(r"serving copy at (http\S+) \(2 replicas on 2 devices\)")[1]
        yield server
    finally:
        server.end()


def took(curve: RunTimeCurve, seconds: float) -> RunTimeCurve:
    times = (seconds,) * len(curve.batch_sizes)
    return RunTimeCurve(
        model=curve.model, device_kind=curve.device_kind, batch_sizes=curve.batch_sizes, median_s=times, p95_s=times
    )


async def post_to(client: Any, url: str, data: Any) -> tuple[int, Any, Any]:
    async with client.post(f"{url}/v2/models/copy/infer", json=data) as response:
        return response.status, await response.json(), response.headers


CHAT_PROJECT = """
operator = "copy"
samples = "task.py:samples"
[profile]
batch_sizes = [1, 4]
repeats = 3
[models.small]
load = "task.py:small"
[models.large.remote]
url = "{url}/v1"
protocol = "openai"
model = "judge"
prompt = "Good or bad? {{text}}"
classes = ["good", "bad"]
longest_s = 20.0
"""
CHAT_TASK = """
import gearshift
import numpy as np

TEXTS = np.array([f"{word} {i}" for i in range(20) for word in ("fine", "doubtful")], dtype=object)

def samples():
    return gearshift.Samples({"text": TEXTS}, np.array(["good", "bad"] * 20, dtype=object))

def small():
    def model(text):
        return {"label": np.full(len(text), "good", dtype=object)}, np.array([float("fine" in t) for t in text])
    return model
"""


@pytest.mark.long
def test_a_model_behind_chat_completions_is_a_stage_too(tmp_path):
    def judge(path: str, data: bytes) -> Any:
        said = "Good." if b"fine" in data else "Bad."
        logprobs = {"content": [{"token": said, "logprob": -0.1}]}
        return as_json({"choices": [{"index": 0, "message": {"content": said}, "logprobs": logprobs}]})

    with endpoint(judge) as there:
        (tmp_path / "gearshift.toml").write_text(CHAT_PROJECT.format(url=there.url))
        (tmp_path / "task.py").write_text(CHAT_TASK)
        profile = gearshift.profile(tmp_path, out=tmp_path / "profile")
        assert profile.predictions.quality.mean(axis=1).tolist() == [0.5, 1]
        with served(tmp_path, profile, percentile=0.2) as server:
            texts = {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["fine food", "doubtful wine"]}
            asked = {"inputs": [texts], "outputs": [{"name": "label"}, {"name": "gearshift_model"}]}
            before = len(there.asked)
            status, answer, _ = speak(lambda client: post_to(client, server.url, asked))
            assert status == 200
            assert outputs(answer) == {"label": ["good", "bad"], "gearshift_model": ["small", "large"]}
            assert len(there.asked) == before + 1
            there.answer = lambda path, data: as_json({"error": "slow down"}, 429)
            status, answer, _ = speak(lambda client: post_to(client, server.url, asked))
            assert (status, answer["parameters"]["outcome"]) == (200, "degraded")
            assert outputs(answer) == {"label": ["good", "good"], "gearshift_model": ["small", "small"]}
