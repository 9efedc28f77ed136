"""Gati's traffic example (section 7.3, Table 5): which models are taken at each latency objective, without queues.

An image goes through detection, then a face (46 % of images) or a vehicle (45 %) is recognised.  Learned caches of
detection hit for 80 % of images, which then take 1 / 1.7 of the time.  Quality is that all models that were asked are
right, and the answer is in time.

Figures 11 and 12 of the paper: its baseline has budgets that are given at the start, and no caches; beside it caches
and replanning.

python -m benchmarks.pipelines.traffic
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.tables import print_head
from gearshift.cascade import TimedQuality
from gearshift.pipeline import Edge, Node, When
from gearshift.planner.joint.replanning.choices import Split, budget_tables
from gearshift.planner.joint.replanning.timed_quality import Outcomes, Query, timed_quality
from gearshift.policies.replanning import best_choice

MODELS = {
    "detect": [(27.36, 0.911), (41.05, 0.929), (54.5, 0.941)],
    "face": [(17.38, 0.955), (36.75, 0.976), (58.34, 0.981), (110.32, 0.991)],
    "vehicle": [(16.14, 0.902), (23.68, 0.918), (54.12, 0.926), (111.42, 0.934)],
}
SHARES = {"face": 0.46, "vehicle": 0.45, "": 0.09}
HITS, SPEED_OF_HIT = 0.8, 1.7
SPLITS: tuple[Split, ...] = ("equal", "proportional")
SLOS_MS = (60, 80, 100, 120, 140, 160, 180, 200)
DRAWN = 20_000


def query(*, caches: bool) -> Query:
    """The graph, with what is known of run times and of qualities."""

    def outcomes(node: str, ms: float, quality: float) -> Outcomes:
        if caches and node == "detect":
            times, shares = np.array([ms / SPEED_OF_HIT, ms]), np.array([HITS, 1 - HITS])
            return Outcomes(np.ceil(times).astype(np.int64), shares, np.full(2, quality))
        return Outcomes(np.array([int(np.ceil(ms))]), np.ones(1), np.array([quality]))

    whens = {name: When(output="label", one_of=(name,)) for name in ("face", "vehicle")}
    return Query(
        nodes={name: Node(operator=name) for name in MODELS},
        edges=tuple(Edge(from_="detect", to=name, when=when) for name, when in whens.items()),
        outcomes={node: [outcomes(node, *model) for model in models] for node, models in MODELS.items()},
        branches={"detect": {frozenset({kind} - {""}): share for kind, share in SHARES.items()}},
    )


@dataclass
class Chooser:
    """The policy by its tables, as the router asks it."""

    tables: Mapping[str, tuple[TimedQuality, ...]]
    flat: dict[str, tuple[list[int], list[int], list[float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node, tables in self.tables.items():
            begin = np.cumsum([0, *(len(table.remaining_ms) for table in tables)]).tolist()
            times_ns = [ms * 1_000_000 for table in tables for ms in table.remaining_ms]
            self.flat[node] = begin, times_ns, [quality for table in tables for quality in table.quality]

    def choose(self, node: str, left_ms: float) -> int:
        begin, times_ns, quality = self.flat[node]
        waits_ns = [0] * (len(begin) - 1)
        return best_choice(0, len(waits_ns), int(left_ms * 1e6), waits_ns, 0, 0, [], 1, begin, times_ns, quality)


class Static:
    """The same models for every request: the best of all combinations that are always in time."""

    def __init__(self, slo_ms: float) -> None:
        best = {}
        for first, (ms, quality) in enumerate(MODELS["detect"]):
            then = {
                node: max(
                    (m for m, (took, _) in enumerate(MODELS[node]) if ms + took <= slo_ms),
                    key=lambda m: MODELS[node][m][1],
                    default=0,
                )
                for node in ("face", "vehicle")
            }
            known = sum(
                share * (MODELS[kind][then[kind]][1] * (ms + MODELS[kind][then[kind]][0] <= slo_ms) if kind else 1.0)
                for kind, share in SHARES.items()
            )
            best[quality * known * (ms <= slo_ms)] = {"detect": first, **then}
        self.models = best[max(best)]

    def choose(self, node: str, left_ms: float) -> int:
        return self.models[node]


class AtStart:
    """Gati's baseline: models within budgets that are given at the start, whatever time is left later."""

    def __init__(self, chooser: Chooser, split: Split, slo_ms: float) -> None:
        slowest = {
            node: max(ms for ms, _ in models) if split == "proportional" else 1.0 for node, models in MODELS.items()
        }
        self._chooser = chooser
        self._budget_ms = {
            node: slo_ms * (1.0 if node == "detect" else own / (own + slowest["detect"]))
            for node, own in slowest.items()
        }

    def choose(self, node: str, left_ms: float) -> int:
        return self._chooser.choose(node, self._budget_ms[node])


