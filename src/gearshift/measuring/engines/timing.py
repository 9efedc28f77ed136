"""Time an engine from outside: prompts of rising length alone, and requests that decode together."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gearshift.errors import InvalidInput, require
from gearshift.measuring.engines.endpoint import OF_PROMPT, BrokenAnswer, Endpoint, Patience, Refused
from gearshift.measuring.engines.heard import Heard
from gearshift.measuring.engines.times import DecodeRun, PrefillTime
from gearshift.models.language_config import EngineMeasuring, EngineSettings
from gearshift.profiles.engines.prompts import Prompt
from gearshift.runtime.remote.endpoint import PASSING

LETTERS = "bcdfghjklmnpqrstvwxz"
PROBE_WORDS, PROBE_TOKENS = 24, 4
LEAST_STEPS = 3
MOST_ATTEMPTS = 5
MARGIN_TOKENS = 8
"""Tokens of a context that are left free for a chat template."""


@dataclass(slots=True, eq=False)
class Wording:
    """Makes prompts of about so many tokens, each with a beginning of its own, so that no cache helps."""

    chat: bool
    generator: random.Random
    tokens_per_word: float = 2.0
    fixed_tokens: float = 0.0

    def words(self, tokens: int) -> int:
        """The words of a prompt of about so many tokens."""
        return max(1, round((tokens - self.fixed_tokens) / self.tokens_per_word))

    def of_words(self, words: int) -> Prompt:
        text = " ".join("".join(self.generator.choices(LETTERS, k=4)) for _ in range(words))
        if self.chat:
            return Prompt(id="made up", messages=({"role": "user", "content": text},))
        return Prompt(id="made up", prompt=text)

    def learn(self, words: tuple[int, int], tokens: tuple[int, int]) -> None:
        self.tokens_per_word = max(0.05, (tokens[1] - tokens[0]) / (words[1] - words[0]))
        self.fixed_tokens = tokens[0] - words[0] * self.tokens_per_word


@dataclass(frozen=True, slots=True)
class Work:
    """The measurements: lengths of prompts, and pairs of concurrency and context."""

    lengths: tuple[int, ...]
    together: tuple[tuple[int, int], ...]


def work_of(model: str, settings: EngineSettings, how: EngineMeasuring) -> Work:
    """The measurements that fit the engine's context; lengths end with the longest step, or prompt that fits."""
    most = settings.context_tokens - MARGIN_TOKENS - 1
    require(
        most >= 2 * MARGIN_TOKENS,
        f"context_tokens of model {model!r} is {settings.context_tokens}, too few to time it",
    )
    wanted = {*how.prompt_tokens, settings.largest_batched_tokens}
    lengths = {n for n in wanted if n < most}
    if max(wanted) >= most:
        lengths.add(most)
    contexts = [n for n in how.contexts if n + how.decoded_tokens + MARGIN_TOKENS < settings.context_tokens]
    longest = settings.context_tokens - how.decoded_tokens - 2 * MARGIN_TOKENS
    if len(contexts) < len(how.contexts) and longest > 0 and longest not in contexts:
        contexts.append(longest)
    require(
        bool(contexts),
        f"context_tokens of model {model!r} is {settings.context_tokens}, and {how.decoded_tokens} tokens "
        "are to be decoded",
        remedy="lower decoded_tokens in [profile]",
    )
    counts = [one for one in how.concurrency if one <= settings.largest_running]
    if counts[-1] < settings.largest_running < how.concurrency[-1]:
        counts.append(settings.largest_running)
    return Work(
        tuple(sorted(lengths)),
        tuple(
            (count, context)
            for count in counts
            for context in contexts
            if count == 1 or count * (context + how.decoded_tokens + 2 * count) <= settings.held_tokens
        ),
    )


def calls_of(work: Work, how: EngineMeasuring) -> int:
    """The calls that timing takes: two to learn how words become tokens; together, each request is sent twice."""
    return 2 + how.repeats * (len(work.lengths) + 2 * sum(count for count, _ in work.together))


def tokens_of(work: Work, how: EngineMeasuring) -> tuple[int, int]:
    """About the tokens of prompts and of answers that timing takes."""
    prompts = sum(work.lengths) + sum(2 * count * context for count, context in work.together)
    answers = len(work.lengths) + sum(count * (how.decoded_tokens + 2 * count) for count, _ in work.together)
    return how.repeats * prompts, how.repeats * answers


