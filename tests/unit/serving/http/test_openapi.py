"""The description is true: it names what is there, and what is answered is as it says."""

import json
import re
from typing import Any

import pytest

from gearshift.serving.door.keys import read_keys
from tests.unit.serving.http.test_application import ANYBODY, INFER, Response, Server, binary_samples, samples, serve

LOADING = {f"/v2/repository/models/{{model}}/{verb}" for verb in ("load", "unload")}
ADMINISTRATION = {"/v2/gearshift/gear", "/v2/gearshift/drain", "/v2/gearshift/swap"} | LOADING
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def fits(value: Any, schema: dict[str, Any], described: dict[str, Any]) -> bool:
    """Whether `value` is as `schema` says, with no field beside those it names."""
    if "$ref" in schema:
        return fits(value, described["components"]["schemas"][schema["$ref"].rpartition("/")[2]], described)
    if "anyOf" in schema or "oneOf" in schema:
        return any(fits(value, choice, described) for choice in schema.get("anyOf") or schema["oneOf"])
    if "enum" in schema and value not in schema["enum"]:
        return False
    kind = schema.get("type")
    if isinstance(kind, list):
        return any(fits(value, schema | {"type": one}, described) for one in kind)
    if kind is not None and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return False
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return all(fits(item, schema["additionalProperties"], described) for item in value.values())
    if kind == "object":
        inner = schema["properties"]
        known = set(schema["required"]) <= set(value) <= set(inner)
        return known and all(fits(value[name], inner[name], described) for name in value)
    if kind == "array":
        if "prefixItems" in schema:
            inside = zip(value, schema["prefixItems"], strict=True)
            return all(fits(item, inner, described) for item, inner in inside)
        return all(fits(item, schema.get("items", {}), described) for item in value)
    return True


def answers_as_described(response: Response, operation: dict[str, Any], described: dict[str, Any]) -> bool:
    content = operation["responses"][str(response.status)]["content"]
    media_type = response.headers["content-type"].partition(";")[0]
    if media_type != "application/json":
        return media_type in content
    return fits(response.json(), content["application/json"]["schema"], described)


async def description(server: Server, **headers: str) -> dict[str, Any]:
    return (await server.ask("GET", "/openapi.json", headers=headers)).json()


def test_it_names_all_paths_that_are_there_and_no_others():
    async def use(server: Server) -> tuple[Any, dict[str, str]]:
        return await description(server), server.handler.paths

    described, paths = serve(use)
    named = {path: next(iter(methods)) for path, methods in described["paths"].items()}
    assert named == paths | dict.fromkeys(LOADING, "post")
    assert described["openapi"].startswith("3.1")


def test_every_reference_leads_to_a_schema():
    text = serve(lambda server: server.ask("GET", "/openapi.json")).body.decode()
    references = set(re.findall(r'"\$ref":"#/components/schemas/([^"]*)"', text))
    assert references == set(json.loads(text)["components"]["schemas"])


@pytest.mark.parametrize("lost", [False, True])
def test_all_that_can_be_read_is_as_described(lost):
    async def use(server: Server) -> list[str]:
        await server.infer(samples(0, 1))
        described = await description(server)
        if lost:
            server.backend.lose(0)
        wrong = []
        for path, methods in described["paths"].items():
            for method, operation in methods.items():
                if path != INFER:
                    response = await server.ask(method.upper(), path.replace("{model}", "sums"))
                    if not answers_as_described(response, operation, described):
                        wrong.append(f"{method} {path}: {response}")
        return wrong

    assert serve(use) == []


OVER = samples(0)["inputs"] * 2


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (samples(0, 1, id="a", outputs=[{"name": "label"}, {"name": "gearshift_stage"}]), {}, 200),
        (samples(0, parameters={"binary_data_output": True}), {}, 200),
        (*binary_samples(0), 200),
        ({"inputs": OVER}, {}, 400),
        (b"{", {}, 400),
        (samples(0), {"x-slo-ms": "soon"}, 400),
        (b" " * (2 << 20), {}, 413),
        (samples(10), {}, 500),
    ],
)
def test_inferences_are_answered_as_described(body, headers, status):
    async def use(server: Server) -> bool:
        described = await description(server)
        response = await server.infer(body, headers)
        assert response.status == status
        return answers_as_described(response, described["paths"][INFER]["post"], described)

    assert serve(use)


