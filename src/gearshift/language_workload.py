"""The workload of requests that a trace carries to language models."""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.workload import Trace, draw_workload


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LanguageWorkload:
    """Arriving requests, all arrays (n,): times, recorded prompts, and numbers in [0, 1) made from their ids.

    `record` is the number of a recorded prompt. `prompt_tokens` and `output_tokens`, where a trace
    has them, hold for all models in place of the records' own.
    """

    arrivals_ns: NDArray[np.int64]
    record: NDArray[np.int32]
    by_id: NDArray[np.float64]
    duration_s: float
    prompt_tokens: NDArray[np.int64] | None = None
    output_tokens: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        n = len(self.arrivals_ns)
        require(n > 0, "the workload has no requests")
        for name in ("record", "by_id", "prompt_tokens", "output_tokens"):
            array = getattr(self, name)
            require(array is None or len(array) == n, f"workload has {n} arrivals, but {name} has another length")
        rising = self.arrivals_ns[0] >= 0 and bool(np.all(np.diff(self.arrivals_ns) >= 0))
        require(bool(rising), "the workload's arrivals are negative or not sorted")
        require(int(self.record.min()) >= 0, "the workload names a negative prompt")
        require(bool(((self.by_id >= 0) & (self.by_id < 1)).all()), "by_id of a request is not in [0, 1)")
        for name in ("prompt_tokens", "output_tokens"):
            tokens = getattr(self, name)
            require(tokens is None or int(tokens.min()) >= 1, f"{name} of a request is below 1")

    def __len__(self) -> int:
        return len(self.arrivals_ns)


def numbers_by_id(count: int, seed: int) -> NDArray[np.float64]:
    """Numbers (count,) in [0, 1), each a function of its request's place and `seed` alone.

    SplitMix64 (Steele et al. 2014, "Fast splittable pseudorandom number generators").
    """
    step = np.uint64(0x9E3779B97F4A7C15)
    mixed = (np.arange(1, count + 1, dtype=np.uint64) + (np.uint64(seed) << np.uint64(32))) * step
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)) * 2.0**-53)


def number_of_id(request_id: str) -> float:
    """A number in [0, 1), the same for the same id."""
    return int.from_bytes(blake2b(request_id.encode(), digest_size=8).digest()) / 2**64 * (1 - 2**-53)


def draw_language_workload(
    trace: Trace,
    records: NDArray[np.int32],
    *,
    seed: int,
    prompt_tokens: NDArray[np.int64] | None = None,
    output_tokens: NDArray[np.int64] | None = None,
) -> LanguageWorkload:
    """Draw a recorded prompt of `records` (m,) for each arrival, as `draw_workload` does."""
    drawn = draw_workload(trace, records, seed=seed)
    return LanguageWorkload(
        arrivals_ns=drawn.arrivals_ns,
        record=drawn.record,
        by_id=numbers_by_id(len(trace), seed),
        duration_s=drawn.duration_s,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
    )
