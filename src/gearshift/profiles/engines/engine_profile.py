"""How long the steps of an engine with continuous batching take, and how much it holds."""

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from gearshift.errors import require
from gearshift.policies.engines.steps import pairs_of, step_seconds

Scheduler = Literal["mixed", "prefill_first"]
LONGEST_STEP_S, MOST_TOKENS = 3600.0, 1 << 30
MOST_FACTOR = 100.0
LONGEST_WHOLE_STEP_S = 1e6
"""With all added times; beside three others with `MOST_FACTOR` its nanoseconds still fit 62 bits."""


class StepCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a step by batched tokens, linear between points; rising, at least one point.

    Beyond the points nothing is known, so `EngineProfile` allows no larger steps.
    """

    tokens: tuple[int, ...]
    step_s: tuple[float, ...]

    def __post_init__(self) -> None:
        require(len(self.tokens) == len(self.step_s) > 0, "a step curve needs one time for each number of tokens")
        rising = all(a < b for a, b in zip((0, *self.tokens), self.tokens, strict=False))
        require(
            rising and self.tokens[-1] <= MOST_TOKENS,
            f"the tokens of a step curve are {list(self.tokens)}",
            remedy="give rising numbers from 1",
        )
        require(
            all(0 < one <= LONGEST_STEP_S for one in self.step_s),
            f"the times of a step curve are {list(self.step_s)}",
            remedy="give seconds above 0, and less than an hour",
        )

    def seconds(self, tokens: int) -> float:
        return float(np.interp(tokens, self.tokens, self.step_s))


class EngineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One model in an engine on `tensor_parallel` devices of a kind.

    A step over n batched tokens takes `prefill.seconds(n)` if some are of prompts, else
    `decode.seconds(n)`, and in addition `per_kv_token_s` for each token of context that decoding
    reads, `per_attention_token_s` for each pair of a prompt's token and one before it,
    `overhead_per_step_s`, `overhead_per_request_s` for each request in it, and
    `overhead_per_prompt_s` for each that enters. (Ken, section 4.1, has the curves alone.)
    """

    model: str
    device_kind: str
    tensor_parallel: int = 1
    prefill: StepCurve
    decode: StepCurve
    per_kv_token_s: float = 0.0
    per_attention_token_s: float = 0.0
    overhead_per_step_s: float = 0.0
    overhead_per_request_s: float = 0.0
    block_tokens: int = 16
    kv_blocks: int
    watermark_blocks: int = 0
    """Blocks that must stay free when a prompt is let in."""
    largest_batched_tokens: int
    largest_running: int
    scheduler: Scheduler = "mixed"
    prefill_gives_token: bool = True
    """Whether clients get the first token at the end of the prompt's last step, or of the step after it."""
    weights_bytes: int = 0
    """Over all its devices; with `kv_bytes_per_token` it says what fits beside other models. 0: not known."""
    kv_bytes_per_token: int = 0
    context_tokens: int | UnsetType = UNSET
    """The most tokens of one request, prompt and answer together, where it is known."""
    overhead_per_prompt_s: float | UnsetType = UNSET
    """For reading a request, before a token of its prompt is computed, where it is known (`reading_s`)."""
    picture_tokens: int | UnsetType = UNSET
    """Those of a picture, sound or file in a prompt, where that is declared."""

    def __post_init__(self) -> None:
        known = min(self.prefill.tokens[-1], self.largest_batched_tokens)
        require(
            known == self.largest_batched_tokens,
            f"the steps of model {self.model!r} were measured with up to {known} tokens, and it batches "
            f"{self.largest_batched_tokens}",
            remedy="measure larger steps, or have the engine batch fewer tokens",
        )
        most = min(self.largest_batched_tokens, self.decode.tokens[-1])
        require(
            self.largest_running <= most,
            f"model {self.model!r} runs {self.largest_running} requests at a time, and steps of up to {most} decoding "
            "requests are known",
            remedy="measure larger steps, or have the engine run fewer requests",
        )
        require(min(self.block_tokens, self.kv_blocks, self.largest_running) > 0, "an engine holds nothing")
        context = self.context_tokens
        require(
            context is UNSET or context >= 1, f"context_tokens of model {self.model!r} is {context}, needs 1 or more"
        )
        pictures = self.picture_tokens
        require(
            pictures is UNSET or 1 <= pictures <= MOST_TOKENS,
            f"picture_tokens of model {self.model!r} is {pictures}, needs 1 to {MOST_TOKENS}",
        )
        require(
            all(0 <= one <= LONGEST_STEP_S for one in self.added_s),
            f"the times of model {self.model!r} beside its step curves are {list(self.added_s)}",
            remedy="give seconds from 0 on",
        )
        require(
            self._longest_step_s <= LONGEST_WHOLE_STEP_S,
            f"a step of model {self.model!r} with all that it holds would take {self._longest_step_s:.3g} s",
            remedy="give shorter times for tokens, attention pairs, steps and requests, or fewer blocks",
        )

    @property
    def held_tokens(self) -> int:
        """Tokens that its memory holds, prompts and answers of all requests together."""
        return self.kv_blocks * self.block_tokens

    def step_s(self, step: "StepWork") -> float:
        curve = self.prefill if step.prompt_tokens else self.decode
        return step_seconds(
            curve.seconds(step.batched_tokens),
            step.kv_tokens,
            step.attention_pairs,
            step.prompts + step.decoding,
            step.entering,
            *self.added_s,
        )

    @property
    def reading_s(self) -> float:
        return 0.0 if self.overhead_per_prompt_s is UNSET else self.overhead_per_prompt_s

    def lone_prompt_s(self, tokens: int) -> float:
        """Seconds of a prompt's step that has nothing else."""
        pairs = pairs_of(0, tokens)
        return self.step_s(
            StepWork(prompt_tokens=tokens, prompts=1, entering=1, decoding=0, kv_tokens=0, attention_pairs=pairs)
        )

    @property
    def _longest_step_s(self) -> float:
        batched, held = self.largest_batched_tokens, self.held_tokens
        return step_seconds(
            max(*self.prefill.step_s, *self.decode.step_s),
            held,
            batched * held,
            self.largest_running,
            self.largest_running,
            *self.added_s,
        )

    @property
    def added_s(self) -> tuple[float, float, float, float, float]:
        """Seconds for each of `StepWork.added`."""
        return (
            self.per_kv_token_s,
            self.per_attention_token_s,
            self.overhead_per_step_s,
            self.overhead_per_request_s,
            self.reading_s,
        )


