"""How vendors part an answer, and what each of them says where no stream is asked for.

Written after their documentation and after reports of their users; texts are shortened.
"""

from dataclasses import dataclass, field
from typing import Any

Part = dict[str, Any]


@dataclass(frozen=True)
class Vendor:
    """`message` is that of the whole answer; `choice` and `answer` have fields beside it that must be there."""

    name: str
    chunks: list[Part]
    message: Part
    finish: str = "stop"
    choice: Part = field(default_factory=dict)
    answer: Part = field(default_factory=dict)
    usage: Part = field(default_factory=dict)


def delta(finish: Any = None, **fields: Any) -> Part:
    """A chunk of one choice."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def of_choice(**fields: Any) -> Part:
    return {"choices": [{"index": 0, **fields}]}


def usage(prompt: int = 9, output: int = 4, **more: Any) -> Part:
    counts = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    return {"choices": [], "usage": counts | more}


def call(arguments: Any = None, *, name: str | None = None, **fields: Any) -> Part:
    """A part of a call of a tool."""
    given = {"name": name, "arguments": arguments}
    return {**fields, "function": {key: value for key, value in given.items() if value is not None}}


def whole_call(id: str, name: str, arguments: str, **more: Any) -> Part:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


WEATHER = whole_call("call_a", "get_weather", '{"city": "Bonn"}')
TIME = whole_call("call_b", "get_time", '{"zone": "CET"}')
TWO_CALLS = {"role": "assistant", "content": None, "tool_calls": [WEATHER, TIME]}

OPENAI = Vendor(
    "OpenAI",
    [
        delta(role="assistant", content="", refusal=None)
        | {"id": "c1", "created": 7, "service_tier": "default", "system_fingerprint": "fp", "obfuscation": "x"},
        delta(content="Hel") | {"id": "c1", "obfuscation": "yy"},
        delta(content="lo") | {"id": "c1", "obfuscation": "z"},
        delta("stop") | {"id": "c1"},
        usage(prompt_tokens_details={"cached_tokens": 3}),
    ],
    {"role": "assistant", "content": "Hello", "refusal": None},
    answer={"id": "c1", "created": 7, "service_tier": "default", "system_fingerprint": "fp"},
    usage={"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}},
)
OPENAI_TOOLS = Vendor(
    "OpenAI, two calls",
    [
        delta(role="assistant", content=None),
        delta(tool_calls=[call("", name="get_weather", index=0, id="call_a", type="function")]),
        delta(tool_calls=[call('{"city"', index=0)]),
        delta(tool_calls=[call("", name="get_time", index=1, id="call_b", type="function")]),
        delta(tool_calls=[call('{"zone": ', index=1), call(': "Bonn"}', index=0)]),
        delta(tool_calls=[call('"CET"}', index=1)]),
        delta("tool_calls"),
        usage(),
    ],
    TWO_CALLS,
    finish="tool_calls",
)  # fmt: skip
OPENAI_AUDIO = Vendor(
    "OpenAI, audio",
    [
        delta(role="assistant", content=None, audio={"id": "audio_1", "transcript": "Good "}),
        delta(audio={"transcript": "day"}),
        delta(audio={"data": "AAAA"}),
        delta(audio={"data": "BBBB", "expires_at": 99}),
        delta("stop"),
    ],
    {
        "role": "assistant",
        "content": None,
        "audio": {"id": "audio_1", "transcript": "Good day", "data": "AAAABBBB", "expires_at": 99},
    },
)
AZURE = Vendor(
    "Azure",
    [
        {"id": "", "created": 0, "choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        of_choice(delta={"role": "assistant", "content": None, "tool_calls": None}, finish_reason=None, logprobs=None)
        | {"id": "c2", "created": 5},
        of_choice(delta={"content": "ok"}, finish_reason=None, content_filter_results={"hate": {"filtered": False}})
        | {"id": "c2", "created": 5},
        of_choice(delta={"content": "ay"}, finish_reason=None, content_filter_results={}) | {"id": "c2", "created": 5},
        of_choice(delta={}, finish_reason="stop") | {"id": "c2", "created": 5},
        of_choice(finish_reason=None, content_filter_offsets={"start_offset": 0}) | {"id": "", "created": 0},
        usage() | {"id": "c2"},
    ],
    {"role": "assistant", "content": "okay"},
    choice={"content_filter_results": {"hate": {"filtered": False}}, "content_filter_offsets": {"start_offset": 0}},
    answer={"id": "c2", "created": 5},
)
SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
GEMINI = Vendor(
    "Gemini",
    [
        delta(role="assistant", tool_calls=[WEATHER | {"index": 0} | SIGNED]) | usage(9, 2) | {"choices": [
            {"index": 0, "delta": {"role": "assistant", "tool_calls": [WEATHER | {"index": 0} | SIGNED]}}]},
        delta(role="assistant", tool_calls=[TIME | {"index": 0}]),
        delta("tool_calls", role="assistant") | {"usage": {"prompt_tokens": 9, "completion_tokens": 4}},
    ],
    {"role": "assistant", "content": None, "tool_calls": [WEATHER | SIGNED, TIME]},
    finish="tool_calls",
    usage={"completion_tokens": 4},
)  # fmt: skip
GEMINI_NO_IDS = Vendor(
    "Gemini, without ids",
    [
        delta(tool_calls=[call('{"city": "Bonn"}', name="get_weather", index=0, id="", type="function")]),
        delta(tool_calls=[call('{"city": "Rome"}', name="get_weather", index=0, id="", type="function")]),
        delta("tool_calls"),
    ],
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [whole_call("", "get_weather", f'{{"city": "{city}"}}') for city in ("Bonn", "Rome")],
    },
    finish="tool_calls",
)
ANTHROPIC = Vendor(
    "Anthropic",
    [
        delta(role="assistant", content="I look."),
        delta(tool_calls=[call("", name="get_weather", index=0, id="call_a", type="function")]),
        delta(tool_calls=[call('{"city": ', index=0)]),
        delta(tool_calls=[call('"Bonn"}', index=0)]),
        delta("tool_calls"),
        usage(),
    ],
    {"role": "assistant", "content": "I look.", "tool_calls": [WEATHER]},
    finish="tool_calls",
)
VLLM = Vendor(
    "vLLM",
    [
        delta(role="assistant", content="") | {"prompt_token_ids": [1, 2]},
        of_choice(delta={"reasoning_content": "One, "}, logprobs=None, finish_reason=None, token_ids=[10, 11]),
        of_choice(delta={"reasoning_content": "two."}, logprobs=None, finish_reason=None, token_ids=[12]),
        of_choice(delta={"content": "Three"}, logprobs=None, finish_reason=None, token_ids=[13]),
        of_choice(delta={"content": ""}, logprobs=None, finish_reason="stop", stop_reason=7, token_ids=None),
        usage(),
    ],
    {"role": "assistant", "content": "Three", "reasoning_content": "One, two."},
    choice={"token_ids": [10, 11, 12, 13], "stop_reason": 7},
    answer={"prompt_token_ids": [1, 2]},
)
VLLM_TOOLS = Vendor(
    "vLLM, all calls with index 0",
    [
        delta(role="assistant", content=""),
        delta(tool_calls=[call("", name="get_weather", index=0, id="call_a", type="function")]),
        delta(tool_calls=[call('{"city": ', index=0, id="", type="function")]),
        delta(tool_calls=[call('"Bonn"}', index=0, id="", type="function")]),
        delta(tool_calls=[call("", name="get_time", index=0, id="call_b", type="function")]),
        delta(tool_calls=[call('{"zone": "CET"}', index=0, id="", type="function")]),
        delta("tool_calls", content=""),
    ],
    TWO_CALLS,
    finish="tool_calls",
)
VLLM_NEW_IDS = Vendor(
    "vLLM, a new id in each part",
    [
        delta(role="assistant", tool_calls=[call(name="get_weather", index=0, id="call_a", type="function")]),
        delta(tool_calls=[call('{"city": ', index=0, id="call_x", type="function")]),
        delta(tool_calls=[call('"Bonn"}', index=0, id="call_y", type="function")]),
        delta("tool_calls"),
    ],
    {"role": "assistant", "content": None, "tool_calls": [WEATHER]},
    finish="tool_calls",
)
SGLANG = Vendor(
    "SGLang",
    [
        delta(role="assistant", content="", reasoning_content=None),
        delta(tool_calls=[call("", name="get_weather", index=0, id="call_a", type="function")]),
        delta(tool_calls=[call('{"city": "Bonn"}', index=0, id="call_a", type="function")]),
        delta(tool_calls=[call("", name="get_time", index=0, id="call_b", type="function")]),
        delta(tool_calls=[call('{"zone": "CET"}', index=0, id="call_b", type="function")]),
        of_choice(delta={}, finish_reason="tool_calls", matched_stop=None),
    ],
    TWO_CALLS | {"reasoning_content": None},
    finish="tool_calls",
)
DASHSCOPE = Vendor(
    "DashScope",
    [
        delta(role="assistant", content=None, reasoning_content=""),
        delta(content=None, reasoning_content="Bonn?"),
        delta(content=None, tool_calls=[call("", name="get_weather", index=0, id="call_a", type="function")]),
        delta(content=None, tool_calls=[call('{"city": ', name="", index=0, id="", type="function")]),
        delta(content=None, tool_calls=[call('"Bonn"}', name="", index=0, id="", type="")]),
        delta("tool_calls", content=""),
        usage(),
    ],
    {"role": "assistant", "content": None, "reasoning_content": "Bonn?", "tool_calls": [WEATHER]},
    finish="tool_calls",
)
GLM = Vendor(
    "GLM",
    [
        delta(role="assistant", reasoning_content="hm"),
        delta(role="assistant", content="Yes"),
        delta(role="assistant", content="."),
        delta("sensitive", role="assistant", content="") | {"usage": usage()["usage"]},
    ],
    {"role": "assistant", "content": "Yes.", "reasoning_content": "hm"},
    finish="sensitive",
    usage={"total_tokens": 13},
)
DEEPSEEK = Vendor(
    "DeepSeek",
    [
        delta(role="assistant", content=None, reasoning_content=""),
        of_choice(
            delta={"content": None, "reasoning_content": "hm"},
            finish_reason=None,
            logprobs={"content": None, "reasoning_content": [{"token": "hm", "logprob": -0.5}]},
        ),
        of_choice(
            delta={"content": "Yes", "reasoning_content": None},
            finish_reason=None,
            logprobs={"content": [{"token": "Yes", "logprob": -0.25}], "reasoning_content": None},
        ),
        delta("stop", content="", reasoning_content=None) | {"usage": usage(prompt_cache_hit_tokens=6)["usage"]},
    ],
    {"role": "assistant", "content": "Yes", "reasoning_content": "hm"},
    choice={
        "logprobs": {
            "content": [{"token": "Yes", "logprob": -0.25}],
            "reasoning_content": [{"token": "hm", "logprob": -0.5}],
        }
    },
    usage={"prompt_cache_hit_tokens": 6},
)


def thought(text: str) -> Part:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


MISTRAL = Vendor(
    "Mistral",
    [
        delta(role="assistant", content=""),
        delta(content=[thought("One, ")]),
        delta(content=[thought("two.")]),
        delta(content="Thr"),
        delta(content="ee"),
        delta("stop", content="") | {"usage": usage()["usage"]},
    ],
    {"role": "assistant", "content": [thought("One, two."), {"type": "text", "text": "Three"}]},
)
MISTRAL_TOOLS = Vendor(
    "Mistral, calls at once",
    [
        delta(role="assistant", content=""),
        delta("tool_calls", content="", tool_calls=[
            call('{"city": "Bonn"}', name="get_weather", id="call_a"),
            call('{"zone": "CET"}', name="get_time", id="call_b"),
        ]),
    ],
    {"role": "assistant", "content": None, "tool_calls": [
        {name: one[name] for name in ("id", "function")} for one in (WEATHER, TIME)
    ]},
    finish="tool_calls",
)  # fmt: skip


def reasoned(text: str, index: int = 0) -> Part:
    return {"type": "reasoning.text", "text": text, "format": "unknown", "index": index}


CITED = {"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A"}}
OPENROUTER = Vendor(
    "OpenRouter",
    [
        delta(role="assistant", content="", reasoning="One, ", reasoning_details=[reasoned("One, ")])
        | {"provider": "P"},
        delta(content="", reasoning="two.", reasoning_details=[reasoned("two.")]),
        delta(content="", reasoning_details=[{"type": "reasoning.text", "signature": "s=", "text": "", "index": 0}]),
        delta(content="", reasoning_details=[{"type": "reasoning.encrypted", "data": "sig=", "index": 1}]),
        delta(content="Hi", annotations=[CITED]),
        delta(content=".", annotations=[CITED]),
        of_choice(delta={"content": ""}, finish_reason="stop", native_finish_reason="STOP"),
        of_choice(delta={"role": "assistant", "content": ""}, finish_reason="stop", native_finish_reason="STOP")
        | {"usage": usage(cost=0.5)["usage"]},
    ],
    {
        "role": "assistant",
        "content": "Hi.",
        "reasoning": "One, two.",
        "reasoning_details": [
            reasoned("One, two.") | {"signature": "s="},
            {"type": "reasoning.encrypted", "data": "sig=", "index": 1},
        ],
        "annotations": [CITED, CITED],
    },
    choice={"native_finish_reason": "STOP"},
    answer={"provider": "P"},
    usage={"cost": 0.5},
)
OLLAMA = Vendor(
    "Ollama",
    [
        delta("", role="assistant", content="", reasoning="hm"),
        delta("", content="", tool_calls=[call('{"city": "Bonn"}', name="get_weather", type="function")]),
        delta("", content="", tool_calls=[call('{"zone": "CET"}', name="get_time", type="function")]),
        delta("tool_calls", role="assistant", content=""),
    ],
    {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [
        {name: one[name] for name in ("type", "function")} for one in (WEATHER, TIME)
    ]},
    finish="tool_calls",
)  # fmt: skip
LLAMA_CPP = Vendor(
    "llama.cpp",
    [
        delta(role="assistant", content=None),
        delta(content="Yes"),
        delta("stop") | {"timings": {"prompt_n": 9}},
        usage() | {"timings": {"prompt_n": 9}},
    ],
    {"role": "assistant", "content": "Yes"},
    answer={"timings": {"prompt_n": 9}},
)
TGI = Vendor(
    "TGI",
    [
        delta(role="assistant", tool_calls=call('{"city"', name="get_weather", index=0, id="", type="function")),
        delta(role="assistant", tool_calls=call(': "Bonn', name="get_weather", index=0, id="", type="function")),
        delta(role="assistant", tool_calls=call('"}', name="get_weather", index=0, id="", type="function")),
        delta("eos_token", role="assistant", content=""),
    ],
    {"role": "assistant", "content": None, "tool_calls": [WEATHER | {"id": ""}]},
    finish="eos_token",
)
PERPLEXITY = Vendor(
    "Perplexity",
    [
        of_choice(message={"role": "assistant", "content": "Ye"}, delta={"role": "assistant", "content": "Ye"})
        | {"citations": ["https://a.example"]},
        of_choice(message={"role": "assistant", "content": "Yes"}, delta={"content": "s"}, finish_reason="stop")
        | {"citations": ["https://a.example"], "usage": usage()["usage"]},
    ],
    {"role": "assistant", "content": "Yes"},
    answer={"citations": ["https://a.example"]},
)
LITELLM = Vendor(
    "LiteLLM before Anthropic",
    [
        delta(role="assistant", content="", reasoning_content="hm"),
        delta(content="", thinking_blocks=[{"type": "thinking", "thinking": "h"}]),
        delta(content="", thinking_blocks=[{"type": "thinking", "thinking": "m", "signature": ""}]),
        delta(content="", thinking_blocks=[{"type": "thinking", "thinking": "", "signature": "s="}]),
        delta(content="Yes", provider_specific_fields={"citation": None}),
        delta("stop"),
    ],
    {
        "role": "assistant",
        "content": "Yes",
        "reasoning_content": "hm",
        "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s="}],
        "provider_specific_fields": {"citation": None},
    },
)  # fmt: skip
OLD_FUNCTION = Vendor(
    "OpenAI, before tools",
    [
        delta(role="assistant", content=None, function_call={"name": "get_weather", "arguments": ""}),
        delta(function_call={"arguments": '{"city": '}),
        delta(function_call={"arguments": '"Bonn"}'}),
        delta("function_call"),
    ],
    {"role": "assistant", "content": None, "function_call": {"name": "get_weather", "arguments": '{"city": "Bonn"}'}},
    finish="function_call",
)
CUSTOM = Vendor(
    "OpenAI, a custom tool",
    [
        delta(tool_calls=[{"index": 0, "id": "call_c", "type": "custom", "custom": {"name": "run", "input": ""}}]),
        delta(tool_calls=[{"index": 0, "custom": {"input": "ls "}}]),
        delta(tool_calls=[{"index": 0, "custom": {"input": "-l"}}]),
        delta("tool_calls"),
    ],
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_c", "type": "custom", "custom": {"name": "run", "input": "ls -l"}}],
    },
    finish="tool_calls",
)

VENDORS = [
    *(OPENAI, OPENAI_TOOLS, OPENAI_AUDIO, OLD_FUNCTION, CUSTOM, AZURE, GEMINI, GEMINI_NO_IDS, ANTHROPIC, VLLM),
    *(VLLM_TOOLS, VLLM_NEW_IDS, SGLANG, DASHSCOPE, GLM, DEEPSEEK, MISTRAL, MISTRAL_TOOLS, OPENROUTER, OLLAMA),
    *(LLAMA_CPP, TGI, PERPLEXITY, LITELLM),
]
