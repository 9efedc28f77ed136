"""`gearshift compare` for several operators that share devices."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gearshift.cli.common.named import Named, by_operator, named_paths
from gearshift.cli.common.options import TRACE_OPTIONS, the_trace
from gearshift.cli.common.output import Output
from gearshift.cli.pipelines.compare_graph import UNLABELLED, Compared, seconds_of_all
from gearshift.planner import planners as registry
from gearshift.support.files import require_writable
from gearshift.verbs.pipelines.compare_several import compare_together
from gearshift.verbs.plan_request import named_profiles


def compare_operators(
    output: Output,
    profiles: Sequence[Path],
    traces: Sequence[str],
    latencies_ms: Sequence[Named[list[float]]],
    paths: Sequence[Path],
    options: dict[str, Any],
) -> Compared:
    measured = named_profiles(profiles)
    latencies_s = {name: seconds_of_all(ms) for name, ms in by_operator("--p95-ms", latencies_ms, measured).items()}
    reading = {name: options.pop(name) for name in TRACE_OPTIONS} | {"seed": options["seed"]}
    of_traces = named_paths("--trace", traces, measured)
    arrivals = {name: the_trace(path, **reading) for name, path in of_traces.items()}
    for each in paths:
        require_writable(each)
    planners = tuple(registry.for_("rows", "several")) if options["planners"] is None else options["planners"]
    with output.progress() as tell:
        found = compare_together(
            list(measured.values()),
            arrivals,
            latencies_s=latencies_s,
            progress=tell,
            **options | {"planners": planners},
        )
    names = " and ".join(measured)
    note = "The latency of a run is the longest of its operators. "
    note += f"Profiles {', '.join(map(str, profiles))}; traces {', '.join(traces)}."
    doubts = [UNLABELLED.format(repr(name)) for name, one in measured.items() if not one.predictions.labelled]
    return Compared(found, f"Planners for {names}", note, tuple(doubts))
