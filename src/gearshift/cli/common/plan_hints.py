"""Commands that `plan` offers where an objective is out of reach."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gearshift.cli.common.options import TRACE_OPTIONS, command_line
from gearshift.errors import Infeasible
from gearshift.objective import Scope
from gearshift.support.numbers import digits
from gearshift.traces.read import read_trace
from gearshift.workload import Trace

STEADY, LEAST_GAPS = 0.2, 10


def steady_hint(trace: Trace, of_trace: dict[str, Any], scope: Scope) -> str:
    evenly = trace
    if trace.of_counts and of_trace["arrivals"] != "uniform":
        path, changed_how = of_trace["trace"], {"seed": of_trace["seed"], "arrivals": "uniform"}
        if not path.is_file():  # a pipe cannot be read again
            return ""
        evenly = read_trace(path, **{name: of_trace[name] for name in TRACE_OPTIONS} | changed_how)
    gaps_ns = np.diff(evenly.arrivals_ns)
    if len(gaps_ns) < LEAST_GAPS or gaps_ns.std() > STEADY * gaps_ns.mean():
        return ""
    changed, remarks = [], ""
    if trace.sha256 != evenly.sha256:
        changed.append("--arrivals uniform")
        remarks += f", and drawn at random it has up to {trace.peak_qps:.0f} in a second"
    if scope != "trace":
        changed.append("--scope trace")
        remarks += "; every load range must also hold random arrivals"
    if not changed:
        return ""
    return (
        f"the trace is a steady {digits(evenly.mean_qps)}/s{remarks}: "
        f"if requests come evenly, plan with {' '.join(changed)}"
    )


def nearest_commands(error: Infeasible, *, limit: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the command with each nearest feasible objective, rounded to the feasible side."""
    changed: list[dict[str, object]] = []
    if error.nearest_latency_s is not None:
        changed.append({limit: math.ceil(error.nearest_latency_s * 1e6 - 1e-6) / 1e3})
    if error.nearest_accuracy is not None:
        changed.append({"accuracy": math.floor(error.nearest_accuracy * 1e4 + 1e-9) / 1e4})
    if error.together:
        changed = [{name: value for each in changed for name, value in each.items()}]
    counted = options["cores"] is None and not isinstance(options["devices"], Path)
    if error.nearest_devices is not None and counted:
        changed.append({"devices": error.nearest_devices})
    for change in changed:
        yield command_line(**change)