class EngineTimer:
    """Times one endpoint.

    Prompts are drawn anew each time, without a seed: an engine that keeps the prompts of an earlier
    run would answer the same ones too fast.
    """

    def __init__(self, endpoint: Endpoint, how: EngineMeasuring, *, chat: bool) -> None:
        self._endpoint, self._how = endpoint, how
        self._wording = Wording(chat, random.Random())
        self._more: dict[str, object] = {"ignore_eos": True}
        self._reached = False
        """Set once it has answered short prompts, so that others are refused for their length."""

    async def probe(self) -> Heard:
        """Learn how words become tokens, and whether answers can be made as long as wanted.

        Raises `InvalidInput` where the endpoint gives no log-probabilities.
        """
        heard, tokens = [], []
        for words in (PROBE_WORDS, 2 * PROBE_WORDS):
            try:
                one = await self._ask(words, PROBE_TOKENS)
            except Refused as error:
                if not self._more or error.status not in (400, 422):
                    raise
                self._more = {}
                one = await self._ask(words, PROBE_TOKENS)
            require(
                one.prompt_tokens > 0,
                f"does not say how many tokens a prompt of model {self._endpoint.name!r} has",
                where=self._endpoint.url,
                remedy="use an endpoint that sends `usage` where `stream_options.include_usage` asks for it",
            )
            heard.append(one)
            tokens.append(one.prompt_tokens)
        require(
            bool(heard[-1].came_ns),
            f"gave no token of model {self._endpoint.name!r} to a made-up prompt",
            where=self._endpoint.url,
            remedy="see what the engine's log says",
        )
        require_logprobs(self._endpoint, heard[-1])
        self._wording.learn((PROBE_WORDS, 2 * PROBE_WORDS), (tokens[0], tokens[1]))
        self._reached = True
        return heard[-1]

    async def prefill(self, tokens: int) -> PrefillTime:
        heard = await self._ask(self._wording.words(tokens), 1)
        require(
            bool(heard.came_ns),
            f"gave no token to a prompt of {heard.prompt_tokens} tokens",
            where=self._endpoint.url,
            remedy="see what the engine's log says",
        )
        return PrefillTime(prompt_tokens=heard.prompt_tokens, first_token_s=(heard.came_ns[0] - heard.sent_ns) / 1e9)

    async def decode(self, requests: int, context: int) -> DecodeRun:
        """So many requests at once, with few tokens and with `decoded_tokens` more."""
        settings, steps = self._endpoint.settings, self._how.decoded_tokens
        chunks = -(-context // settings.largest_batched_tokens)
        few = max(2, min(settings.context_tokens - context - MARGIN_TOKENS - steps, 2 + (requests - 1) * chunks))
        short, short_s = await self._together(requests, context, few)
        long, long_s = await self._together(requests, context, few + steps)
        whole = all(one.output_tokens == few for one in short) and all(one.output_tokens == few + steps for one in long)
        return DecodeRun(
            requests=requests,
            context=context,
            kv_tokens=sum(one.prompt_tokens for one in long) + requests * (few + steps / 2),
            steps=steps,
            ended_s=(short_s, long_s) if whole else None,
            seen_s=step_seen(long),
        )

    async def together(self, requests: int, context: int, tokens: int) -> list[Heard]:
        """Answers of so many requests at once; raises as `Endpoint.ask`."""
        heard, _ = await self._together(requests, context, tokens)
        return heard

    async def _ask(self, words: int, tokens: int) -> Heard:
        """As `_ask_once`, again with other words where the engine stumbles over its answer to these.

        llama.cpp's server does where a small model's tokens, made to go on, are no text.
        """
        for _ in range(MOST_ATTEMPTS - 1):
            with suppress(BrokenAnswer):
                return await self._ask_once(words, tokens)
        return await self._ask_once(words, tokens)

    async def _ask_once(self, words: int, tokens: int) -> Heard:
        patience = Patience()
        while True:
            try:
                return await self._ask_now(words, tokens)
            except Refused as error:
                await patience.pause(error)

    async def _ask_now(self, words: int, tokens: int) -> Heard:
        try:
            return await self._endpoint.ask(self._wording.of_words(words), most_tokens=tokens, more=self._more)
        except Refused as error:
            if error.status not in OF_PROMPT or not self._reached:
                raise
            about = round(self._wording.fixed_tokens + words * self._wording.tokens_per_word)
            lower = f"if {about} tokens and {tokens} of the answer are too many for it, lower context_tokens of"
            raise Refused(error.status, f"{error}; {lower} [models.{self._endpoint.name}.engine]") from error

    async def _together(self, requests: int, context: int, tokens: int) -> tuple[list[Heard], float]:
        """The answers, and the seconds until the last token of all."""
        try:
            return await self._begun_together(requests, context, tokens)
        except BaseExceptionGroup as group:
            raise first_of(group) from None

    async def _begun_together(self, requests: int, context: int, tokens: int) -> tuple[list[Heard], float]:
        words = self._wording.words(context)
        broken_left, patience = MOST_ATTEMPTS - 1, Patience()
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._ask_now(words, tokens)) for _ in range(requests)]
                break
            except* BrokenAnswer:
                if not broken_left:
                    raise
                broken_left -= 1
            except* Refused as refused:  # fewer were together
                await patience.pause(_busiest(refused))
        heard = [task.result() for task in tasks]
        begun = min(one.sent_ns for one in heard)
        return heard, max(((one.came_ns[-1] - begun) / 1e9 for one in heard if one.came_ns), default=0.0)


def _busiest(group: BaseExceptionGroup[Refused]) -> Refused:
    """The refusal that no attempt will change, else the one that asks for the longest pause."""
    refusals = [one for one in leaves(group) if isinstance(one, Refused)]
    return max(refusals, key=lambda one: (one.status not in PASSING, one.again_in_s or 0.0))


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from leaves(one)
        else:
            yield one


def step_seen(heard: Sequence[Heard]) -> float | None:
    """The mean step between the moment when all have a token and the first end; None for fewer than `LEAST_STEPS`."""
    if any(len(one.came_ns) < 2 for one in heard):
        return None
    begin, end = max(one.came_ns[0] for one in heard), min(one.came_ns[-1] for one in heard)
    counts = [sum(begin < at <= end for at in one.came_ns) for one in heard]
    if min(counts) < LEAST_STEPS:
        return None
    return (end - begin) / 1e9 / (sum(counts) / len(counts))


def require_logprobs(endpoint: Endpoint, heard: Heard) -> None:
    require(
        len(heard.tokens) > 0 or not heard.came_ns,
        f"gives no log-probabilities for model {endpoint.name!r}, and certainty is made of them",
        where=endpoint.url,
        remedy="use an engine that honours `logprobs` (vLLM, SGLang and llama.cpp's server do), or turn them on there",
    )


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group that a person can act on."""
    found = [*leaves(group)]
    return next((one for one in found if isinstance(one, InvalidInput)), found[-1])