def figures(known: Query, seed: int) -> None:
    """The gains of caches and of replanning, and the models that are asked, beside the baseline."""
    asked = dict[tuple[str, int], list[Counter[str]]]()
    most = 0.0
    print(
        "\nFigure 11: quality of the baseline, with caches and replanning, gain in points; mean latency of both in ms"
    )
    print_head(f"| objective, ms | {' | '.join(SPLITS)} |")
    for slo_ms in SLOS_MS:
        cells = []
        for split in SPLITS:
            chooser = Chooser(budget_tables(known, split))
            before, before_ms, models = serve(AtStart(chooser, split, slo_ms), slo_ms, caches=False, seed=seed)
            after, after_ms, others = serve(chooser, slo_ms, caches=True, seed=seed)
            asked[split, slo_ms] = [models, others]
            if split == "equal":
                most = max(most, before_ms / after_ms)
            cells.append(
                f"{100 * before:.2f}, {100 * after:.2f}, {100 * (after - before):+.2f}; {before_ms:.1f}, {after_ms:.1f}"
            )
        print(f"| {slo_ms} | {' | '.join(cells)} |")
    print(f"mean latency falls by {most:.2f} at most by equal budgets; the paper: 1.26")
    print(
        "\nFigure 12: shares of faces and vehicles by model, from small to large, by equal budgets: baseline, with both"
    )
    print_head("| objective, ms | face | vehicle |")
    for slo_ms in SLOS_MS:
        columns = [
            ", with both ".join(shares_by_model(models, node) for models in asked["equal", slo_ms])
            for node in ("face", "vehicle")
        ]
        print(f"| {slo_ms} | {' | '.join(columns)} |")


def shares_by_model(asked: Counter[str], node: str) -> str:
    counts = np.array([asked[f"{node} {model}"] for model in range(len(MODELS[node]))])
    return " ".join(f"{100 * share:.0f}" for share in counts / counts.sum())


def serve(
    chooser: Chooser | Static | AtStart, slo_ms: float, *, caches: bool, seed: int
) -> tuple[float, float, Counter[str]]:
    """Quality in time, mean latency in ms, and how often each model was asked."""
    generator = np.random.default_rng(seed)
    kinds = generator.choice(list(SHARES), DRAWN, p=list(SHARES.values()))
    hits = generator.random(DRAWN) < (HITS if caches else 0)
    quality, latency, asked = 0.0, 0.0, Counter[str]()
    for kind, hit in zip(kinds.tolist(), hits.tolist(), strict=True):
        left_ms, right = float(slo_ms), 1.0
        for node in ("detect", kind) if kind else ("detect",):
            model = chooser.choose(node, left_ms)
            took_ms, accuracy = MODELS[node][model]
            left_ms -= took_ms / SPEED_OF_HIT if hit and node == "detect" else took_ms
            right *= accuracy
            asked[f"{node} {model}"] += 1
        quality += right if left_ms >= 0 else 0.0
        latency += slo_ms - left_ms
    return quality / DRAWN, latency / DRAWN, asked


def main() -> None:
    options = parser_of(__doc__)
    options.add_argument("--seed", type=int, default=0)
    seed = options.parse_args().seed
    columns = ["static", "equal", "equal, caches", "proportional", "proportional, caches", "tables", "tables, caches"]
    print_head(f"| objective, ms | {' | '.join(columns)} |")
    known, cached = query(caches=False), query(caches=True)
    for slo_ms in SLOS_MS:
        equal, proportional = (Chooser(budget_tables(known, split)) for split in ("equal", "proportional"))
        cells = [
            serve(Static(slo_ms), slo_ms, caches=False, seed=seed),
            serve(equal, slo_ms, caches=False, seed=seed),
            serve(equal, slo_ms, caches=True, seed=seed),
            serve(proportional, slo_ms, caches=False, seed=seed),
            serve(proportional, slo_ms, caches=True, seed=seed),
            serve(Chooser(timed_quality(known)), slo_ms, caches=False, seed=seed),
            serve(Chooser(timed_quality(cached)), slo_ms, caches=True, seed=seed),
        ]
        shown = [f"{100 * quality:.2f} %, {latency_ms:.1f} ms" for quality, latency_ms, _ in cells]
        print(f"| {slo_ms} | {' | '.join(shown)} |")
    figures(known, seed)


if __name__ == "__main__":
    main()
