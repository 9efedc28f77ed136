"""`gearshift compare` for a pipeline of several nodes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gearshift.cli.common.named import Named, the_last
from gearshift.cli.common.options import TRACE_OPTIONS, the_only_trace, the_trace
from gearshift.cli.common.output import Output
from gearshift.errors import require
from gearshift.planner import planners as registry
from gearshift.planner.compare import Comparison
from gearshift.profiles.pipelines.profile_folder import read_profiles
from gearshift.support.files import require_writable
from gearshift.verbs.pipelines.compare_graph import compare_graph
from gearshift.verbs.plan_pipeline import pipeline_of

UNLABELLED = "accuracy of {} is agreement with its strongest model: it has no labels"


class Compared(NamedTuple):
    """A comparison, the title and note of its page, and sentences that belong with its figures."""

    found: Comparison
    title: str
    note: str
    doubts: tuple[str, ...]


def compare_one_graph(
    output: Output,
    profiles: Path,
    trace: Sequence[str],
    latencies_ms: Sequence[Named[list[float]]],
    paths: Sequence[Path],
    *,
    pipeline: str | None,
    options: dict[str, Any],
) -> Compared:
    measured = read_profiles(profiles)
    name = pipeline_of(measured, pipeline)
    for option, without in (("load", None), ("budget_s", None), ("scope", "every-range")):
        flag = f"--{option.replace('_', '-')}"
        given = options[option] if option == "scope" else options.pop(option)
        require(
            given == without,
            f"{flag} is given, and a pipeline of several nodes is planned without",
            remedy=f"leave {flag} out",
        )
    path = the_only_trace(tuple(trace), name)
    assert path is not None
    arrivals = the_trace(path, seed=options["seed"], **{each: options.pop(each) for each in TRACE_OPTIONS})
    for each in paths:
        require_writable(each)
    asked = {key: value for key, value in options.items() if key != "scope"}
    asked["planners"] = tuple(registry.for_("rows", "graph")) if options["planners"] is None else options["planners"]
    latencies_s = seconds_of_all(the_last(latencies_ms) or [])
    with output.progress() as tell:
        found = compare_graph(profiles, arrivals, pipeline=name, latencies_s=latencies_s, progress=tell, **asked)
    operators = [measured.operators[node.operator] for node in measured.pipelines[name].nodes.values()]
    doubts = tuple(
        UNLABELLED.format(repr(each.operator))
        for each in operators
        if not each.predictions.labelled and each.models != (each.operator,)
    )
    return Compared(found, f"Planners for {name}", f"Profile {profiles}, trace {path}.", doubts)


def seconds_of_all(latencies_ms: list[float]) -> list[float]:
    return [ms / 1e3 for ms in latencies_ms]
