"""A pipeline of several nodes behind a server, whose answers say what its nodes did."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from gearshift.v2 import grpc_messages_pb2 as pb
from tests.end_to_end.test_server import LONGEST_S, Server, speak
from tests.end_to_end.test_traces import collector
from tests.graph_task import write_graph_plan

FAILS = [6.0, 7.0, 2.0, 2.0, 3.0, 4.0]
"""A row whose node `check` fails, which is not required."""
ASKED = ("text", "gearshift_items", "gearshift_missing")


@pytest.mark.parametrize("front_ends", [1, 2])
def test_items_and_missing_nodes_are_told_over_http_and_grpc(tmp_path: Path, front_ends: int) -> None:
    server = Server(write_graph_plan(tmp_path), "local", {"front_ends": front_ends, "grpc_port": 0})
    try:
        said = server.until_it_says(r"serving pairs at (http://\S+) and grpc://(\S+) \(4 replicas on 2 devices\)")
        server.url, server.grpc = said[1], said[2]
        by_http, by_grpc = over_http(server), over_grpc(server)
    finally:
        server.process.kill()
        server.wait()
    for items, missing, parameter in (by_http, by_grpc):
        assert Counter(item["node"] for item in items)["read"] == 3
        assert {item["node"] for item in items if item.get("error")} == {"check"}
        assert [(one["node"], one["row"]) for one in missing] == [("check", 0)]
        assert missing[0]["reason"]
        assert parameter == missing


def test_each_visit_of_a_node_has_a_span_over_http_and_grpc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as (url, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        server = Server(write_graph_plan(tmp_path), "local", {"grpc_port": 0, "otel": True})
        try:
            said = server.until_it_says(r"serving pairs at (http://\S+) and grpc://(\S+) \(4 replicas on 2 devices\)")
            server.url, server.grpc = said[1], said[2]
            over_http(server)
            over_grpc(server)
            assert server.end() == 0
        finally:
            server.process.kill()
        exports = [received.get(timeout=LONGEST_S)[1] for _ in range(received.qsize())]
    spans = [span for export in exports for r in export.resource_spans for s in r.scope_spans for span in s.spans]
    requests = {span.span_id: span for span in spans if span.name == "infer pairs"}
    assert len(requests) == 2
    for request in requests.values():
        own = [span for span in spans if span.parent_span_id == request.span_id and span.name.startswith("node ")]
        assert Counter(span.name for span in own) == {"node split": 1, "node read": 3, "node check": 2, "node join": 1}
        assert all(request.start_time_unix_nano <= s.start_time_unix_nano <= s.end_time_unix_nano for s in own)
        by_name = {span.name: span for span in own}
        checks = [{a.key: a.value for a in span.attributes} for span in own if span.name == "node check"]
        outcomes = {facts["gearshift.outcome"].string_value: facts for facts in checks}
        assert set(outcomes) == {"answered", "failed"}, "13 is too much for the model, 7 is not"
        assert outcomes["failed"]["gearshift.reason"].string_value
        assert by_name["node split"].end_time_unix_nano <= by_name["node read"].end_time_unix_nano
        assert by_name["node join"].end_time_unix_nano <= request.end_time_unix_nano


def over_http(server: Server) -> tuple[Any, Any, Any]:
    async def main(session: Any) -> Any:
        tensor = {"name": "x", "datatype": "FP64", "shape": [1, 6], "data": FAILS}
        body = {"inputs": [tensor], "outputs": [{"name": name} for name in ASKED]}
        async with session.post(f"{server.url}/v2/models/pairs/infer", json=body) as response:
            answer = await response.json()
            assert response.status == 200, answer
            return answer

    answer = speak(main)
    data = {one["name"]: one["data"][0] for one in answer["outputs"]}
    told = json.loads(answer["parameters"]["gearshift_missing"])
    return json.loads(data["gearshift_items"]), json.loads(data["gearshift_missing"]), told


def over_grpc(server: Server) -> tuple[Any, Any, Any]:
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP64", shape=[1, 6])
    asked = pb.ModelInferRequest(model_name="pairs", inputs=[tensor], raw_input_contents=[np.array(FAILS).tobytes()])
    asked.outputs.extend(pb.ModelInferRequest.InferRequestedOutputTensor(name=name) for name in ASKED)
    with grpc.insecure_channel(server.grpc) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", None, None)
        answer = pb.ModelInferResponse.FromString(infer(asked.SerializeToString(), timeout=LONGEST_S))
    texts = [json.loads(raw[4:]) for raw in answer.raw_output_contents[1:]]  # after its length
    return texts[0], texts[1], json.loads(answer.parameters["gearshift_missing"].string_param)
