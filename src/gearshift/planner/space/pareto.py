"""Plans that no other beats."""

from collections.abc import Sequence


def undominated(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of points (latency, accuracy) that no other dominates, by rising latency.

    Of equal points the first stays.
    """
    kept: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1], i)):
        if not kept or points[i][1] > points[kept[-1]][1]:
            kept.append(i)
    return kept
