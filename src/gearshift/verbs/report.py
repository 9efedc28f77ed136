"""Write a page about a plan."""

from pathlib import Path

from gearshift.support.files import PathLike
from gearshift.verbs.inputs import plan_and_profile, trace_for
from gearshift.verbs.options import ProfileOfPlan
from gearshift.verbs.simulate import simulate
from gearshift.workload import Trace


def report(
    plan: PathLike, out: PathLike, *, trace: Trace | PathLike | None = None, profile: ProfileOfPlan = None
) -> Path:
    """Write a self-contained HTML page about a plan, with a simulation of its trace or of `trace`.

    Without any trace the page has no simulation.
    """
    from gearshift.reporting.content import compose
    from gearshift.reporting.report_page import write_report

    made, measured = plan_and_profile(plan, profile)
    arrivals = trace_for(made, plan, trace) if trace is not None or made.trace.path else None
    runs = () if arrivals is None else (("gear plan", simulate(made, arrivals, profile=measured)),)
    write_report(Path(out), compose(made, measured, title=f"Gear plan for {made.name}", simulations=runs))
    return Path(out)
