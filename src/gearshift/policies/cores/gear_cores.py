"""Cores that change with the gear: a replica's number, and when batches start to use it."""

from collections.abc import Sequence


def cores_in_gear(cores: Sequence[int], gear: int, replicas: int, replica: int) -> int:
    """The cores of a replica in a gear, from the plan's `cores` (gears x replicas)."""
    return cores[gear * replicas + replica]


def change_holds_ns(now_ns: int, in_force: int, wanted: int, effect_ns: int) -> int:
    """When batches start on `wanted` cores.

    On fewer at once, as others may get the rest; on more when they are available, `effect_ns`
    later.
    """
    return now_ns if wanted <= in_force else now_ns + effect_ns
