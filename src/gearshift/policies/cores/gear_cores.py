"""Cores that change with the gear: how many a replica is to have, and from when batches reckon with them."""

from collections.abc import Sequence


def cores_in_gear(cores: Sequence[int], gear: int, replicas: int, replica: int) -> int:
    """The cores of a replica in a gear, of the plan's `cores` (gears x replicas)."""
    return cores[gear * replicas + replica]


def change_holds_ns(now_ns: int, in_force: int, wanted: int, effect_ns: int) -> int:
    """From when batches start on `wanted` cores: on fewer at once, as others may get them; on more once they are there.

    `effect_ns` is how long a change may take.
    """
    return now_ns if wanted <= in_force else now_ns + effect_ns
