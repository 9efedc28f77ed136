"""One server of two pipelines, over HTTP."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gearshift.serving.operate.control import GEAR_PATH, STATUS_PATH
from tests.unit.serving.http.test_application import samples
from tests.unit.serving.http.test_openapi import answers_as_described, description
from tests.unit.serving.several import SeveralServer, serve_several

BOTH = ("sums", "numbers")


async def ask(server: SeveralServer, name: str, *numbers: int) -> Any:
    return await server.ask("POST", f"/v2/models/{name}/infer", json.dumps(samples(*numbers)).encode())


async def get(server: SeveralServer, path: str) -> Any:
    return (await server.ask("GET", path)).json()


def test_each_pipeline_answers_under_its_own_name(tmp_path: Path) -> None:
    async def use(server: SeveralServer) -> list[Any]:
        answers = await asyncio.gather(*(ask(server, name, 2, 3) for name in BOTH * 3))
        return [answer.json() for answer in answers]

    for answer, name in zip(serve_several(tmp_path, use), BOTH * 3, strict=True):
        labels = next(each["data"] for each in answer["outputs"] if each["name"] == "label")
        assert (answer["model_name"], labels) == (name, {"sums": ["small-2", "large-3"], "numbers": ["a", "a"]}[name])


@pytest.mark.parametrize("path", ["/v2/models/other/infer", "/v2/models/sums,numbers/infer", "/v2/models//infer"])
def test_other_names_are_404_and_the_answer_says_which_there_are(tmp_path: Path, path: str) -> None:
    async def use(server: SeveralServer) -> Any:
        return await server.ask("POST", path, json.dumps(samples(0)).encode())

    response = serve_several(tmp_path, use)
    assert response.status == 404
    assert "this server has ['numbers', 'sums']" in response.json()["error"]


def test_metadata_readiness_index_and_statistics_are_of_each(tmp_path: Path) -> None:
    async def use(server: SeveralServer) -> None:
        await ask(server, "numbers", 0, 1, 2)
        for name in BOTH:
            assert (await get(server, f"/v2/models/{name}"))["name"] == name
            assert await get(server, f"/v2/models/{name}/ready") == {"name": name, "ready": True}
            config = await get(server, f"/v2/models/{name}/config")
            assert config["max_batch_size"] == server.service.pipelines[name].most_waiting
        index = (await server.ask("POST", "/v2/repository/index")).json()
        assert [(entry["name"], entry["state"]) for entry in index] == [("sums", "READY"), ("numbers", "READY")]
        every = (await get(server, "/v2/models/stats"))["model_stats"]
        assert [(each["name"], each["inference_count"]) for each in every] == [("sums", 0), ("numbers", 3)]
        assert every[1:] == (await get(server, "/v2/models/numbers/stats"))["model_stats"]
        assert every[0]["execution_count"] == 0 < every[1]["execution_count"]

    serve_several(tmp_path, use)


def test_a_pipeline_without_a_worker_is_not_ready_and_refuses_while_the_other_answers(tmp_path: Path) -> None:
    async def use(server: SeveralServer) -> None:
        (net,) = [number for number in range(3) if server.task.tables.model_of(number) == "net"]
        server.service.driver.replicas_lost([net], "was killed")
        assert (await server.ask("GET", "/v2/models/numbers/ready")).status == 503
        assert (await server.ask("GET", "/v2/models/sums/ready")).status == 200
        assert (await server.ask("GET", "/v2/health/ready")).status == 503
        refused = await ask(server, "numbers", 0)
        assert (refused.status, refused.json()["error"]) == (
            503,
            "no worker of model 'net' is running; try again later",
        )
        assert (await ask(server, "sums", 0)).status == 200

    serve_several(tmp_path, use)


def test_the_status_has_each_pipeline_and_a_gear_of_one_is_pinned_and_freed_by_its_name(tmp_path: Path) -> None:
    async def use(server: SeveralServer) -> None:
        described = await description(server)

        async def steer(**body: Any) -> Any:
            response = await server.ask("POST", GEAR_PATH, json.dumps(body).encode())
            assert answers_as_described(response, described["paths"][GEAR_PATH]["post"], described)
            return response.json()

        def gears(status: Any) -> Any:
            return {each["name"]: (each["gear"], each["pinned"]) for each in status["pipelines"]}

        response = await server.ask("GET", STATUS_PATH)
        assert answers_as_described(response, described["paths"][STATUS_PATH]["get"], described)
        assert gears(response.json()) == {"sums": (0, False), "numbers": (0, False)}
        assert not {"gear", "operator", "load", "cascade"} & response.json().keys()
        assert gears(await steer(pin=1, pipeline="sums")) == {"sums": (1, True), "numbers": (0, False)}
        assert gears(await steer(pin=None, pipeline="sums"))["sums"] == (1, False)
        assert "the plan has pipelines ['sums', 'numbers']" in (await steer(pin=1))["error"]
        assert (await steer(pin=1, pipeline="others"))["error"].startswith("there is no pipeline 'others'")
        assert (await steer(pin=1, pipeline="numbers"))["error"] == "there is no gear 1; pin one from 0 to 0"

    serve_several(tmp_path, use)


def test_the_description_names_the_tensors_of_each_and_leads_everywhere(tmp_path: Path) -> None:
    async def use(server: SeveralServer) -> None:
        described = await description(server)
        for name in BOTH:
            body = described["paths"][f"/v2/models/{name}/infer"]["post"]["requestBody"]
            reference = body["content"]["application/json"]["schema"]["$ref"]
            assert reference == f"#/components/schemas/{name}.InferBody"
            schema = described["components"]["schemas"][f"{name}.InputTensor"]
            assert schema["properties"]["name"]["enum"] == ["sample"]
            response = await ask(server, name, 1)
            assert answers_as_described(response, described["paths"][f"/v2/models/{name}/infer"]["post"], described)
        references = set(re.findall(r'"\$ref": "#/components/schemas/([^"]*)"', json.dumps(described)))
        assert references == set(described["components"]["schemas"])
        assert described["info"]["title"] == "Gearshift: sums, numbers"

    serve_several(tmp_path, use)


def test_more_rows_than_may_wait_are_answered_one_request_of_each_at_a_time(tmp_path: Path) -> None:
    async def use(server: SeveralServer) -> None:
        most = server.service.pipelines["numbers"].most_waiting
        wide = [0] * (most + 1)
        asked = (ask(server, name, *wide) for name in ("numbers", "sums", "numbers"))
        first, other, second = await asyncio.gather(*asked)
        assert (first.status, other.status, second.status) == (200, 200, 429)
        assert second.headers["retry-after"] == "1"
        assert len(json.loads(first.body)["outputs"][0]["data"]) == most + 1
        text = (await server.ask("GET", "/metrics")).body.decode()
        assert 'gearshift_waiting_requests{operator="sums"} 0.0' in text

    serve_several(tmp_path, use)
