"""Part A and part B: samples to choose plans on, and samples to confirm them on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.profiles.profile import PART_A, PART_B


def split_parts(groups: NDArray[Any], seed: int) -> NDArray[np.int8]:
    """The part (n,) of each sample; samples of one of `groups` (n,) share a part.

    Groups go to the smaller part, largest first and otherwise at random, so the parts differ by at
    most one group. Raises `InvalidInput` for fewer than two groups.
    """
    names, group_of = np.unique(groups, return_inverse=True)
    require(
        len(names) >= 2,
        f"the {len(group_of)} samples form {len(names)} group, and a group cannot be split into two parts",
        where="samples",
        remedy="give samples of at least two groups",
    )
    sizes = np.bincount(group_of)
    generator = np.random.default_rng([seed, 0xAB])
    shuffled = generator.permutation(len(names))
    largest_first = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    held = [0, 0]
    part = np.empty(len(names), dtype=np.int8)
    for group, heads in zip(largest_first, generator.integers(2, size=len(names)), strict=True):
        smaller = int(heads) if held[0] == held[1] else held.index(min(held))
        part[group] = (PART_A, PART_B)[smaller]
        held[smaller] += int(sizes[group])
    return np.asarray(part[group_of], dtype=np.int8)
