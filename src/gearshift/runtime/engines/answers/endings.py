"""Whether an answer is whole, by the reason that its engine gives for its end."""

from enum import Enum


class Ending(Enum):
    """`UNKNOWN` is a reason that no known engine gives for a whole answer, nor for a broken one."""

    NOT_YET = "not yet"
    WHOLE = "whole"
    BROKEN = "broken"
    UNKNOWN = "unknown"


NOT_YET = frozenset({"", "null", "none"})
WHOLE = frozenset({
    "stop", "length", "tool_calls", "function_call", "content_filter",  # OpenAI
    "eos", "eos_token", "stop_sequence", "stop_token", "end_of_text",  # TGI, Together, NVIDIA
    "end_turn", "max_tokens", "tool_use", "refusal", "pause_turn",  # Anthropic
    "model_context_window_exceeded", "sensitive",  # GLM, Anthropic
    "model_length",  # Mistral
    "safety", "recitation", "blocklist", "prohibited_content", "spii",  # Gemini
    "complete", "stop_tokens", "error_toxic",  # Cohere
    "repetition", "max_length", "limit", "tool_call", "completed", "done",
})  # fmt: skip
"""An answer that a filter cut is as whole as it gets: another engine would be asked to say what this one may not."""
BROKEN = frozenset({
    "abort", "aborted", "cancel", "cancelled", "canceled", "interrupted",  # vLLM, SGLang
    "error", "internal_error", "server_error", "engine_error", "failed", "network_error", "other",  # GLM, Gemini
    "insufficient_system_resource", "resource_exhausted", "resource-exhausted", "out_of_memory", "oom",  # DeepSeek
    "overloaded", "preempted", "timeout", "time_limit", "error_limit", "load", "unload",  # Ollama, Cohere
    "malformed_function_call", "function_call_filter",  # Gemini
})  # fmt: skip


def ending_of(reason: object) -> Ending:
    """By a choice's `finish_reason`; Gemini's endpoint adds details behind a colon."""
    if reason is None or reason == "":
        return Ending.NOT_YET
    if not isinstance(reason, str):
        return Ending.UNKNOWN
    if reason in WHOLE:
        return Ending.WHOLE
    name = reason[:100].partition(":")[0].strip().lower()
    for names, ending in ((NOT_YET, Ending.NOT_YET), (WHOLE, Ending.WHOLE), (BROKEN, Ending.BROKEN)):
        if name in names:
            return ending
    return Ending.UNKNOWN
