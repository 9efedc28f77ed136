"""Bars of a benchmark, each held or missed, and how many."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Bars:
    """What was judged, in the order in which it was."""

    judged: list[tuple[bool, str]] = field(default_factory=list)

    def at_least(self, name: str, value: float, bar: float) -> None:
        """A figure that is to be `bar` or more; NaN misses it."""
        self.judged.append((value >= bar, f"{name}: {value:.4g}, bar at least {bar:g}"))

    def at_most(self, name: str, value: float, bar: float) -> None:
        """A figure that is to be `bar` or less; NaN misses it."""
        self.judged.append((value <= bar, f"{name}: {value:.4g}, bar at most {bar:g}"))

    def __str__(self) -> str:
        lines = [f"{'held' if held else 'MISSED'}: {what}" for held, what in self.judged]
        held = sum(held for held, _ in self.judged)
        return "\n".join([*lines, f"{held} of {len(self.judged)} bars held"])
