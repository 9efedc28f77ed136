"""Filters over recorded answers: operators that say yes or no of each row, alone or two in a query.

An operator's models are cheap ones and a dear one, whose answers count as right. The certainty of a
cheap model is that of its score: the share of rows of part A with such a score that the dear model
calls positive tells how likely it is right.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.pipeline import Edge, Node, When
from gearshift.planner.joint.composed import Answers, ComposedQuery, answers, composed_query
from gearshift.planner.joint.replay import results_of
from gearshift.planner.space.cascade_search import search_cascades
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords
from gearshift.profiles.tuples import JointRecords

Kind = Literal["and", "or"]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

DEAR = "dear"
CHEAP_CALL = 1e-6
"""The work of a cheap call, where that of a dear call is 1: work is then the number of dear calls."""
MOST_BINS, LEAST_IN_BIN = 64, 20
MOST_CASCADES = 40
WORDS = {True: "yes", False: "no"}
SERVICES = ("google", "microsoft", "everypixel")


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """The scores of cheap models (rows,), 0 where they name nothing, and the dear model's answers (rows,)."""

    name: str
    scores: Mapping[str, NDArray[np.float64]]
    dear: Bools


@dataclass(frozen=True, slots=True)
class Query:
    """One filter, or two: rows that both pass, or that one does. The second runs where it matters."""

    filters: tuple[Filter, ...]
    kind: Kind = "and"

    @property
    def name(self) -> str:
        return f" {self.kind} ".join(each.name for each in self.filters)

    @property
    def rows(self) -> int:
        return len(self.filters[0].dear)

    @property
    def dear_results(self) -> Bools:
        joined = np.logical_and if self.kind == "and" else np.logical_or
        return np.asarray(joined.reduce([each.dear for each in self.filters]))


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A query whose rows `labelled` (n,), drawn at random, have the dear model's answers.

    The first half of them is part A, the second part B.
    """

    query: Query
    labelled: Ints
    records: dict[str, PredictionRecords]
    work: dict[str, float]
    cascades: dict[str, list[Cascade]]

    def over(self, rows: Ints) -> ComposedQuery:
        """The query over these rows (n,), each a tuple."""
        names = tuple(self.records)
        n, width = len(rows), len(names)
        joint = JointRecords(
            nodes=names,
            names=tuple(map(str, range(n))),
            begin=np.arange(0, width * n + 1, width),
            node=np.tile(np.arange(width, dtype=np.int32), n),
            row=np.repeat(rows, width).astype(np.int32),
            parent=np.full(width * n, -1, dtype=np.int32),
            part=(np.arange(n) % 2).astype(np.int8),
        )
        goes_on = When(output="label", one_of=(WORDS[self.query.kind == "and"],))
        edges = [Edge(from_=a, to=b, when=goes_on) for a, b in itertools.pairwise(names)]
        nodes = {name: Node(operator=name) for name in names}
        negated = self.query.kind == "or"
        return composed_query(nodes, edges, names[-1], joint, self.records, positive=goes_on, negated=negated)

    @property
    def on_a(self) -> ComposedQuery:
        return self.over(self.labelled[: len(self.labelled) // 2])

    @property
    def on_b(self) -> ComposedQuery:
        return self.over(self.labelled[len(self.labelled) // 2 :])

    def candidates(self, query: ComposedQuery) -> dict[str, Answers]:
        return {name: answers(query, name, self.cascades[name], self.work) for name in self.records}

    def chosen(self, query: ComposedQuery, places: Sequence[int]) -> dict[str, Answers]:
        """The answers of one cascade for each filter, by its place."""
        return {
            name: answers(query, name, [self.cascades[name][place]], self.work)
            for name, place in zip(self.records, places, strict=True)
        }

    def dear_only(self, query: ComposedQuery) -> dict[str, Answers]:
        only = {name: [Cascade(models=(f"{name}:{DEAR}",))] for name in self.records}
        return {name: answers(query, name, only[name], self.work) for name in self.records}

    def reference(self, query: ComposedQuery) -> Bools:
        return results_of(query, self.dear_only(query))


def drawn(query: Query, labels: int, seed: int, *, replace: bool) -> Drawn:
    """Draw `labels` rows, and calibrate certainties and find each filter's cascades on part A."""
    labelled = np.random.default_rng([seed, 41]).choice(query.rows, labels, replace=replace)
    on_a = labelled[: labels // 2]
    records = {each.name: _records(each, on_a) for each in query.filters}
    work = {m: 1.0 if m.endswith(f":{DEAR}") else CHEAP_CALL for each in records.values() for m in each.models}
    cascades = {}
    for name, each in records.items():
        space = search_cascades(each, {model: work[model] for model in each.models})
        front = space.front()
        kept = front[np.unique(np.linspace(0, len(front) - 1, MOST_CASCADES).astype(np.int64))]
        cascades[name] = [space.cascade(int(i)) for i in kept]
        dear = Cascade(models=(f"{name}:{DEAR}",))
        cascades[name] += [] if dear in cascades[name] else [dear]
    return Drawn(query, labelled, records, work, cascades)


def _records(each: Filter, on_a: Ints) -> PredictionRecords:
    likely = [_calibrated(score, each.dear, on_a) for score in each.scores.values()]
    says = np.stack([*(p >= 0.5 for p in likely), each.dear])
    part = np.full(len(each.dear), PART_B, dtype=np.int8)
    part[on_a] = PART_A
    return PredictionRecords(
        models=tuple(f"{each.name}:{model}" for model in (*each.scores, DEAR)),
        quality=(says == each.dear).astype(np.float64),
        certainty=np.stack([*(np.maximum(p, 1 - p) for p in likely), np.ones(len(each.dear))]),
        part=part,
        prediction=np.where(says, WORDS[True], WORDS[False]),
    )


def _calibrated(score: NDArray[np.float64], dear: Bools, on_a: Ints) -> NDArray[np.float64]:
    """The share of part A's rows (rows,) with a score like each row's that are positive.

    Scores are cut at quantiles, apart from those of rows without a score; few rows are drawn
    towards the share of all.
    """
    known = score[on_a]
    above = known[known > 0]
    bins = min(max(len(above) // LEAST_IN_BIN, 1), MOST_BINS)
    cuts = np.unique(np.quantile(above, np.linspace(0, 1, bins + 1)[:-1])) if len(above) else np.array([0.5])
    which = np.where(score > 0, np.searchsorted(cuts, score, side="right").clip(1), 0)
    size = len(cuts) + 1
    positive = np.bincount(which[on_a], weights=dear[on_a], minlength=size) + dear[on_a].mean()
    return np.asarray((positive / (np.bincount(which[on_a], minlength=size) + 1))[which])


def pascal_queries(data: Path, dear: str, pairs: Sequence[tuple[str, str, Kind]]) -> list[Query]:
    """Queries of two classes of PASCAL VOC; `dear` is a service, or "labels": a model that is always right."""
    with np.load(data / "pipelines" / "pascal_tags.npz") as file:
        score, label = file["score"].astype(np.float64), file["label"]
        column = {str(name): i for i, name in enumerate(file["classes"])}
    cheap = ("everypixel", "microsoft") if dear == "labels" else ("everypixel",)

    def one(name: str) -> Filter:
        of_class = {service: score[SERVICES.index(service), :, column[name]] for service in SERVICES}
        says = label[:, column[name]] if dear == "labels" else of_class[dear] > 0
        return Filter(name, {service: of_class[service] for service in cheap}, says)

    return [Query((one(a), one(b)), kind) for a, b, kind in pairs]


def proxy_queries(data: Path) -> list[Query]:
    """Each set of proxy scores and labels as a query of one filter."""
    found = []
    for file in ("bargain/court_opinion", "bargain/reviews", "supg/onto", "supg/tacred"):
        lines = (data / "pipelines" / f"{file}.csv").read_text().splitlines()[1:]
        cells = [line.split(",") for line in lines]
        says = np.array([cell[1].strip().lower() in ("1", "1.0", "true") for cell in cells])
        score = np.array([float(cell[2]) for cell in cells])
        found.append(Query((Filter(file.rpartition("/")[2], {"proxy": score}, says),)))
    return found
