"""Gears as rows of a table: neighbours that have the same cascade are one row, which names their numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, GearPrediction, LoadRange


@dataclass(frozen=True, slots=True)
class GearRow:
    """Gears `first` to `last`, by the numbers that `gear pin` takes, and the cores of their models where they change.

    What is predicted is that of the last of them, which has the highest load.
    """

    first: int
    gears: Sequence[Gear]
    cores: str = ""

    @property
    def last(self) -> int:
        """The number of the last gear."""
        return self.first + len(self.gears) - 1

    @property
    def numbers(self) -> str:
        """Such as "3", or "3-7"."""
        return str(self.first) if len(self.gears) == 1 else f"{self.first}-{self.last}"

    @property
    def cascade(self) -> Cascade:
        """Of each of the gears."""
        return self.gears[0].cascade

    @property
    def load_range(self) -> LoadRange:
        """All their ranges together."""
        return LoadRange(from_=self.gears[0].load_range.from_, to=self.gears[-1].load_range.to)

    @property
    def predicted(self) -> GearPrediction | None:
        """Of the last gear."""
        return self.gears[-1].predicted

    @property
    def largest_batch(self) -> str:
        """Such as "8", or "8-16" where gears differ."""
        sizes = [max((s.largest_batch_size for s in g.replicas if s.load_share > 0), default=1) for g in self.gears]
        return str(sizes[0]) if min(sizes) == max(sizes) else f"{min(sizes)}-{max(sizes)}"

    @property
    def predicted_elsewhere_qps(self) -> float | None:
        """The load of the prediction, where that is not the upper end of the row's loads."""
        return predicted_elsewhere_qps(self.gears[-1])


def predicted_elsewhere_qps(gear: Gear) -> float | None:
    """The load that a gear was predicted at, where that is not the upper end of its range."""
    if gear.predicted is None or gear.predicted.load_qps == gear.load_range.to:
        return None
    return gear.predicted.load_qps


def gear_rows(plan: GearPlan, operator: str) -> list[GearRow]:
    """The rows of an operator's gears; those beyond the top that was planned for are apart from those below."""
    gears, top_qps = plan.operators[operator].gears, top_of(plan.operators[operator].gears)
    pooled = plan.hardware.pool_cores is not None

    def alike(numbered: tuple[int, Gear]) -> tuple[Cascade, str, bool]:
        gear = numbered[1]
        beyond = top_qps is not None and gear.load_range.from_ >= top_qps
        return gear.cascade, plan.cores_in(gear) if pooled else "", beyond

    rows = []
    for (_, cores, _), group in groupby(enumerate(gears), alike):
        numbers, together = zip(*group, strict=True)
        rows.append(GearRow(numbers[0], together, cores))
    return rows


def top_of(gears: Sequence[Gear]) -> float | None:
    """The load up to which gears were planned for, where some lie beyond it; None where none does, or nobody says."""
    last = gears[-1]
    if last.predicted is None or last.predicted.load_qps > last.load_range.from_:
        return None
    return last.predicted.load_qps
