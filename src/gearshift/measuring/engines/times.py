"""Times of an engine from outside, and the profile that they make.

Alone, a prompt of n tokens gives its first token after the steps of the prompt, and what a request
takes beside them, in the engine or elsewhere (`under_load.py` parts both). Several requests that
decode together give their tokens step by step.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.models.language_config import EngineSettings
from gearshift.policies.engines.steps import chunk_of, pairs_of
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve

Floats = NDArray[np.float64]
LEAST_STEP_S = 1e-7
KV_SHARE = 0.5
"""The largest share of a step that is taken for reading contexts, as disturbed times would give more."""


class PrefillTime(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds until the first token of a prompt that ran alone."""

    prompt_tokens: int
    first_token_s: float


class DecodeRun(msgspec.Struct, frozen=True, kw_only=True):
    """Requests with prompts of `context` tokens, sent at once, twice: with `steps` tokens more the second time.

    `ended_s` is when the last token of all had come, each time; None where an answer ended early.
    `seen` is the step as the stream shows it, for that case.
    """

    requests: int
    context: int
    kv_tokens: float
    steps: int
    ended_s: tuple[float, float] | None = None
    seen_s: float | None = None


class DecodeTime(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a step in which `requests` decoded, with `kv_tokens` of context in all."""

    requests: int
    kv_tokens: float
    step_s: float


def engine_from_times(
    model: str, settings: EngineSettings, prefill: Sequence[PrefillTime], decode: Sequence[DecodeTime]
) -> tuple[EngineProfile, float, list[str]]:
    """The engine, the seconds that a lone request takes beside its steps, and what is to be known about both.

    Of repeated times of a prompt the least counts, as whatever disturbs them adds to them.
    """
    warnings: list[str] = []
    curve, per_kv_token_s = _decoding(decode)
    batched = _largest_prompt(settings, prefill, warnings, model)
    steps, per_pair_s, overhead_s = _prefilling(prefill, batched, curve.step_s[0])
    running = min(settings.largest_running, curve.tokens[-1], batched)
    if running < settings.largest_running:
        warnings.append(
            f"model {model!r} may run {settings.largest_running} requests at a time, and steps of up to {running} were "
            f"measured: plans send it {running} at most (to change that, raise concurrency in [profile])"
        )
    if settings.kv_tokens is None:
        warnings.append(
            f"kv_tokens of model {model!r} is not given, and is taken as {settings.held_tokens}, "
            f"{settings.largest_running} full contexts: if the engine's memory holds less (its log says so), give that"
        )
    engine = EngineProfile(
        model=model,
        device_kind=settings.kind,
        tensor_parallel=settings.degrees[0],
        prefill=steps,
        decode=curve,
        per_kv_token_s=per_kv_token_s,
        per_attention_token_s=per_pair_s,
        block_tokens=settings.block_tokens,
        kv_blocks=max(1, settings.held_tokens // settings.block_tokens),
        largest_batched_tokens=batched,
        largest_running=running,
        weights_bytes=settings.weights_bytes,
        kv_bytes_per_token=settings.kv_bytes_per_token,
    )
    return engine, overhead_s, warnings


def _largest_prompt(settings: EngineSettings, prefill: Sequence[PrefillTime], warnings: list[str], model: str) -> int:
    """The most tokens of a step, which no measured prompt may fall short of."""
    longest = max(one.prompt_tokens for one in prefill)
    batched = min(settings.largest_batched_tokens, longest)
    if batched < settings.largest_batched_tokens:
        warnings.append(
            f"model {model!r} may batch {settings.largest_batched_tokens} tokens in a step, and prompts of up to "
            f"{longest} were measured: predictions take that as its bound"
        )
    return batched


def decode_times(runs: Sequence[DecodeRun]) -> list[DecodeTime]:
    """A step for each number of requests and context that could be timed.

    It is the difference of the least times of both lengths: what disturbs a client only adds to
    them, where the time between two tokens may also be seen too short.
    """
    groups: dict[tuple[int, int], list[DecodeRun]] = {}
    for run in runs:
        groups.setdefault((run.requests, run.context), []).append(run)
    found = []
    for (requests, _), group in sorted(groups.items()):
        ended = [run.ended_s for run in group if run.ended_s is not None]
        seen = sorted(run.seen_s for run in group if run.seen_s is not None)
        step_s = 0.0
        if ended:
            step_s = (min(long for _, long in ended) - min(short for short, _ in ended)) / group[0].steps
        if step_s <= 0 and seen:
            step_s = seen[len(seen) // 2]
        if step_s > 0:
            found.append(DecodeTime(requests=requests, kv_tokens=group[0].kv_tokens, step_s=step_s))
    return found


def _decoding(times: Sequence[DecodeTime]) -> tuple[StepCurve, float]:
    """Steps by the requests that decode, without their contexts, and the seconds for each token of context.

    The latter is the median slope between contexts, weighed by how far they are apart; with one
    context nothing tells both apart, and the curve has all.
    """
    require(bool(times), "no time of a decoding step was measured")
    slopes = [
        (more.kv_tokens - less.kv_tokens, (more.step_s - less.step_s) / (more.kv_tokens - less.kv_tokens))
        for more in times
        for less in times
        if more.requests == less.requests and more.kv_tokens > less.kv_tokens
    ]
    most = KV_SHARE * min(one.step_s / one.kv_tokens for one in times)
    per_kv_token_s = min(max(0.0, _weighted_median(slopes)), most) if slopes else 0.0
    counts = sorted({one.requests for one in times})
    rest = [[one.step_s - per_kv_token_s * one.kv_tokens for one in times if one.requests == count] for count in counts]
    curve = np.maximum.accumulate([max(LEAST_STEP_S, sum(row) / len(row)) for row in rest])
    return StepCurve(tokens=tuple(counts), step_s=tuple(float(one) for one in curve)), per_kv_token_s


def _weighted_median(pairs: Sequence[tuple[float, float]]) -> float:
    """The weighted median of pairs of weight and value."""
    half, so_far = sum(weight for weight, _ in pairs) / 2, 0.0
    for weight, value in sorted(pairs, key=lambda pair: pair[1]):
        so_far += weight
        if so_far >= half:
            return value
    return 0.0


def _prefilling(times: Sequence[PrefillTime], batched: int, decode_one_s: float) -> tuple[StepCurve, float, float]:
    """Steps by a prompt's tokens, seconds for each pair of attention, and seconds beside the steps.

    A prompt of one token is taken to cost what a decoding request does, so that the rest of its
    time is spent beside the steps. The pairs of attention are told from the steps by prompts that
    take several; without such, the curve has them.
    """
    least: dict[int, float] = {}
    for one in times:
        least[one.prompt_tokens] = min(one.first_token_s, least.get(one.prompt_tokens, np.inf))
    lengths = np.array(sorted(least))
    seconds = np.maximum.accumulate(np.array([least[int(n)] for n in lengths]))
    require(len(lengths) >= 2, "prompts of one length were measured, and prefill needs two")
    rise = float(seconds[1] - seconds[0]) / float(lengths[1] - lengths[0])
    overhead_s = float(max(0.0, seconds[0] - rise * (lengths[0] - 1) - decode_one_s))
    inside = np.maximum(seconds - overhead_s, LEAST_STEP_S)
    short = lengths <= batched
    knots = lengths[short]
    pairs = np.array([float(pairs_of(0, int(n))) for n in knots])
    if knots[-1] < batched:  # the bound lies between two measured prompts
        knots, pairs = np.append(knots, batched), np.append(pairs, float(pairs_of(0, batched)))
        inside_knots = np.append(inside[short], np.interp(batched, lengths, inside))
    else:
        inside_knots = inside[short]
    per_pair_s = _per_pair(lengths[~short], inside[~short], knots, inside_knots, pairs, batched)
    curve = np.maximum.accumulate(np.maximum(inside_knots - per_pair_s * pairs, LEAST_STEP_S))
    tokens = [int(n) for n in knots]
    step_s = [float(one) for one in curve]
    if tokens[0] > 1:
        tokens, step_s = [1, *tokens], [min(decode_one_s, step_s[0]), *step_s]
    return StepCurve(tokens=tuple(tokens), step_s=tuple(step_s)), per_pair_s, overhead_s


def _per_pair(long: Floats, measured: Floats, knots: Floats, at_knots: Floats, pairs: Floats, batched: int) -> float:
    """Least squares over prompts of several steps, whose time is linear in it; from 0 to what the curve allows."""
    if not len(long):
        return 0.0
    plain, slope = np.zeros(len(long)), np.zeros(len(long))
    for i, tokens in enumerate(long):
        before = 0
        while before < tokens:
            chunk = chunk_of(int(tokens) - before, batched)
            plain[i] += np.interp(chunk, knots, at_knots)
            slope[i] += pairs_of(before, chunk) - np.interp(chunk, knots, pairs)
            before += chunk
    slope, missing = slope / measured, (measured - plain) / measured
    most = float((at_knots / pairs).min())
    best = float(slope @ missing) / max(float(slope @ slope), 1e-30)
    return min(max(0.0, best), most)
