"""Results of serving a workload, predicted or measured, under the same names."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from gearshift.display import in_notebook
from gearshift.errors import require
from gearshift.objective import Metric


class LatencySummary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Latency of answered requests in seconds."""

    mean: float
    p50: float
    p95: float
    p99: float

    def at(self, percentile: float) -> float:
        """Seconds at this percentile, or at the next higher recorded one (p99 beyond it)."""
        recorded = (0.5, self.p50), (0.95, self.p95)
        return next((seconds for share, seconds in recorded if percentile <= share), self.p99)


class TokenFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The streams of a run: seconds to the first token, between tokens, and in all.

    Of answered requests, by the model that answered; `per_token_s` is the mean time between a
    request's tokens, of those with several. `discarded_tokens` were made by models that did not answer.
    """

    ttft_s: LatencySummary
    per_token_s: LatencySummary
    total_s: LatencySummary
    output_tokens: int
    discarded_tokens: dict[str, int] = {}
    answered_by: dict[str, float] = {}
    """The share of answers by model."""


class ServingResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures of one run: simulated (predicted) or replayed (measured).

    `share_late` counts refused and failed requests as late. Latencies are of answered requests.
    `share_degraded` is the share of all requests that were answered by an earlier stage although
    its certainty was below the threshold. `core_s` are the core-seconds that replicas held, where
    a plan changes their cores. `most_waiting` is the largest number of samples that waited at
    once, where that was simulated. `accuracy_interval` is the 95 % Wilson interval.
    `latency_p95_interval_s` spans the runs it was predicted from.
    """

    requests: int
    accuracy: float
    accuracy_interval: tuple[float, float]
    latency_s: LatencySummary
    latency_p95_interval_s: tuple[float, float] | None = None
    share_late: float
    share_refused: float
    share_degraded: float = 0.0
    goodput_qps: float
    devices: int
    utilisation: dict[str, float]
    core_s: float | None = None
    most_waiting: int | None = None
    tokens: TokenFigures | UnsetType = UNSET
    """For language models; `latency_s` is then that of the objective's metric."""
    share_by_time: float | UnsetType = UNSET
    """The share of all requests that were answered with what they had when their time to refine ended."""

    _repr_html_ = in_notebook


class OtherDevices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same planner's prediction on another number of devices, or the `reason` why it has no plan."""

    devices: int
    price_per_hour: float | None = None
    predicted: ServingResult | None = None
    reason: str = ""


def percentile(values: NDArray[np.float64], p: float) -> float:
    """The ceil(p n)-th smallest of `values` (n,); 0 when there are none."""
    return percentiles(values, (p,))[0]


def percentile_rank(p: float, n: int) -> int:
    """Index, in rising order from 0, of the ceil(p n)-th smallest of `n` values."""
    return max(0, math.ceil(p * n - 1e-9) - 1)


def percentiles(values: NDArray[np.float64], ps: Sequence[float]) -> list[float]:
    n = len(values)
    if n == 0:
        return [0.0] * len(ps)
    ranks = [percentile_rank(p, n) for p in ps]
    parted = np.partition(values, ranks)
    return [float(parted[rank]) for rank in ranks]


def latency_summary(latency_s: NDArray[np.float64]) -> LatencySummary:
    p50, p95, p99 = percentiles(latency_s, (0.50, 0.95, 0.99))
    return LatencySummary(mean=float(latency_s.mean()) if len(latency_s) else 0.0, p50=p50, p95=p95, p99=p99)


