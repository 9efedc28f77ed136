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
