"""Certificates of composed queries: how often they break, and how many calls of the dear model they save.

Eight queries of two classes of PASCAL VOC, as three services tagged its images. In each draw, rows with the dear
model's answers are drawn with replacement; thresholds are chosen on half of them and tested on the other half, with
confidence 0.95. What was promised is then looked up on all images, so no estimate is involved. Beside it, per-operator
certificates that share the allowed error. Calls are those of the dear model for 100 tuples, labels aside.

`--part peers` takes LOTUS and BARGAIN on the same answers, which `--peers DIR --install` installs: rows are drawn
without replacement, and the calls for labels count, as theirs do.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.pipelines.filters import Drawn, Kind, Query, drawn, pascal_queries, proxy_queries
from benchmarks.pipelines.peers import PACKAGES, Asked, Outcome, install, peer_outcomes
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_table
from gearshift.planner.joint.certified import Promise, certify
from gearshift.planner.joint.composed import ComposedQuery
from gearshift.planner.joint.front import joint_front
from gearshift.planner.joint.replay import ACCURACY, Agreement, Precision, Recall, TestedMeasure, Together, replay

PAIRS: tuple[tuple[str, str, Kind], ...] = (
    ("person", "motorbike", "and"),
    ("person", "bicycle", "and"),
    ("person", "dog", "and"),
    ("chair", "diningtable", "and"),
    ("person", "motorbike", "or"),
    ("person", "bicycle", "or"),
    ("cat", "dog", "or"),
    ("chair", "diningtable", "or"),
)
AGREEMENT, BOTH = "agreement", "recall and precision"
CONFIDENCE = 0.95
LABELS = 4000
DEAR_MODELS = ("microsoft", "labels")
LEVELS = (0.95, 0.98)
LEVEL_OF_BOTH = 0.9
SHARE_LABELLED = 0.4
MOST_CALLS, MOST_BROKEN = 30.0, 0.05


def promises(kind: str, made: Drawn, query: ComposedQuery, level: float) -> list[Promise]:
    truth = made.reference(query)
    measures: dict[str, TestedMeasure] = {"recall": Recall(truth), "precision": Precision(truth)}
    if kind == AGREEMENT:
        measures = {"agreement": Agreement(truth)}
    return [Promise(name, measure, level) for name, measure in measures.items()]


def jointly(kind: str, made: Drawn, level: float) -> tuple[int, ...] | None:
    """The cascades of the cheapest tuple that is certified."""
    on_a, on_b = made.on_a, made.on_b
    on_part_a = promises(kind, made, on_a, level)
    measure = Together([each.measure for each in on_part_a], [level] * len(on_part_a))
    front = joint_front(on_a, made.candidates(on_a), measure)
    found = certify(on_b, made.candidates(on_b), front, promises(kind, made, on_b, level), CONFIDENCE)
    return None if found.place is None else tuple(front.chosen[found.place].tolist())


def split(kind: str, made: Drawn, level: float) -> tuple[int, ...] | None:
    """Each operator certified for itself, with its part of the error that is allowed, and of the doubt."""
    assert kind == AGREEMENT
    n = len(made.query.filters)
    places = []
    for each in made.query.filters:
        alone = Drawn(
            Query((each,)),
            made.labelled,
            {each.name: made.records[each.name]},
            made.work,
            {each.name: made.cascades[each.name]},
        )
        on_a, on_b = alone.on_a, alone.on_b
        front = joint_front(on_a, alone.candidates(on_a), ACCURACY)
        promise = Promise("agreement", ACCURACY, 1 - (1 - level) / n)
        found = certify(on_b, alone.candidates(on_b), front, [promise], 1 - (1 - CONFIDENCE) / n)
        if found.place is None:
            return None
        places.append(int(front.chosen[found.place, 0]))
    return tuple(places)


def outcome(kind: str, made: Drawn, level: float, places: Sequence[int] | None, *, labels_count: bool) -> Outcome:
    """Look the promise up on all rows."""
    query = made.over(np.arange(made.query.rows))
    chosen = made.dear_only(query) if places is None else made.chosen(query, places)
    replayed = replay(query, chosen)
    calls = np.floor(replayed.work_s[0] + 0.5)
    if labels_count:  # the rows whose answers are known keep those
        known = np.unique(made.labelled)
        calls[known] = len(made.query.filters)
        replayed.positive[0][known] = made.reference(query)[known]
    broken = any(
        bool(each.measure.trials(replayed).mean(dtype=np.float64) < level - 1e-9)
        for each in promises(kind, made, query, level)
        if len(each.measure.trials(replayed))
    )
    return Outcome(100 * float(calls.mean()), broken, places is not None)


Way = Callable[[str, Drawn, float], tuple[int, ...] | None]


def one_draw(
    query: Query, seed: int, *, kind: str, ways: Sequence[Way], levels: Sequence[float], labels: int, replace: bool
) -> list[Outcome]:
    """The outcome of each way at each level."""
    made = drawn(query, labels, seed, replace=replace)
    return [
        outcome(kind, made, level, way(kind, made, level), labels_count=not replace) for level in levels for way in ways
    ]


def outcomes(query: Query, draws: int, workers: int, work: Callable[..., list[Outcome]]) -> list[list[Outcome]]:
    """For each level and way, the outcome of each draw."""
    with ProcessPoolExecutor(workers) as pool:
        each = list(pool.map(partial(work, query), range(draws), chunksize=max(1, draws // (4 * workers))))
    return [list(of_way) for of_way in zip(*each, strict=True)]


def calls_of(found: Iterable[Outcome]) -> float:
    return float(np.mean([each.calls for each in found]))


def broken_of(found: Iterable[Outcome]) -> float:
    return float(np.mean([each.broken for each in found]))


def row(of_queries: Sequence[Sequence[Outcome]]) -> tuple[str, ...]:
    """Calls, the least and the most by query; how often it broke, at most by query; how often one passed."""
    calls = [calls_of(each) for each in of_queries]
    broken = [broken_of(each) for each in of_queries]
    passed = np.mean([one.passed for each in of_queries for one in each])
    return (
        f"{np.mean(calls):.1f} ({min(calls):.1f} to {max(calls):.1f})",
        f"{np.mean(broken):.1%} ({max(broken):.1%})",
        f"{passed:.0%}",
    )


HEADER_OF_ONE = ("dear calls for 100 tuples", "broken", "certified")
HEADER = ("dear calls for 100 tuples (by query)", "broken (most, by query)", "certified")


def agreement(options: argparse.Namespace, data: Path, bars: Bars) -> None:
    """Agreement with the dear-only query, jointly and by splitting the error."""
    table = []
    for dear in options.dear or DEAR_MODELS:
        queries = pascal_queries(data, dear, PAIRS[:2] + PAIRS[-2:] if options.quick else PAIRS)
        work = partial(
            one_draw, kind=AGREEMENT, ways=(jointly, split), levels=LEVELS, labels=options.labels, replace=True
        )
        found = [outcomes(query, options.draws, options.workers, work) for query in queries]
        alone = [dear_calls(query) for query in queries]
        table.append((dear, "", "dear only", f"{np.mean(alone):.1f} ({min(alone):.1f} to {max(alone):.1f})", "", ""))
        for i, (level, way) in enumerate((level, way) for level in LEVELS for way in ("joint", "split")):
            of_queries = [each[i] for each in found]
            table.append((dear, f"{level:g}", way, *row(of_queries)))
            if way == "joint":
                everyone = [one for each in of_queries for one in each]
                bars.at_most(f"{dear}, agreement {level:g}: broken", broken_of(everyone), MOST_BROKEN)
                if level == LEVELS[0]:
                    bars.at_most(f"{dear}, agreement {level:g}: dear calls", calls_of(everyone), MOST_CALLS)
    print_table(("dear model", "agreement", "certificate", *HEADER), table)


def dear_calls(query: Query) -> float:
    """Calls of the dear-only query for 100 tuples."""
    first = query.filters[0].dear
    goes_on = first if query.kind == "and" else ~first
    return 100 * (1 + float(goes_on.mean())) if len(query.filters) > 1 else 100.0


def recall_and_precision(options: argparse.Namespace, data: Path, bars: Bars) -> None:
    table = []
    for query in pascal_queries(data, "labels", [pair for pair in PAIRS if pair[2] == "and"]):
        work = partial(
            one_draw, kind=BOTH, ways=(jointly,), levels=(LEVEL_OF_BOTH,), labels=options.labels, replace=True
        )
        (found,) = outcomes(query, options.draws, options.workers, work)
        table.append((query.name, int(query.dear_results.sum()), f"{dear_calls(query):.1f}", *of_one(found)))
        bars.at_most(f"{query.name}, recall and precision {LEVEL_OF_BOTH:g}: broken", broken_of(found), MOST_BROKEN)
    print_table(("query", f"positives of {query.rows}", "dear only", *HEADER_OF_ONE), table)


def peers(options: argparse.Namespace, data: Path, bars: Bars) -> None:
    """Ours, LOTUS and BARGAIN on the same rows, labels counted."""
    asked = [
        Asked(query, kind, level)
        for query in [*proxy_queries(data), *pascal_queries(data, "microsoft", PAIRS)][: 2 if options.quick else None]
        for kind, level in ((AGREEMENT, LEVELS[0]), (BOTH, LEVEL_OF_BOTH))
        if kind == AGREEMENT or query.kind == "and"
    ]
    theirs = {
        peer: peer_outcomes(options.peers, peer, asked, 1 - CONFIDENCE, options.peer_draws or options.draws)
        for peer in PACKAGES
    }
    table = []
    for i, each in enumerate(asked):
        labels = min(LABELS, int(SHARE_LABELLED * each.query.rows))
        work = partial(one_draw, kind=each.kind, ways=(jointly,), levels=(each.level,), labels=labels, replace=False)
        (ours,) = outcomes(each.query, options.draws, options.workers, work)
        promise = f"{each.kind} {each.level:g}"
        bars.at_most(f"{each.query.name}, {promise}: broken", broken_of(ours), MOST_BROKEN)
        for name, found in {"ours": ours, **{peer: of_each[i] for peer, of_each in theirs.items()}}.items():
            if found:
                table.append((each.query.name, each.query.rows, promise, name, *of_one(found)))
    print_table(("query", "rows", "promise", "by", *HEADER_OF_ONE), table)


def of_one(found: Sequence[Outcome]) -> tuple[str, ...]:
    passed = np.mean([one.passed for one in found])
    return f"{calls_of(found):.1f}", f"{broken_of(found):.1%} of {len(found)}", f"{passed:.0%}"


PARTS = {"agreement": agreement, "recall": recall_and_precision, "peers": peers}


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="a few draws of a few queries")
    parser.add_argument("--part", choices=PARTS, action="append", help="which tables [default: those without peers]")
    parser.add_argument("--draws", type=int, help="draws of each query [default: 200, with --quick 4]")
    parser.add_argument("--labels", type=int, default=LABELS, help="rows with the dear model's answers, in both parts")
    parser.add_argument("--dear", choices=DEAR_MODELS, action="append", help="the dear model [default: each]")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--peers", type=Path, default=Path("peers"), help="the folder of the peers' environments")
    parser.add_argument("--peer-draws", type=int, help="draws of the peers [default: as many]")
    parser.add_argument("--install", action="store_true", help="install the peers there first")
    options = parser.parse_args()
    data = data_of(options)
    options.draws = options.draws or (4 if options.quick else 200)
    if options.install:
        install(options.peers)
    print(describe())
    bars = Bars()
    for part in options.part or ("agreement", "recall"):
        PARTS[part](options, data, bars)
    print(bars)


if __name__ == "__main__":
    main()