def wilson_interval(mean: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's score interval for a mean of `n` independent trials; conservative for scores."""
    if n == 0:
        return 0.0, 1.0
    centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(max(0.0, mean * (1 - mean)) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def lower_confidence_bound(mean: float, n: int, confidence: float) -> float:
    """Lower confidence bound on the mean of `n` independent scores in [0, 1] (Chernoff, 1952).

    Whatever their distribution, the true mean lies below it with probability `1 - confidence` at
    most: it is the smallest `q` with `n x kl(mean, q) <= log(1 / (1 - confidence))`, where kl is
    the divergence between two shares.
    """
    if n == 0:
        return 0.0
    allowed = -math.log1p(-confidence) / n
    low, high = 0.0, mean
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _divergence(mean, middle) <= allowed else (middle, high)
    return low


def share_bound(wrong: int, n: int, confidence: float) -> float:
    """Lower confidence bound on the share of right answers (Clopper and Pearson, 1934).

    The exact counterpart of `lower_confidence_bound` where an answer is right or wrong.
    """
    from scipy.special import betaincinv

    return 0.0 if wrong >= n else float(betaincinv(n - wrong, wrong + 1, 1 - confidence))


def summarise_streams(
    *,
    ttft_s: NDArray[np.float64],
    per_token_s: NDArray[np.float64],
    total_s: NDArray[np.float64],
    metric: Metric,
    output_tokens: int,
    discarded_tokens: dict[str, int],
    answered_by: dict[str, float],
    **whole: Any,
) -> ServingResult:
    """Figures of streams from the times (n,) of answered requests, simulated or measured; `whole` as in `summarise`.

    `per_token_s` is NaN for answers of one token, which count as kept where that is the metric.
    """
    times = {"ttft": ttft_s, "per_token": per_token_s, "total": total_s}
    judged = times["total" if metric == "latency" else metric]
    known = {name: seconds[~np.isnan(seconds)] for name, seconds in times.items()}
    outcome = summarise(latency_s=np.nan_to_num(judged, nan=0.0), **whole)
    tokens = TokenFigures(
        ttft_s=latency_summary(known["ttft"]),
        per_token_s=latency_summary(known["per_token"]),
        total_s=latency_summary(known["total"]),
        output_tokens=output_tokens,
        discarded_tokens=discarded_tokens,
        answered_by=answered_by,
    )
    latency_s = latency_summary(judged[~np.isnan(judged)])
    return msgspec.structs.replace(outcome, latency_s=latency_s, tokens=tokens)


def _divergence(p: float, q: float) -> float:
    if q <= 0 or q >= 1:
        return 0.0 if p == q else math.inf
    inside = p * math.log(p / q) if p > 0 else 0.0
    return inside + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0)


def composed_quality(
    of_items: NDArray[np.float64], row: NDArray[np.int64] | NDArray[np.int32], rows: int
) -> NDArray[np.float64]:
    """The quality (rows,) of a graph's request rows: the product of those (m,) of the items answered for each.

    Item i is of request row `row[i]`. A row without items has 1.
    """
    product = np.ones(rows)
    np.multiply.at(product, row, of_items)
    return product


def summarise(
    *,
    latency_s: NDArray[np.float64],
    quality: NDArray[np.float64],
    requests: int,
    refused: int,
    latency_objective_s: float | NDArray[np.float64] | None,
    duration_s: float,
    devices: int,
    utilisation: dict[str, float],
    independent_samples: int | None = None,
    degraded: int = 0,
    core_s: float | None = None,
    most_waiting: int | None = None,
    by_time: int | None = None,
) -> ServingResult:
    """Figures of a run from the latency and quality (n,) of its answered requests.

    `requests` counts all that arrived. The latency objective may be one per answered request (n,);
    without one only unanswered requests are late. `by_time` counts those answered by time, where
    that can happen. `independent_samples` bounds the accuracy
    interval where few recorded samples served many requests. Raises `InvalidInput` when nothing
    arrived.
    """
    require(requests > 0, "nothing was served: the workload has no requests")
    answered = len(latency_s)
    in_time = answered if latency_objective_s is None else int(np.count_nonzero(latency_s <= latency_objective_s))
    accuracy = float(quality.mean()) if answered else 0.0
    independent = answered if independent_samples is None else min(answered, independent_samples)
    return ServingResult(
        requests=requests,
        accuracy=accuracy,
        accuracy_interval=wilson_interval(accuracy, independent),
        latency_s=latency_summary(latency_s),
        share_late=1 - in_time / requests,
        share_refused=refused / requests,
        share_degraded=degraded / requests,
        goodput_qps=in_time / duration_s if duration_s > 0 else 0.0,
        devices=devices,
        utilisation=utilisation,
        core_s=core_s,
        most_waiting=most_waiting,
        share_by_time=UNSET if by_time is None else by_time / requests,
    )
