"""Signs that a trace's arrivals are not as requests came."""

import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.workload import Trace

LEAST_STEP_S = 0.05
"""Shorter intervals between simultaneous arrivals cause no warning."""


def doubts_about_trace(trace: Trace) -> tuple[str, ...]:
    """Warn of arrivals that were stamped so coarsely that many fall on one instant."""
    instants, counts = np.unique(trace.arrivals_ns, return_counts=True)
    together = counts > 1
    share = counts[together].sum() / len(trace)
    if share < 0.5 or together.sum() < 2:
        return ()
    step_s = float(np.gcd.reduce(np.diff(instants[together]))) / NS_PER_S
    if step_s < LEAST_STEP_S:
        return ()
    return (
        f"{100 * share:.0f} % of the requests come at the same instants as others, up to {counts.max()} at once, as "
        f"times do that were stamped every {step_s:g} s: they are served as bursts; if they came spread out, give "
        "columns `second,requests` in place of `arrival_s`",
    )
