"""The processor time that control groups leave to this process, whatever its processors."""

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gearshift.errors import InvalidInput
from gearshift.runtime.actuators.cgroup import cgroup_version, cores_of_group, own_groups


def quota_cores(groups: Sequence[Path] | None = None) -> float:
    """The least quota, in cores, of this process's groups and all above; infinite without one."""
    least = math.inf
    for group in own_groups() if groups is None else groups:
        for folder in (group, *group.parents):
            with suppress(InvalidInput, OSError, ValueError):
                least = min(least, cores_of_group(folder, cgroup_version(folder)))
    return least


def quota_warning(cores: float, what: str, *, quota: float) -> str:
    if cores <= quota:
        return ""
    return (
        f"{what} takes {cores:g} processors with the router's, and a control group holds this process to {quota:g}: "
        "it is stopped for parts of each period, and latency will exceed what is predicted; raise the quota, or use "
        "fewer cores"
    )
