"""Times of an engine from results of vLLM's benchmark (`vllm bench serve --save-result --save-detailed`).

One result for each concurrency (`--max-concurrency`): that of 1 gives times of prompts, and each
gives the time of a step.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from gearshift.errors import InvalidInput, require
from gearshift.measuring.engines.times import DecodeTime, PrefillTime, engine_from_times
from gearshift.models.language_config import EngineSettings
from gearshift.profiles.engines.engine_profile import EngineProfile
from gearshift.support.decoding import decode_json
from gearshift.support.files import read_bytes

MOST = 1 << 24
REMEDY = "run `vllm bench serve` with --max-concurrency, --save-result and --save-detailed"
LEAST_KEPT = 0.5
"""The least share of `max_concurrency` that must have been open at a time; less tells nothing of its steps."""


class BenchResult(msgspec.Struct, frozen=True):
    """The fields that are read; lengths and times have one entry for each request."""

    max_concurrency: int
    input_lens: list[int]
    output_lens: list[int]
    ttfts: list[float]
    itls: list[list[float]]
    model_id: str = ""
    duration: float = 0.0
    """Seconds of the whole run, if known."""

    @property
    def kept_open(self) -> float:
        """The mean number of requests that were open; without a duration, the most that may have been."""
        open_s = sum(self.ttfts) + sum(map(sum, self.itls))
        return min(len(self.ttfts), open_s / self.duration) if self.duration > 0 else len(self.ttfts)


class BenchFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Facts about the engine that results lack; fields are those of `EngineSettings`, each of which may be left out."""

    context_tokens: int | None = None
    kv_tokens: int | None = None
    largest_batched_tokens: int | None = None
    block_tokens: int | None = None
    tensor_parallel: int | None = None
    device_kind: str | None = None
    weights_bytes: int | None = None
    kv_bytes_per_token: int | None = None


def engine_from_results(
    model: str, paths: Sequence[Path], facts_path: Path | None = None
) -> tuple[EngineProfile, float, list[str]]:
    """As `engine_from_times`, of results at rising concurrency, of which 1 must be one; raises `InvalidInput`."""
    results = []
    for path in paths:
        result = decode_json(read_bytes(path), BenchResult, where=str(path), remedy=REMEDY)
        lengths = {len(one) for one in (result.input_lens, result.output_lens, result.ttfts, result.itls)}
        require(len(lengths) == 1, "its lists differ in length", where=str(path), remedy=REMEDY)
        count = result.max_concurrency
        require(1 <= count <= MOST, f"max_concurrency is {count}", where=str(path), remedy="give its number")
        every = (*result.input_lens, *result.output_lens)
        require(all(0 <= one <= MOST for one in every), "a length makes no sense", where=str(path), remedy=REMEDY)
        results.append(_without_failed(result))
        open_at_once = results[-1].kept_open
        require(
            count == 1 or open_at_once >= LEAST_KEPT * count,
            f"{open_at_once:.1f} requests were open at a time, and max_concurrency is {count}",
            where=str(path),
            remedy="benchmark with more prompts (--num-prompts), and as fast as it goes (--request-rate inf)",
        )
    counts = sorted({one.max_concurrency for one in results})
    require(
        counts[0] == 1,
        f"the results of model {model!r} are of concurrency {counts}, and 1 is needed",
        where=str(paths[0]),
        remedy="run the benchmark with --max-concurrency 1, too",
    )
    prefill = [
        PrefillTime(prompt_tokens=tokens, first_token_s=first_s)
        for one in results
        if one.max_concurrency == 1
        for tokens, first_s in zip(one.input_lens, one.ttfts, strict=True)
        if first_s > 0 and tokens > 0
    ]
    require(
        bool(prefill),
        f"the results of model {model!r} at concurrency 1 have no answer",
        where=str(paths[0]),
        remedy=REMEDY,
    )
    decode = [_decode(one) for one in results]
    longest = max(one.prompt_tokens for one in prefill)
    settings = EngineSettings(
        url="http://recorded/v1",
        model=results[0].model_id or model,
        context_tokens=max(p + o for one in results for p, o in zip(one.input_lens, one.output_lens, strict=True)),
        largest_running=counts[-1],
        largest_batched_tokens=max(longest, counts[-1]),
    )
    if facts_path is None or not facts_path.exists():
        return engine_from_times(model, settings, prefill, decode)
    facts = decode_json(read_bytes(facts_path), BenchFacts, where=str(facts_path), remedy="mend the file")
    try:
        settings = msgspec.structs.replace(settings, **msgspec.to_builtins(facts))
    except InvalidInput as error:
        raise InvalidInput(error.what, where=str(facts_path), remedy=error.remedy or "mend the file") from error
    engine, overhead_s, told = engine_from_times(model, settings, prefill, decode)
    if facts.context_tokens is not None:
        engine = msgspec.structs.replace(engine, context_tokens=facts.context_tokens)
    return engine, overhead_s, told


def _without_failed(result: BenchResult) -> BenchResult:
    """Requests that failed have no answer."""
    fields = "input_lens", "output_lens", "ttfts", "itls"
    kept = [number for number, output in enumerate(result.output_lens) if output > 0]
    return msgspec.structs.replace(result, **{name: [getattr(result, name)[one] for one in kept] for name in fields})


def _decode(result: BenchResult) -> DecodeTime:
    """The median step; a benchmark's steps are of as many requests as it keeps open."""
    steps = [step for request in result.itls for step in request if step > 0]
    require(bool(steps), f"the result of concurrency {result.max_concurrency} has no inter-token time", remedy=REMEDY)
    context = np.mean(np.array(result.input_lens) + np.array(result.output_lens) / 2)
    return DecodeTime(
        requests=result.max_concurrency,
        kv_tokens=float(context) * result.max_concurrency,
        step_s=float(np.median(steps)),
    )
