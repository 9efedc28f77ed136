"""Limits per minute that endpoints have for all replicas of a model together."""

from collections.abc import Sequence
from typing import NamedTuple

from gearshift.policies.engines.rate_limits import due_after_ns, opens_ns


class Limits(NamedTuple):
    """None: no limit. Tokens are those of prompts and answers."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class RateLimits:
    def __init__(self, models: int, limits: Sequence[Limits] = ()) -> None:
        self._limits = list(limits) or [Limits()] * models
        self._requests_due_ns, self._tokens_due_ns = [0] * models, [0] * models

    def opens_ns(self, model: int) -> int:
        """When the model may be sent the next request, which may have been long ago."""
        limits = self._limits[model]
        if limits == (None, None):
            return 0
        return max(opens_ns(self._requests_due_ns[model]), opens_ns(self._tokens_due_ns[model]))

    def sent(self, model: int, tokens: int, now_ns: int) -> None:
        requests, per_minute = self._limits[model]
        if requests is not None:
            self._requests_due_ns[model] = due_after_ns(self._requests_due_ns[model], now_ns, 1, requests)
        if per_minute is not None:
            self._tokens_due_ns[model] = due_after_ns(self._tokens_due_ns[model], now_ns, tokens, per_minute)
