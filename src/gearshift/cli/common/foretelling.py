"""The time that a run over a whole trace will take, by a run over its beginning."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from gearshift.clock import NS_PER_S
from gearshift.workload import Trace

LONG = 500_000
"""Traces with fewer requests are simulated in a second or two."""
LOOKED_AT = 1 / 50


def seconds_for(
    traces: Mapping[str, Trace],
    run: Callable[[Mapping[str, Trace]], object],
    now_s: Callable[[], float] = time.perf_counter,
) -> float:
    """The seconds that `run` will take for traces, by those for their first fiftieths; 0 for short ones."""
    if sum(map(len, traces.values())) < LONG:
        return 0.0
    run({name: beginning(trace, 1) for name, trace in traces.items()})  # what is done once, such as compiling
    began_s = now_s()
    run({name: beginning(trace, max(1, int(len(trace) * LOOKED_AT))) for name, trace in traces.items()})
    return (now_s() - began_s) / LOOKED_AT


def beginning(trace: Trace, count: int) -> Trace:
    cut = {
        name: column[:count]
        for name in ("arrivals_ns", "left_ns", "prompt_tokens", "output_tokens")
        if (column := getattr(trace, name)) is not None
    }
    return replace(trace, duration_s=float(cut["arrivals_ns"][-1]) / NS_PER_S + 1e-6, **cut)
