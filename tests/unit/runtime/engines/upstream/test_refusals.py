"""Refusals of many vendors: which of them another model may answer, and which nobody."""

import json
from typing import Any

import pytest

from gearshift.runtime.engines.upstream.call import Fault
from gearshift.runtime.engines.upstream.refusals import Kind, for_client, kind_of

Told = tuple[str, int, Any]


def openai(message: str, code: str | int | None = None, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code, **more}}


def openrouter(said: Any, code: int = 400) -> dict[str, Any]:
    return {"error": {"message": "Provider returned error", "code": code, "metadata": {"raw": json.dumps(said)}}}


TOO_LONG: list[Told] = [
    ("OpenAI", 400, openai("This model's maximum context length is 8192 tokens.", "context_length_exceeded")),
    ("OpenAI, in another language", 400, openai("Zu viel.", "context_length_exceeded")),
    ("OpenAI, for the answer", 400, openai("max_tokens is too large: 99999. This model supports at most 16384", None)),
    ("OpenAI, more than a minute's tokens", 429, openai("Request too large for gpt-4o on tokens per min (TPM)", "x")),
    ("Azure", 400, {"error": {"code": "context_length_exceeded", "message": "", "status": 400}}),
    (
        "Azure, inference",
        413,
        {"error": {"code": "tokens_limit_reached", "message": "Request body too large for this model", "details": ""}},
    ),
    (
        "Gemini",
        400,
        {
            "error": {
                "code": 400,
                "status": "INVALID_ARGUMENT",
                "message": "The input token count (461428) exceeds the maximum number of tokens allowed (131072).",
            }
        },
    ),
    (
        "Gemini, in a list",
        400,
        [{"error": {"code": 400, "message": "The input token count exceeds the maximum number of tokens allowed 1"}}],
    ),
    (
        "Anthropic",
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 211180 tokens > 200000 maximum"},
            "request_id": "r",
        },
    ),
    ("Anthropic, by bytes", 413, {"type": "error", "error": {"type": "request_too_large", "message": "too big"}}),
    (
        "vLLM",
        400,
        {
            "object": "error",
            "message": "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's "
            "maximum context length is 4096 tokens and your request has 2104 input tokens",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    ("SGLang", 400, {"object": "error", "message": "Requested token count exceeds the model's maximum context length"}),
    (
        "TGI",
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` "
            "tokens and 512 `max_new_tokens`",
            "error_type": "validation",
        },
    ),
    (
        "TGI, the prompt alone",
        422,
        {
            "error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 4000",
            "error_type": "validation",
        },
    ),
    (
        "llama.cpp",
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9000,
                "n_ctx": 4096,
            }
        },
    ),
    ("Ollama", 400, openai("prompt too long; exceeded max context length by 12 tokens", None)),
    (
        "LM Studio",
        400,
        {"error": "The number of tokens to keep from the initial prompt is greater than the context length"},
    ),
    (
        "DashScope",
        400,
        openai(
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
            "invalid_parameter_error",
        ),
    ),
    ("GLM", 400, {"error": {"code": "1261", "message": "Prompt 超长"}}),
    ("Z.ai", 400, {"error": {"code": "1210", "message": "Prompt exceeds max length"}}),
    ("DeepSeek", 400, openai("This model's maximum context length is 65536 tokens. However, you requested 70000")),
    (
        "Mistral",
        400,
        {
            "object": "error",
            "message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
            "type": "invalid_request_prompt",
            "code": "3051",
        },
    ),
    ("Groq", 413, openai("Request too large for model", "rate_limit_exceeded", type="tokens")),
    ("Groq, of the context", 400, openai("Please reduce the length of the messages or completion.")),
    (
        "xAI",
        400,
        {"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 131072"},
    ),
    ("OpenRouter", 400, openrouter(openai("too long", "context_length_exceeded", detail="maximum context length"))),
    ("a proxy", 413, "<html><h1>413 Request Entity Too Large</h1></html>"),
    ("amid a stream", 0, openai("", "context_length_exceeded")),
]
CONTENT: list[Told] = [
    (
        "OpenAI",
        400,
        openai(
            "Invalid content type. image_url is only supported by certain models.",
            param="messages.[0].content.[1].type",
        ),
    ),
    ("OpenAI, audio", 400, openai("Invalid value: 'input_audio'. Supported values are: 'text'.", "invalid_value")),
    ("Azure", 400, {"error": {"code": "BadRequest", "message": "Image input is not supported for this deployment"}}),
    (
        "Gemini",
        400,
        {
            "error": {
                "code": 400,
                "message": "Image input modality is not enabled for models/gemma",
                "status": "INVALID_ARGUMENT",
            }
        },
    ),
    (
        "vLLM",
        400,
        {
            "error": {
                "message": "small is not a multimodal model",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            }
        },
    ),
    ("vLLM, no more images", 400, openai("At most 0 image(s) may be provided in one prompt.", 400)),
    ("vLLM, tools", 400, openai('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser', 400)),
    ("SGLang", 400, openai("This model does not support image input.", 400)),
    (
        "llama.cpp",
        500,
        {
            "error": {
                "code": 500,
                "message": "image input is not supported - hint: if this is unexpected, "
                "you may need to provide the mmproj",
                "type": "server_error",
            }
        },
    ),
    ("Ollama", 500, openai("this model is missing data required for image input")),
    ("Ollama, tools", 400, openai("registry.ollama.ai/library/gemma:2b does not support tools", type="api_error")),
    (
        "DeepSeek",
        400,
        openai(
            "Failed to deserialize the JSON body into the target type: messages[0]: unknown variant "
            "`image_url`, expected `text` at line 1 column 99",
            "invalid_request_error",
        ),
    ),
    ("GLM", 400, {"error": {"code": "1210", "message": "messages.content.type 参数非法 取值范围 ['text']"}}),
    (
        "DashScope",
        400,
        openai(
            "<400> InternalError.Algo.InvalidParameter: The model does not support image input",
            "invalid_parameter_error",
        ),
    ),
    ("Mistral", 400, {"object": "error", "message": "Image input is not enabled for this model", "code": "3051"}),
    (
        "Mistral, validation",
        422,
        {
            "detail": [
                {
                    "type": "string_type",
                    "loc": ["body", "messages", 0, "content"],
                    "msg": "content should be a valid string",
                }
            ]
        },
    ),
    (
        "Groq",
        400,
        openai(
            "'messages.0' : for 'role:user' the following must be satisfied[('messages.0.content' : value "
            "must be a string)]"
        ),
    ),
    ("OpenRouter", 404, {"error": {"message": "No endpoints found that support image input", "code": 404}}),
    ("OpenRouter, tools", 404, {"error": {"message": "No endpoints found that support tool use.", "code": 404}}),
    ("by status", 415, {"detail": "no"}),
    ("by code", 400, openai("nein", "unsupported_content_type")),
]
REQUEST: list[Told] = [
    ("OpenAI", 400, openai("Invalid 'temperature': decimal above maximum value.", "decimal_above_max_value")),
    ("OpenAI, a role", 400, openai("Invalid value: 'a'. Supported values are: 'system' and 'user'.", "invalid_value")),
    ("OpenAI, no such file", 400, openai("Failed to download image from https://a.example/b.png", "invalid_image_url")),
    ("Azure's filter", 400, {"error": {"code": "content_filter", "message": "The response was filtered; the prompt's "
                             "context length and images are not supported", "innererror":
                             {"code": "ResponsibleAIPolicyViolation"}, "status": 400}}),
    ("DashScope's filter", 400, openai("Input data may contain inappropriate content.", "data_inspection_failed")),
    ("GLM's filter", 400, {"contentFilter": [{"level": 1, "role": "user"}], "error": {"code": "1301", "message": "…"}}),
    ("Gemini", 400, {"error": {"code": 400, "message": "Invalid JSON payload.", "status": "INVALID_ARGUMENT"}}),
    ("vLLM", 400, {"object": "error", "message": "temperature must be non-negative, got -1.0.", "code": 400}),
    ("TGI", 422, {"error": "Template error: undefined value", "error_type": "template_error"}),
    ("TGI, a parameter", 422, {"error": "Input validation error: `temperature` must be strictly positive"}),
    ("pydantic", 422, {"detail": [{"loc": ["body", "n"], "msg": "Input should be a valid integer"}]}),
    ("no JSON", 400, "bad request"),
    ("nothing", 400, ""),
]  # fmt: skip
ENGINE: list[Told] = [
    ("broken", 500, openai("CUDA error: device-side assert triggered", type="server_error")),
    ("no such model", 404, openai("The model `x` does not exist", "model_not_found")),
    ("overloaded", 529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    (
        "too many",
        429,
        openai("Rate limit reached for gpt-4o on tokens per min: Limit 10, Used 9", "rate_limit_exceeded"),
    ),
    ("no key", 401, openai("Incorrect API key provided", "invalid_api_key")),
    ("a gateway", 502, "context length"),
    ("no stream", 200, "the context length"),
    ("amid a stream", 0, openai("the engine is dead", None, type="server_error")),
    ("closed", 0, ""),
]


def fault(told: Told) -> Fault:
    body = told[2] if isinstance(told[2], str) else json.dumps(told[2])
    return Fault("it refused", told[1], body.encode())


def ids(cases: list[Told]) -> list[str]:
    return [case[0] for case in cases]


@pytest.mark.parametrize("told", TOO_LONG, ids=ids(TOO_LONG))
def test_what_is_too_long_for_a_model_may_fit_into_another(told: Told) -> None:
    assert kind_of(fault(told)) is Kind.TOO_LONG
    assert kind_of(fault(told)).of_model


@pytest.mark.parametrize("told", CONTENT, ids=ids(CONTENT))
def test_content_that_a_model_does_not_take_may_be_for_another(told: Told) -> None:
    assert kind_of(fault(told)) is Kind.CONTENT
    assert kind_of(fault(told)).of_model


@pytest.mark.parametrize("told", REQUEST, ids=ids(REQUEST))
def test_a_request_that_is_wrong_is_offered_to_nobody_else(told: Told) -> None:
    assert kind_of(fault(told)) is Kind.REQUEST


@pytest.mark.parametrize("told", ENGINE, ids=ids(ENGINE))
def test_faults_of_an_engine_are_for_another_replica(told: Told) -> None:
    assert kind_of(fault(told)) is Kind.ENGINE


def test_an_endpoint_that_is_not_there_has_refused_nothing() -> None:
    assert kind_of(Fault("the prompt is too long", unreachable=True)) is Kind.ENGINE
    assert kind_of(Fault("context length", 503, for_clients=True)) is Kind.ENGINE


@pytest.mark.parametrize(("status", "told"), [(0, 400), (404, 400), (500, 400), (413, 413), (422, 422), (429, 429)])
def test_a_refusal_of_every_model_is_the_clients_fault(status: int, told: int) -> None:
    assert for_client(Fault("", status, b"{}")).status == told


def test_a_refusal_that_repeats_a_long_prompt_is_read_to_its_bound() -> None:
    echo = openai("bad: " + "a " * 100_000 + "context length")
    assert kind_of(Fault("", 400, json.dumps(echo).encode())) is Kind.REQUEST
