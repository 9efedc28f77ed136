"""Gearshift serves machine-learning models as cascades that shift gears with load.

The verbs of the command line are functions here: `init`, `profile`, `plan`, `simulate`, `inspect`,
`explain`, `diff`, `compare`, `report`, `serve`, `replay`, `validate`, `doctor`. `Client` and
`AsyncClient` send requests to a server. Each is imported at its first use, so that `import
gearshift` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gearshift.cascade import Cascade
    from gearshift.client.client import AsyncClient, Client
    from gearshift.errors import GearshiftError, Infeasible, InvalidInput
    from gearshift.gear import Gear, GearPlan
    from gearshift.hardware import Device, Hardware, identical_devices
    from gearshift.model import Predicted
    from gearshift.models.samples import Samples
    from gearshift.models.torch_module import load_weights
    from gearshift.objective import Objective
    from gearshift.plans.hardware_file import read_hardware
    from gearshift.plans.plan_file import read_plan, write_plan
    from gearshift.profiles.profile import Profile
    from gearshift.profiles.store import read_profile, write_profile
    from gearshift.traces.read import read_trace, write_trace
    from gearshift.verbs.init import init
    from gearshift.verbs.plan_request import (
        compare,
        diff,
        doctor,
        explain,
        inspect,
        largest_alone,
        plan,
        plan_frontier,
        profile,
        profile_from_records,
        report,
        serve,
        simulate,
    )
    from gearshift.verbs.validate import replay, validate
    from gearshift.workload import Trace

__version__ = "0.1.0"

_HOMES = {
    "gearshift.verbs.plan_request": (
        "compare",
        "diff",
        "doctor",
        "explain",
        "inspect",
        "largest_alone",
        "plan",
        "plan_frontier",
        "profile",
        "profile_from_records",
        "report",
        "serve",
        "simulate",
    ),
    "gearshift.cascade": ("Cascade",),
    "gearshift.client.client": ("AsyncClient", "Client"),
    "gearshift.errors": ("GearshiftError", "Infeasible", "InvalidInput"),
    "gearshift.gear": ("Gear", "GearPlan"),
    "gearshift.hardware": ("Device", "Hardware", "identical_devices"),
    "gearshift.plans.hardware_file": ("read_hardware",),
    "gearshift.verbs.init": ("init",),
    "gearshift.models.samples": ("Samples",),
    "gearshift.model": ("Predicted",),
    "gearshift.objective": ("Objective",),
    "gearshift.plans.plan_file": ("read_plan", "write_plan"),
    "gearshift.profiles.profile": ("Profile",),
    "gearshift.profiles.store": ("read_profile", "write_profile"),
    "gearshift.verbs.validate": ("replay", "validate"),
    "gearshift.models.torch_module": ("load_weights",),
    "gearshift.traces.read": ("read_trace", "write_trace"),
    "gearshift.workload": ("Trace",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AsyncClient",
    "Cascade",
    "Client",
    "Device",
    "Gear",
    "GearPlan",
    "GearshiftError",
    "Hardware",
    "Infeasible",
    "InvalidInput",
    "Objective",
    "Predicted",
    "Profile",
    "Samples",
    "Trace",
    "compare",
    "diff",
    "doctor",
    "explain",
    "identical_devices",
    "init",
    "inspect",
    "largest_alone",
    "load_weights",
    "plan",
    "plan_frontier",
    "profile",
    "profile_from_records",
    "read_hardware",
    "read_plan",
    "read_profile",
    "read_trace",
    "replay",
    "report",
    "serve",
    "simulate",
    "validate",
    "write_plan",
    "write_profile",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'gearshift' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
