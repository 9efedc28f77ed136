"""Place the models of all operators on devices: on every device that can hold them, else by need."""

from collections.abc import Iterable, Mapping

from gearshift.errors import InvalidInput
from gearshift.hardware import Device, Hardware
from gearshift.placement import Placement, Replica
from gearshift.planner.space.hosts import bytes_per_device, device_seconds, replica_on, ways
from gearshift.profiles.profile import Profile, RunTimeCurve


def place(profiles: Iterable[Profile], hardware: Hardware, visits: Mapping[str, float]) -> Placement:
    """Replicas of the models in `visits`, each with its items per request.

    First each model gets one replica, large ones first, on the device with the most memory left;
    then further ones as long as memory lasts, always the model with the most load per replica.
    Raises `InvalidInput` where a model fits nowhere.
    """
    curves = _curves(profiles, hardware)
    load_s = {model: visits[model] * _seconds(model, curves) for model in visits}
    left = {device.id: device.memory_bytes for device in hardware.devices}
    held: dict[str, list[Device]] = {model: [] for model in load_s}

    def homes(model: str) -> list[Device]:
        return [
            device
            for device in hardware.devices
            if device not in held[model]
            and (curve := curves.get((model, device.id))) is not None
            and bytes_per_device(curve) <= left[device.id]
        ]

    def hold(model: str, device: Device) -> None:
        held[model].append(device)
        left[device.id] -= bytes_per_device(curves[model, device.id])

    def size(model: str) -> int:
        return max((bytes_per_device(c) for (name, _), c in curves.items() if name == model), default=0)

    for model in sorted(load_s, key=lambda m: (-size(m), m)):
        free = homes(model)
        if not free:
            raise InvalidInput(
                f"model {model!r} fits on no device beside the others",
                remedy="give devices more memory, or more devices, or leave out a model",
            )
        hold(model, max(free, key=lambda device: left[device.id]))
    while True:
        wanting = [model for model in load_s if homes(model)]
        if not wanting:
            break
        model = max(wanting, key=lambda m: (load_s[m] / len(held[m]), m))
        hold(model, max(homes(model), key=lambda device: left[device.id]))
    replicas: list[Replica] = []
    for model in sorted(load_s):
        by_place = [device for device in hardware.devices if device in held[model]]
        replicas += [replica_on(curves[model, device.id], [device]) for device in by_place]
    return Placement(replicas=tuple(replicas))


def _seconds(model: str, curves: Mapping[tuple[str, str], RunTimeCurve]) -> float:
    return min((device_seconds(curve) for (name, _), curve in curves.items() if name == model), default=0.0)


def _curves(profiles: Iterable[Profile], hardware: Hardware) -> dict[tuple[str, str], RunTimeCurve]:
    """The curve of each model on each device, by model and device id; only those of one device."""
    return {
        (curve.model, device.id): curve
        for profile in profiles
        for device in hardware.devices
        for curve in ways(profile, kind=device.kind, cores=device.cores)
        if curve.tensor_parallel == 1
    }
