"""Compare planners, numbers of devices and latency objectives."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from gearshift.hardware import Hardware
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Progress, silent
from gearshift.verbs.common.options import Option
from gearshift.verbs.kinds.registry import kind_of_profile
from gearshift.verbs.planning.options import CompareOptions
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.planner.compare import Comparison
    from gearshift.planner.language.compared.compare import LanguageComparison
    from gearshift.verbs.plan import AnyProfile


def compare(
    profile: "AnyProfile | Sequence[AnyProfile]",
    trace: Trace | PathLike | Mapping[str, Trace | PathLike],
    *,
    planners: Sequence[str] | None = None,
    devices: Sequence[int | Hardware | PathLike | None],
    latencies_s: Sequence[float] | Mapping[str, Sequence[float]] = (),
    accuracies: Sequence[float] | None = None,
    baselines: Annotated[
        Sequence[str] | None,
        Option("Planners that savings are counted against [default: the simple].", metavar="NAMES"),
    ] = None,
    processes: Annotated[
        int | None, Option("How many plan at a time [default: one per core].", "--jobs", least=1)
    ] = None,
    progress: Progress = silent,
    **asked: Unpack[CompareOptions],
) -> "Comparison | LanguageComparison":
    """Run every planner for every number of devices and latency objective, in parallel processes.

    `devices` are as in `plan`, each with a different count. `accuracies` are the rows of the grid of
    fewest devices, `baselines` the planners that savings are compared with, `processes` how many plan
    at a time (default: one per core). Other options are those of `plan`. A run that fails is a row
    with its `error`, and at Ctrl-C so is one that has not ended, as long as another has. Profiles are
    those that `plan` takes; of several operators, latencies are by operator. Of language models
    `ttft_s`, `per_token_s` or `total_s` has the limits, and the control `permuted` is compared, too.
    """
    found = kind_of_profile(profile)
    kind, shape = found.kind, found.shape
    given: dict[str, Any] = {
        "planners": planners,
        "devices": devices,
        "latencies_s": latencies_s,
        "accuracies": accuracies,
        "baselines": baselines,
        "processes": processes,
        **asked,
    }
    kind.require_supported("compare", shape, given)
    made: Comparison | LanguageComparison
    made = kind.compare(shape, profile, trace, progress=progress, asked=given)
    return made
