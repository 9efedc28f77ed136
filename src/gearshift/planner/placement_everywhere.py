"""The first placement: every model on every device where it fits."""

from collections.abc import Sequence

from gearshift.errors import InvalidInput
from gearshift.hardware import Hardware
from gearshift.placement import Placement, Replica
from gearshift.profiles.profile import Profile


def place_everywhere(profile: Profile, hardware: Hardware, *, models: Sequence[str] | None = None) -> Placement:
    """One replica of each model on each device, as far as memory allows; models with fewest replicas go first.

    `models` are all of the profile unless given.  Raises `InvalidInput` when no model fits any device.
    """
    models = profile.models if models is None else models
    count = dict.fromkeys(models, 0)
    replicas = []
    for device in hardware.devices:
        free_bytes = device.memory_bytes
        memory = {m: profile.curve(m, device_kind=device.kind, cores=device.cores).memory_bytes for m in models}
        for model in sorted(models, key=lambda m: (count[m], memory[m], m)):
            if memory[model] <= free_bytes:
                free_bytes -= memory[model]
                count[model] += 1
                replicas.append(
                    Replica(id=f"{model}@{device.id}", model=model, device_ids=(device.id,), cores=device.cores)
                )
    if not replicas:
        raise InvalidInput(
            "no model fits the memory of any device",
            where="hardware",
            remedy="plan for devices with more memory, or profile smaller models",
        )
    return Placement(replicas=tuple(replicas))
