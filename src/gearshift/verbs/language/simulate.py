"""Predict how a plan of language models serves a trace."""

from typing import TYPE_CHECKING, Any

from gearshift.gear import GearPlan
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.support.files import PathLike
from gearshift.verbs.inputs import trace_for
from gearshift.verbs.language.inputs import language_workload, plan_and_language_profile
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.simulator.engines.language_simulation import LanguageSimulation


def simulate_language(
    plan: GearPlan | PathLike,
    trace: Trace | PathLike | None = None,
    *,
    profile: LanguageProfile | PathLike | Any = None,
    seed: int | None = None,
) -> "LanguageSimulation":
    """As `gearshift.simulate`, for language models; `LanguageSimulation.result(...)` gives the figures."""
    from gearshift.simulator.engines.simulate_language import simulate_language as run

    made, measured = plan_and_language_profile(plan, profile)
    arrivals = trace_for(made, plan, trace, seed=seed)
    return run(engine_tables(made, measured), measured, language_workload(measured, arrivals, seed=seed))
