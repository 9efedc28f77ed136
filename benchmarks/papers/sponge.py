"""Vertical scaling at Sponge's setting: SLO 1 s over a 4G trace, asked every second, at most 16 cores and batch 16.

python -m benchmarks.papers.sponge --data DIR [--quick] [--figure FILE.svg]

For every size of image and rate of requests the measured run times are multiplied by the largest factor for which 16
static cores violate at most 0.1 % beyond the unavoidable; a refused request is a violation.  Static, printed and
horizontal scaling have the plain queue by deadline; ours is shown with it, and as the server does.  Nothing is
drawn: the same data gives the same table on any machine.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from benchmarks.papers.scalers import PaperScaler, StaticScaler
from benchmarks.papers.sponge_figure import Line, figure
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.imported import sponge_latency
from benchmarks.shared.tables import print_head
from gearshift.clock import NS_PER_S
from gearshift.profiles.performance_model import fit_performance_model
from gearshift.simulator.compared.scalers import ExactScaler, Fa2Scaler, VpaScaler
from gearshift.simulator.compared.vertical import Scaler, Setting, VerticalRun, simulate_vertical
from gearshift.traces.network import Uplink, read_network
from gearshift.workload import Workload

SLO_S = 1.0
MOST_CORES, LARGEST_BATCH = 16, 16
SECONDS = 606
SIZES_KB, RATES_QPS = (100, 200, 500), (20, 100)
STATIC_MAY_VIOLATE, MAY_VIOLATE, SAVES, FEWER_THAN_FA2, FA2_COUNTS_FROM = 0.001, 0.003, 0.20, 15, 0.01
EFFECT_S = 0.01
ALL = Setting(MOST_CORES, LARGEST_BATCH)
MARGINS = (-0.9, -0.8, -0.7, -0.6, -0.5, -0.4, -0.3, -0.2, -0.1, 0.0, 0.05, 0.1, 0.2, 0.4)


@dataclass(frozen=True)
class Cell:
    """One size and rate: the workload, the scaled run times, and which requests nobody could serve in time."""

    name: str
    workload: Workload
    rate_qps: int
    factor: float
    table_ns: NDArray[np.int64]

    @property
    def unavoidable(self) -> NDArray[np.bool_]:
        assert self.workload.deadline_ns is not None
        return self.workload.deadline_ns - self.workload.arrivals_ns < self.table_ns[1:, 1].min()

    def run(self, scaler: Scaler, first: Setting, *, gives_way: bool = False) -> VerticalRun:
        return simulate_vertical(
            self.workload, self.table_ns.tolist(), scaler, first=first, effect_s=EFFECT_S, gives_way=gives_way
        )

    def outcome(self, scaler: Scaler, first: Setting = ALL, *, gives_way: bool = False) -> tuple[float, float]:
        """Mean cores, and the share of violations beyond the unavoidable."""
        run = self.run(scaler, first, gives_way=gives_way)
        return run.core_seconds / run.duration_s, float((run.violations & ~self.unavoidable).mean())


def scaled(seconds: NDArray[np.float64], factor: float) -> NDArray[np.int64]:
    table = np.rint(seconds * factor * NS_PER_S).astype(np.int64)
    table[0, 1:] = 1 << 61
    return table


def make_cell(data: Path, size_kb: int, rate_qps: int, seconds: NDArray[np.float64]) -> Cell:
    """The cell with the largest factor that 16 static cores stand, to 0.2 %."""
    sent_ns = np.arange(SECONDS * rate_qps, dtype=np.int64) * NS_PER_S // rate_qps
    sent = Workload(arrivals_ns=sent_ns, record=np.zeros(len(sent_ns), dtype=np.int32), duration_s=float(SECONDS))
    network = read_network(data / "traces" / "lte_bus_0001.log")
    workload = Uplink(network, 1e3 * size_kb, SLO_S).carry(sent).workload

    def cell(factor: float) -> Cell:
        return Cell(f"{size_kb} KB, {rate_qps}/s", workload, rate_qps, factor, scaled(seconds, factor))

    low, high = 0.5, 40.0
    while high / low > 1.002:
        factor = (low * high) ** 0.5
        holds = cell(factor).outcome(StaticScaler())[1] <= STATIC_MAY_VIOLATE
        low, high = (factor, high) if holds else (low, factor)
    return cell(low)


def least_cores(cell: Cell) -> float:
    """Fewer mean cores than this serve too few requests, whatever is done when: a bound on capacity alone.

    Of all ways to divide time over core counts, each at its best batch size, the one with the fewest core-seconds.
    """
    sizes = np.arange(1, LARGEST_BATCH + 1)
    capacity_qps = (sizes / cell.table_ns[1:, 1:]).max(axis=1) * NS_PER_S
    served = 1 - MAY_VIOLATE - float(cell.unavoidable.mean())
    cores = np.arange(1, MOST_CORES + 1)
    solved = linprog(cores, A_ub=[-capacity_qps], b_ub=[-served * cell.rate_qps], A_eq=[np.ones(MOST_CORES)], b_eq=[1])
    return float(solved.fun) if solved.success else float(MOST_CORES)


def fewest_static(cell: Cell) -> int:
    """The fewest cores that hold 0.3 % all the time, with a queue that gives up who holds others up."""
    cores = MOST_CORES
    while cores > 1:
        held = cell.outcome(StaticScaler(), Setting(cores - 1, LARGEST_BATCH), gives_way=True)
        if held[1] > MAY_VIOLATE:
            break
        cores -= 1
    return cores


Points = list[tuple[float, float]]


def lower_hull(points: Points) -> Points:
    """What switching between two of the points over time comes to, at best, from left to right."""
    hull: Points = []
    for point in sorted(points):
        while len(hull) >= 2 and _turns_up(hull[-2], hull[-1], point):
            hull.pop()
        if not hull or point[1] < hull[-1][1]:
            hull.append(point)
    return hull


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


def above(ours: Points, theirs: Points) -> Points:
    """Those of `theirs` at whose cores ours violates more, by more than a request in ten thousand."""
    x, y = zip(*ours, strict=True)
    return [(cores, v) for cores, v in theirs if cores >= x[0] and float(np.interp(cores, x, y)) > v + 1e-4]


def curves(cell: Cell, margins: tuple[float, ...]) -> dict[str, Points]:
    """Mean cores and violations of each scaler, by margin; ours gives up the hopeless for the others' sake."""
    ours = [ExactScaler(cell.table_ns, margin=margin, effect_s=EFFECT_S) for margin in margins]
    found = {"ours": [cell.outcome(scaler, gives_way=True) for scaler in ours]}
    for name, of_period in (("printed", False), ("printed, a period's", True)):
        scalers = [PaperScaler(cell.table_ns, slo_s=SLO_S, margin=margin, of_period=of_period) for margin in margins]
        found[name] = [cell.outcome(scaler) for scaler in scalers]
    return found


