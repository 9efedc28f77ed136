"""An engine with continuous batching, step by step.

The first to arrive enters first. Where no block is left for a further token, the request that
entered last gives up its blocks and computes all its context again (as vLLM does).
"""

from collections import deque
from dataclasses import dataclass, field

from gearshift.errors import require
from gearshift.policies.engines.steps import blocks_for, chunk_of, decodes_beside, may_enter, pairs_of
from gearshift.profiles.engines.engine_profile import EngineProfile, StepWork


@dataclass(slots=True, eq=False)
class Generation:
    """A request: `given` tokens of its answer are there; before it decodes, `computed` of its context are."""

    prompt_tokens: int
    output_tokens: int
    given: int = 0
    computed: int = 0
    decodes: bool = False
    blocks: int = 0
    preempted: int = 0

    @property
    def context(self) -> int:
        """Tokens whose keys and values the next token needs."""
        return self.prompt_tokens + self.given


@dataclass(slots=True, eq=False)
class Step:
    work: StepWork
    chunks: list[tuple[Generation, int]]
    decoding: list[Generation]


@dataclass(slots=True, eq=False)
class Engine:
    """Alternate `begin_step` and `end_step`; a request is added at any time between them."""

    profile: EngineProfile
    waiting: deque[Generation] = field(default_factory=deque)
    running: list[Generation] = field(default_factory=list)
    free_blocks: int = field(init=False)

    def __post_init__(self) -> None:
        self.free_blocks = self.profile.kv_blocks

    def add(self, request: Generation) -> None:
        """Raises `InvalidInput` for a request that could never be held."""
        needed = blocks_for(request.prompt_tokens + request.output_tokens, self.profile.block_tokens)
        most = self.profile.kv_blocks - self.profile.watermark_blocks
        require(
            needed <= most,
            f"a request of {request.prompt_tokens} and {request.output_tokens} tokens takes {needed} blocks, and the "
            f"engine of {self.profile.model!r} has {most}",
            remedy="send it to a model with more room",
        )
        self.waiting.append(request)

    def cancel(self, request: Generation) -> None:
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.running:
            self._leave(request)

    def begin_step(self) -> Step | None:
        """The next step; None where there is nothing to do."""
        profile = self.profile
        prompts_run = any(not one.decodes for one in self.running)
        beside = decodes_beside(prompts_run or self._first_may_enter(1), profile.scheduler == "prefill_first")
        decoding = self._with_room() if beside else []
        budget = profile.largest_batched_tokens - len(decoding)
        chunks, entering = [], 0
        for one in self.running:
            if not one.decodes and budget:
                chunks.append((one, chunk_of(one.context - one.computed, budget)))
                budget -= chunks[-1][1]
        while self._first_may_enter(budget):
            one = self.waiting.popleft()
            self._take(one, blocks_for(one.context, profile.block_tokens))
            self.running.append(one)
            entering += one.given == 0
            chunks.append((one, chunk_of(one.context, budget)))
            budget -= chunks[-1][1]
        if not chunks and not decoding:
            return None
        work = StepWork(
            prompt_tokens=sum(tokens for _, tokens in chunks),
            prompts=len(chunks),
            decoding=len(decoding),
            entering=entering,
            kv_tokens=sum(one.context for one in decoding),
            attention_pairs=sum(pairs_of(one.computed, tokens) for one, tokens in chunks),
        )
        return Step(work, chunks, decoding)

    def end_step(self, step: Step) -> list[Generation]:
        """Who got a token; those whose `given` is `output_tokens` have ended."""
        told = []
        for one, tokens in step.chunks:
            one.computed += tokens
            one.decodes = one.computed == one.context
            if one.decodes and self.profile.prefill_gives_token:
                told.append(one)
        told += step.decoding
        for one in told:
            one.given += 1
            if one.given == one.output_tokens:
                self._leave(one)
        return told

    def _first_may_enter(self, budget: int) -> bool:
        if not self.waiting:
            return False
        profile, blocks = self.profile, blocks_for(self.waiting[0].context, self.profile.block_tokens)
        return may_enter(
            blocks, self.free_blocks, profile.watermark_blocks, len(self.running), profile.largest_running, budget
        )

    def _with_room(self) -> list[Generation]:
        """Those that decode, each with a block for its next token; the newest lose theirs where there are none."""
        decoding: list[Generation] = []
        for one in list(self.running):
            if one not in self.running or not one.decodes:
                continue
            more = blocks_for(one.context + 1, self.profile.block_tokens) - one.blocks
            while more > self.free_blocks and self.running[-1] is not one:
                self._preempt(self.running[-1])
            if more > self.free_blocks:
                self._preempt(one)
                continue
            self._take(one, more)
            decoding.append(one)
        return decoding

    def _preempt(self, one: Generation) -> None:
        self._leave(one)
        one.computed, one.decodes = 0, False
        one.preempted += 1
        self.waiting.appendleft(one)

    def _take(self, one: Generation, blocks: int) -> None:
        one.blocks += blocks
        self.free_blocks -= blocks

    def _leave(self, one: Generation) -> None:
        self.running.remove(one)
        self.free_blocks += one.blocks
        one.blocks = 0
