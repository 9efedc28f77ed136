"""The time that a run over a whole trace will take, by a run over its beginning."""

import time
from collections.abc import Callable
from dataclasses import replace

from gearshift.clock import NS_PER_S
from gearshift.workload import Trace

LONG = 500_000
"""Traces with fewer requests are simulated in a second or two."""
LOOKED_AT = 1 / 50


def seconds_for(trace: Trace, run: Callable[[Trace], object], now_s: Callable[[], float] = time.perf_counter) -> float:
    """The seconds that `run` will take for the trace, by those for its first fiftieth; 0 for a short trace."""
    if len(trace) < LONG:
        return 0.0
    run(beginning(trace, 1))  # what is done once, such as compiling
    count = int(len(trace) * LOOKED_AT)
    began_s = now_s()
    run(beginning(trace, count))
    return (now_s() - began_s) * len(trace) / count


def beginning(trace: Trace, count: int) -> Trace:
    cut = {
        name: column[:count]
        for name in ("arrivals_ns", "left_ns", "prompt_tokens", "output_tokens")
        if (column := getattr(trace, name)) is not None
    }
    return replace(trace, duration_s=float(cut["arrivals_ns"][-1]) / NS_PER_S + 1e-6, **cut)