@pytest.mark.parametrize(("body", "status"), [({"sample": 1}, 200), ([{"sample": 1}], 200), ({"sample": "x"}, 400)])
def test_records_are_answered_as_described(body, status):
    async def use(server: Server) -> bool:
        described, path = await description(server), "/predict/sums"
        taken = described["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert fits(body, taken, described) == (status == 200)
        response = await server.ask("POST", path, json.dumps(body).encode())
        assert response.status == status
        return answers_as_described(response, described["paths"][path]["post"], described)

    assert serve(use)


def test_refusals_for_a_while_are_answered_as_described():
    async def use(server: Server) -> list[int]:
        described = await description(server)
        operation = described["paths"][INFER]["post"]
        with server.service.pipeline.reading(60) as reading:
            reading.hold(60)
            full = await server.infer(samples(0))
        server.service.refuse_new()
        ending = await server.infer(samples(0))
        assert all(answers_as_described(response, operation, described) for response in (full, ending))
        for response in (full, ending):
            assert "retry-after" in response.headers
            assert "Retry-After" in operation["responses"][str(response.status)]["headers"]
        return [full.status, ending.status]

    assert serve(use, service={"most_waiting_bytes": 100}) == [429, 503]


def test_every_operation_may_have_too_large_a_head_and_those_that_read_a_body_too_slow_a_client():
    operations = [op for methods in serve(description)["paths"].values() for op in methods.values()]
    assert all("431" in operation["responses"] for operation in operations)
    slow = [operation["summary"] for operation in operations if "408" in operation["responses"]]
    assert set(slow) >= {"Inference", "Put another plan in force", "The pipelines and their state"}
    assert not any("408" in operation["responses"] for operation in operations if operation["summary"] == "Ready")


def test_what_it_says_can_be_asked_is_what_is_taken():
    described = serve(description)
    body = samples(0, 1, id="a", outputs=[{"name": "label"}], parameters={"priority": 1, "timeout": 5})
    schema = described["paths"][INFER]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert fits(body, schema, described)
    assert not fits(body | {"id": 1}, schema, described)
    assert not fits(body | {"outputs": [{"name": "other"}]}, schema, described)


def test_with_keys_it_says_where_none_is_needed(tmp_path):
    (tmp_path / "keys").write_text("a-longer-user-key\n")

    async def use(server: Server) -> None:
        described = await description(server, **{"x-api-key": "a-longer-user-key"})
        assert described["security"] == [{"bearer": []}, {"header": []}]
        assert set(described["components"]["securitySchemes"]) == {"bearer", "header"}
        for path, methods in described["paths"].items():
            for method, operation in methods.items():
                assert (operation.get("security") == []) == (path in ANYBODY)
                response = await server.ask(method.upper(), path.replace("{model}", "sums"))
                assert answers_as_described(response, operation, described)
                assert (response.status == 401) == (path not in ANYBODY)

    serve(use, keys=read_keys(str(tmp_path / "keys"), None))


def test_with_keys_of_administration_alone_it_says_that_these_alone_are_asked_for(tmp_path):
    (tmp_path / "admins").write_text("a-longer-admin-key\n")

    async def use(server: Server) -> None:
        described = await description(server)
        assert "security" not in described
        for path, methods in described["paths"].items():
            for method, operation in methods.items():
                assert ("401" in operation["responses"]) == ("security" in operation) == (path in ADMINISTRATION)
                response = await server.ask(method.upper(), path.replace("{model}", "sums"))
                assert answers_as_described(response, operation, described)
                assert (response.status == 401) == (path in ADMINISTRATION)

    serve(use, keys=read_keys(None, str(tmp_path / "admins")))


def test_without_keys_it_speaks_of_none():
    described = serve(description)
    assert "security" not in described
    assert "securitySchemes" not in described["components"]
