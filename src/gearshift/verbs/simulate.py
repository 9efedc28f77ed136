"""Predict how a plan serves a trace."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from gearshift.gear import GearPlan
from gearshift.profiles.profile import Profile
from gearshift.profiles.tuples import JointRecords
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import traces_of
from gearshift.verbs.common.options import Option, ProfileOfPlan
from gearshift.verbs.kinds.registry import kind_of_plan
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.policies.cores.demand import Scaling
    from gearshift.simulator.engines.language_simulation import LanguageSimulation
    from gearshift.simulator.simulate import Simulation
    from gearshift.traces.network import Uplink


def simulate(
    plan: GearPlan | PathLike,
    trace: Trace | PathLike | Mapping[str, Trace | PathLike] | None = None,
    *,
    profile: ProfileOfPlan = None,
    profiles: Mapping[str, Profile | PathLike] | None = None,
    joint: Mapping[str, JointRecords] | None = None,
    seed: int | None = None,
    uplink: "Uplink | None" = None,
    scaling: "Scaling | None" = None,
    scaler_cores: Annotated[
        int | None,
        Option("The cores that workers share, with `static` evenly; by default those of the plan.", least=1, most=4096),
    ] = None,
    most_waiting: int | None = None,
) -> "Simulation | LanguageSimulation":
    """Predict by simulation how `plan` serves `trace`; `result(...)` of what is returned gives the figures.

    With an `uplink`, the trace holds the times of sending: requests arrive later, with the
    deadlines that the uplink gives them, and latencies count from sending. With `scaling` a scaler
    gives workers cores out of `scaler_cores` (default: all of the plan), at least the gear's where
    the plan was made with `cores`. When more than `most_waiting` samples wait, requests are
    refused (default: the server's bound).

    `profile` and `trace` replace the paths in the plan file. The plan's own trace is read as it
    was for the plan; a warning is logged where it may have changed. `seed` draws samples and
    arrivals, by default as for the plan. Raises `InvalidInput` for a profile other than the
    plan's, and for an option that plans of this kind do not have.

    A plan of several pipelines is served with all their traces at once: `trace` is then a mapping
    that replaces some of them, and `profiles` replaces profiles of some operators. A graph is served
    with its recorded tuples: those beside its profiles, or `joint`. Of language models, requests
    longer than the context of every model of the plan are left out.
    """
    kind, shape, made = kind_of_plan(plan)
    how: dict[str, Any] = {
        "seed": seed,
        "uplink": uplink,
        "scaling": scaling,
        "scaler_cores": scaler_cores,
        "most_waiting": most_waiting,
    }
    records: dict[str, Any] = {"profile": profile, "profiles": profiles, "joint": joint}
    kind.require_supported("simulate", shape, how | records)
    inputs = kind.inputs(plan, **records)
    found: Simulation | LanguageSimulation
    found = kind.simulate(inputs, traces_of(made, plan, trace, seed=seed), **how)
    return found
