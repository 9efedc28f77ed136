"""Requests that are longer than the context of every model, which no server answers, or of some."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.profiles.engines.engine_profile import EngineProfile
from gearshift.workload import Trace


def _known_contexts(engines: Sequence[EngineProfile]) -> list[int]:
    """Empty where that of some engine is not known."""
    known = [one.context_tokens for one in engines if one.context_tokens is not UNSET]
    return known if len(known) == len(engines) else []


def answerable(trace: Trace, engines: Sequence[EngineProfile]) -> tuple[Trace, list[str]]:
    """The requests whose prompt and answer fit some engine's context, and sentences where some do not, or not all's.

    Requests without tokens of their own are recorded prompts, which were answered. Raises
    `InvalidInput` where no request fits.
    """
    contexts = _known_contexts(engines)
    given = [tokens for tokens in (trace.prompt_tokens, trace.output_tokens) if tokens is not None]
    if not contexts or not given:
        return trace, []
    longest, shortest, tokens = max(contexts), min(contexts), np.sum(given, axis=0)
    fits = tokens <= longest
    beyond, some = len(trace) - int(np.count_nonzero(fits)), int(np.count_nonzero(fits & (tokens > shortest)))
    told_of_some = (
        f"{some:,} of {len(trace):,} requests have more than the {shortest:,} tokens of the shortest context: they are "
        "predicted as if every model took them, and a server sends them on to a model with room"
    )
    notes = [told_of_some] if some else []
    if not beyond:
        return trace, notes
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
    return left, [f"{told}, and are left out: a server refuses them with status 400", *notes]
