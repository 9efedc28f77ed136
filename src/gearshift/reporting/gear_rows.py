"""Gears as rows of a table: neighbours with the same cascade share a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, GearPrediction, LoadRange

Cascades = dict[str, tuple[Cascade, ...]]


@dataclass(frozen=True, slots=True)
class GearRow:
    """Gears `first` to `last`, by the numbers that `gear pin` takes, with changing cores if any.

    The prediction is that of the last gear, which has the highest load.
    """

    first: int
    gears: Sequence[Gear]
    cores: str = ""

    @property
    def last(self) -> int:
        return self.first + len(self.gears) - 1

    @property
    def numbers(self) -> str:
        """For example "3", or "3-7"."""
        return str(self.first) if len(self.gears) == 1 else f"{self.first}-{self.last}"

    @property
    def cascade(self) -> str:
        """The cascade of the only node, or of each: "a: small; b: small <0.5 > large", or "small > large, refined"."""
        return by_node(self.gears[0].cascades) + (", refined" if self.gears[0].order == "gain" else "")

    @property
    def load_range(self) -> LoadRange:
        return LoadRange(from_=self.gears[0].load_range.from_, to=self.gears[-1].load_range.to)

    @property
    def predicted(self) -> GearPrediction | None:
        return self.gears[-1].predicted

    @property
    def largest_batch(self) -> str:
        """For example "8", or "8-16" where gears differ."""
        sizes = [max((s.largest_batch_size for s in g.replicas if s.load_share > 0), default=1) for g in self.gears]
        return str(sizes[0]) if min(sizes) == max(sizes) else f"{min(sizes)}-{max(sizes)}"

    @property
    def predicted_elsewhere_qps(self) -> float | None:
        """The load of the prediction, where that is not the upper end of the range."""
        if self.predicted is None or self.predicted.load_qps == self.load_range.to:
            return None
        return self.predicted.load_qps


def by_node(cascades: Mapping[str, Sequence[Cascade]]) -> str:
    told = {node: " | ".join(map(str, of_node)) for node, of_node in cascades.items()}
    return "; ".join(told.values() if len(told) == 1 else map(": ".join, told.items()))


def gear_rows(plan: GearPlan, operator: str) -> list[GearRow]:
    """Group an operator's gears; those beyond the planned top load are apart from those below."""
    gears, top_qps = plan.pipelines[operator].gears, top_of(plan.pipelines[operator].gears)
    pooled = plan.hardware.pool_cores is not None

    def alike(numbered: tuple[int, Gear]) -> tuple[Cascades, bool, str, bool]:
        gear = numbered[1]
        beyond = top_qps is not None and gear.load_range.from_ >= top_qps
        return gear.cascades, gear.order == "gain", plan.cores_in(gear) if pooled else "", beyond

    rows = []
    for (_, _, cores, _), group in groupby(enumerate(gears), alike):
        numbers, together = zip(*group, strict=True)
        rows.append(GearRow(numbers[0], together, cores))
    return rows


def top_of(gears: Sequence[Gear]) -> float | None:
    """The top load planned for, if some gears lie beyond it."""
    last = gears[-1]
    if last.predicted is None or last.predicted.load_qps > last.load_range.from_:
        return None
    return last.predicted.load_qps