class Sharing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pair of engines: how much longer steps of `model` take while `beside` is at work on the same devices.

    Two engines have half of the time each, so steps take twice as long as alone, times `factor`.
    `interval` has the least and the greatest that was measured, which on processors may be less than
    a factor there, 1 or more; without it the factor was declared.
    """

    model: str
    beside: str
    device_kind: str
    tensor_parallel: int = 1
    factor: float
    interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        require(
            0 < self.factor <= MOST_FACTOR,
            f"the factor of {self.model!r} beside {self.beside!r} is {self.factor}",
            remedy=f"give more than 0 and at most {MOST_FACTOR:g}: 1 is a step that takes twice as long as alone",
        )


class StepWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one step: tokens of prompts, and one token for each request that decodes."""

    prompt_tokens: int
    prompts: int
    decoding: int
    kv_tokens: int
    """The contexts of the requests that decode, added up."""
    entering: int = 0
    """Prompts that begin in it, for the first time or before their first token."""
    attention_pairs: int
    """Pairs of a prompt's token in this step and a token at or before it."""

    @property
    def batched_tokens(self) -> int:
        return self.prompt_tokens + self.decoding

    @property
    def added(self) -> tuple[int, int, int, int, int]:
        return self.kv_tokens, self.attention_pairs, 1, self.prompts + self.decoding, self.entering


def curve_from_rows(rows: Sequence[tuple[int, float]]) -> StepCurve:
    """A curve from (batched tokens, seconds), in any order."""
    ordered = sorted(rows)
    return StepCurve(tokens=tuple(tokens for tokens, _ in ordered), step_s=tuple(s for _, s in ordered))
