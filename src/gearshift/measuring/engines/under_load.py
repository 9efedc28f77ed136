"""Estimate the engine's own time for reading a request, from answers that were asked for together.

A lone request shows what it takes beside its steps: connection, template, tokens of its text. Whether
the engine is held up meanwhile, as where all of it shares one processor, or another process does it, is
only seen with others: the sum of their times is the run's, times the requests at a time (Little's law),
and so tells how long the engine was at work.
"""

import itertools
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from scipy.optimize import bisect

from gearshift.measuring.engines.kept import Answered
from gearshift.policies.engines.steps import blocks_for
from gearshift.profiles.engines.engine_profile import EngineProfile
from gearshift.profiles.engines.stepping import Engine, Generation

LEAST_ROUNDS = 4
"""Answers for each that is asked for at a time; fewer are mostly begin and end."""
MOST_TOKENS = 30_000
"""The most tokens of answers that are simulated, but for the least rounds."""
RELATIVE_PRECISION = 1e-3
LEAST_RATIO = 0.8
"""Answers that take less than this share of what is predicted cause a warning."""


class UnderLoad(NamedTuple):
    """`beside_s` is what a request takes beside the engine; `ratio` divides measured by predicted times, before."""

    engine: EngineProfile
    beside_s: float
    ratio: float | None

    @property
    def warnings(self) -> list[str]:
        if self.ratio is None or self.ratio >= LEAST_RATIO:
            return []
        return [
            f"model {self.engine.model!r} answered the prompts in {self.ratio:.2f} times the time that made-up ones, "
            "timed alone, predict, as where an engine keeps what prompts have in common: predictions are too long"
        ]


def under_load(engine: EngineProfile, lone_s: float, answers: Sequence[Answered], at_once: int) -> UnderLoad:
    """Part `lone_s`, which a lone request takes beside its steps, into the engine's time and that beside it.

    Answers that were not asked for `at_once` at a time are left out; the others are in the order in
    which they were asked for. Where they took longer than with all of `lone_s` in the engine, its
    time for a request is more than that.
    """
    fits = [one for one in answers if one.took_s > 0 and one.at_once == at_once and _is_held(engine, one)]
    few = itertools.accumulate(one.output_tokens for one in fits)
    fits = fits[: max(LEAST_ROUNDS * at_once, sum(tokens <= MOST_TOKENS for tokens in few))]
    if at_once == 1 or len(fits) < LEAST_ROUNDS * at_once:
        return UnderLoad(engine, lone_s, None)
    tokens, took_s = [(one.prompt_tokens, one.output_tokens) for one in fits], sum(one.took_s for one in fits)

    def parted(own_s: float) -> tuple[EngineProfile, float]:
        return msgspec.structs.replace(engine, overhead_per_prompt_s=own_s), max(0.0, lone_s - own_s)

    def lacking_s(own_s: float) -> float:
        return took_s - in_a_loop(*parted(own_s), tokens, at_once)

    lacking = lacking_s(0.0)
    most_s = took_s / len(fits)
    own_s = float(bisect(lacking_s, 0.0, most_s, xtol=RELATIVE_PRECISION * most_s)) if lacking > 0 else 0.0
    return UnderLoad(*parted(own_s), took_s / (took_s - lacking))


def in_a_loop(profile: EngineProfile, beside_s: float, tokens: Sequence[tuple[int, int]], at_once: int) -> float:
    """Seconds of all requests added up, from sending to the last token.

    `tokens` are of prompts and answers. Each is sent when one before it has ended, and is `beside_s`
    on its way; one that comes as a step begins waits for its end.
    """
    engine, now_s, spent_s, open_count = Engine(profile), 0.0, 0.0, 0
    left = deque(Generation(prompt, output) for prompt, output in tokens)
    on_their_way: deque[tuple[float, Generation]] = deque()
    ended = min(at_once, len(left))
    while True:
        for _ in range(min(ended, len(left))):
            on_their_way.append((now_s + beside_s, left.popleft()))
            open_count += 1
        step = engine.begin_step()
        if step is None:
            if not on_their_way:
                return spent_s
            took_s = on_their_way[0][0] - now_s
        else:
            took_s = profile.step_s(step.work)
        now_s += took_s
        spent_s += open_count * took_s
        while on_their_way and on_their_way[0][0] <= now_s:
            engine.add(on_their_way.popleft()[1])
        ended = 0 if step is None else sum(one.given == one.output_tokens for one in engine.end_step(step))
        open_count -= ended


def _is_held(engine: EngineProfile, one: Answered) -> bool:
    blocks = blocks_for(one.prompt_tokens + one.output_tokens, engine.block_tokens)
    return blocks <= engine.kv_blocks - engine.watermark_blocks
