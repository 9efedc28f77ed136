"""Requests that are longer than the context of every model, which no server answers."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.profiles.engines.engine_profile import EngineProfile
from gearshift.workload import Trace


def longest_context(engines: Sequence[EngineProfile]) -> int | None:
    """Tokens of the longest context of all; None where that of some engine is not known."""
    known = [one.context_tokens for one in engines if one.context_tokens is not UNSET]
    return max(known) if len(known) == len(engines) else None


def answerable(trace: Trace, engines: Sequence[EngineProfile]) -> tuple[Trace, list[str]]:
    """The requests whose prompt and answer fit some engine's context, and a sentence where some do not.

    Requests without tokens of their own are recorded prompts, which were answered. Raises
    `InvalidInput` where no request fits.
    """
    longest = longest_context(engines)
    given = [tokens for tokens in (trace.prompt_tokens, trace.output_tokens) if tokens is not None]
    if longest is None or not given:
        return trace, []
    fits = np.sum(given, axis=0) <= longest
    beyond = len(trace) - int(np.count_nonzero(fits))
    if not beyond:
        return trace, []
    told = f"{beyond:,} of {len(trace):,} requests have more than the {longest:,} tokens of the longest context"
    require(
        beyond < len(trace), told, remedy="serve a model with a longer context, or give a trace of shorter requests"
    )

    def kept(array: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        return None if array is None else array[fits]

    left = replace(
        trace,
        arrivals_ns=trace.arrivals_ns[fits],
        left_ns=kept(trace.left_ns),
        prompt_tokens=kept(trace.prompt_tokens),
        output_tokens=kept(trace.output_tokens),
    )
    return left, [f"{told}, and are left out: a server refuses them with status 400"]
