"""Which tokens an engine with continuous batching takes into its next step.

Orca (Yu et al. 2022) lets requests join between steps; Sarathi-Serve (Agrawal et al. 2024) splits
prompts into chunks, so that decoding goes on beside them: the scheduler `mixed`. With
`prefill_first`, requests that decode wait while a prompt has tokens left.
"""


def blocks_for(tokens: int, block_tokens: int) -> int:
    return -(-tokens // block_tokens)


def chunk_of(tokens_left: int, budget: int) -> int:
    """How many of a prompt's tokens join a step that has room for `budget` more."""
    return min(tokens_left, budget)


def may_enter(
    blocks: int, free_blocks: int, watermark_blocks: int, running: int, largest_running: int, budget: int
) -> bool:
    """Whether the first of the waiting prompts, which needs `blocks` in all, joins the next step."""
    return budget > 0 and running < largest_running and free_blocks - blocks >= watermark_blocks


def decodes_beside(prompts_run: bool, prefill_first: bool) -> bool:
    """Whether requests that decode take part in the next step."""
    return not (prompts_run and prefill_first)


def pairs_of(before: int, tokens: int) -> int:
    """Pairs of attention of `tokens` that come after `before` others of their prompt."""
    return tokens * before + tokens * (tokens + 1) // 2


def step_seconds(
    curve_s: float,
    kv_tokens: int,
    attention_pairs: int,
    requests: int,
    entering: int,
    per_kv_token_s: float,
    per_attention_token_s: float,
    overhead_per_step_s: float,
    overhead_per_request_s: float,
    overhead_per_prompt_s: float,
) -> float:
    """The time of a step whose batched tokens alone take `curve_s`, and which `entering` prompts begin in."""
    return curve_s + (
        kv_tokens * per_kv_token_s
        + attention_pairs * per_attention_token_s
        + overhead_per_step_s
        + requests * overhead_per_request_s
        + entering * overhead_per_prompt_s
    )