def at_least_as_good(ours: Points) -> Points:
    """Ours by rising cores, where fewer cores with fewer violations take the place of more."""
    best: Points = []
    for cores, violations in sorted(ours):
        if not best or violations < best[-1][1]:
            best.append((cores, violations))
    return best


def draw(cell: Cell, file: Path) -> None:
    """Sponge's Figure 4 anew: violations per second and cores held, over time; and what it says of violations."""
    fa2, lines = Fa2Scaler(cell.table_ns), list[Line]()
    print_head("\n| drawn | mean cores | beyond the unavoidable | seconds with a violation | most in a second |")
    for name, scaler, first in (
        ("ours", ExactScaler(cell.table_ns, effect_s=EFFECT_S), ALL),
        ("printed", PaperScaler(cell.table_ns, slo_s=SLO_S), ALL),
        ("FA2", fa2, fa2.most),
        ("static, 8 cores", StaticScaler(), Setting(8, LARGEST_BATCH)),
        ("static, 16 cores", StaticScaler(), ALL),
    ):
        run = cell.run(scaler, first, gives_way=name == "ours")
        missed = run.violations & ~cell.unavoidable
        each = np.bincount(run.workload.arrivals_ns[missed] // NS_PER_S, minlength=SECONDS)[:SECONDS]
        lines.append(Line(name, each, run.cores / [NS_PER_S, 1]))
        mean = run.core_seconds / run.duration_s
        print(f"| {name} | {mean:.2f} | {missed.mean():.2%} | {np.count_nonzero(each)} | {each.max()} |")
    title = f"{cell.name}, as Sponge's Figure 4"
    file.write_text(figure(title, lines, most_violations=cell.rate_qps, most_cores=MOST_CORES))


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="one cell and three margins, to see that it works")
    parser.add_argument("--figure", type=Path, help="draw Sponge's Figure 4 anew, of 500 KB at 20/s, as SVG")
    given = parser.parse_args()
    batch_sizes, cores, seconds = sponge_latency(data_of(given))
    model = fit_performance_model(batch_sizes, cores, seconds, model="sponge-resnet")
    base_s = model.table_ns(most_cores=MOST_CORES, largest_batch_size=LARGEST_BATCH) / NS_PER_S
    base_s[0] = 0
    margins = (0.0, 0.05, 0.1) if given.quick else MARGINS
    wanted = [(500, 20)] if given.quick else [(size, rate) for rate in RATES_QPS for size in SIZES_KB]
    cells = [make_cell(given.data, size, rate, base_s) for size, rate in wanted]
    bars: dict[str, list[bool]] = {}
    print_head(
        "| cell | factor | unavoidable | at least so many cores | fewest static | scaler | cores | saved | beyond |"
    )
    for cell in cells:
        bound, static = least_cores(cell), fewest_static(cell)
        fa2 = Fa2Scaler(cell.table_ns)
        runs = {
            "static 16": cell.outcome(StaticScaler()),
            "exact": cell.outcome(ExactScaler(cell.table_ns, effect_s=EFFECT_S), gives_way=True),
            "exact, plain queue": cell.outcome(ExactScaler(cell.table_ns, effect_s=EFFECT_S)),
            "paper": cell.outcome(PaperScaler(cell.table_ns, slo_s=SLO_S)),
            "paper, a period's": cell.outcome(PaperScaler(cell.table_ns, slo_s=SLO_S, of_period=True)),
            "fa2": cell.outcome(fa2, fa2.most),
            "vpa": cell.outcome(VpaScaler(cell.table_ns)),
        }
        head = f"{cell.name} | {cell.factor:.2f} | {cell.unavoidable.mean():.3%} | {bound:.2f} | {static}"
        for name, (held, violations) in runs.items():
            print(f"| {head} | {name} | {held:.2f} | {1 - held / MOST_CORES:.1%} | {violations:.3%} |")
            head = " | | | | "
        held, violations = runs["exact"]
        fa2_violations = runs["fa2"][1]
        bars.setdefault("violations at most 0.3 % beyond the unavoidable", []).append(violations <= MAY_VIOLATE)
        bars.setdefault("20 % fewer core-seconds than 16 static", []).append(held <= (1 - SAVES) * MOST_CORES)
        bars.setdefault("15x fewer violations than FA2 where it has 1 %", []).append(
            fa2_violations < FA2_COUNTS_FROM or fa2_violations >= FEWER_THAN_FA2 * violations
        )
    print_head("\n| cell | curve of | its points | above it: ours | above it: ours, two margins mixed |")
    for cell in cells:
        found = curves(cell, margins)
        ours = found.pop("ours")
        for name, points in found.items():
            strictly, mixed = above(at_least_as_good(ours), points), above(lower_hull(ours), points)
            bars.setdefault(f"curve nowhere above that of {name}", []).append(not strictly)
            bars.setdefault(f"curve of mixtures nowhere above that of {name}", []).append(not mixed)
            print(f"| {cell.name} | {name} | {len(points)} | {_words(strictly)} | {_words(mixed)} |")
        print("|  | ours | " + ", ".join(f"{c:.2f}: {v:.2%}" for c, v in ours) + " | | |")
    print_head(f"\n| bar | {' | '.join(cell.name for cell in cells)} |")
    for bar, met in bars.items():
        print(f"| {bar} | " + " | ".join("met" if one else "short" for one in met) + " |")
    if given.figure is not None:
        draw(next(cell for cell in cells if cell.name == "500 KB, 20/s"), given.figure)


def _words(points: Points) -> str:
    return ", ".join(f"{v:.1%} at {c:.2f} cores" for c, v in points) or "nowhere"


if __name__ == "__main__":
    main()
