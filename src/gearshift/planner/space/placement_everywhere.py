"""The first placement: every model on every host where it fits."""

from collections.abc import Sequence

from gearshift.hardware import Hardware
from gearshift.placement import Placement, Replica
from gearshift.planner.space.hosts import hosts_of
from gearshift.profiles.profile import Profile


def place_everywhere(profile: Profile, hardware: Hardware, *, models: Sequence[str] | None = None) -> Placement:
    """Each model on each device (or group of devices that it spans), as far as memory allows.

    Models with fewest replicas go first. `models` are all of the profile by default. Raises
    `InvalidInput` when no model fits any device.
    """
    count = dict.fromkeys(profile.models, 0)
    replicas: list[Replica] = []
    for host in hosts_of(profile, hardware, models=models):
        free_bytes = host.memory_bytes
        for model in sorted(host.seconds, key=lambda m: (count[m], host.needs_bytes[m], m)):
            if host.needs_bytes[model] <= free_bytes:
                free_bytes -= host.needs_bytes[model]
                count[model] += len(host.replicas[model])
                replicas += host.replicas[model]
    return Placement(replicas=tuple(replicas))
