"""Small pipelines with drawn records, and a walk through them item by item to compare with."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from gearshift.cascade import Cascade
from gearshift.pipeline import Edge, FanOut, Node, When, scopes_of
from gearshift.policies.graph import BEGIN, node_begins
from gearshift.profiles.profile import PredictionRecords
from gearshift.profiles.tuples import OUTERMOST, Items, JointRecords

Graph = tuple[dict[str, Node], list[Edge], str]
YES = When(output="label", one_of=("yes",))
SURE = When(output="certainty", at_least=0.5)
WORK_S = {"cheap": 1.0, "middle": 4.0, "dear": 16.0}


def chain(*conditions: When | None) -> Graph:
    names = [f"n{i}" for i in range(len(conditions) + 1)]
    edges = [Edge(from_=a, to=b, when=when) for (a, b), when in zip(pairwise(names), conditions, strict=True)]
    return {name: Node(operator=name) for name in names}, edges, names[-1]


def diamond() -> Graph:
    nodes = {name: Node(operator=name) for name in ("start", "left", "right", "other", "end")}
    edges = [
        Edge(from_="start", to="left", when=YES),
        Edge(from_="start", to="right", when=SURE),
        Edge(from_="left", to="end"),
        Edge(from_="right", to="end", when=YES),
        Edge(from_="other", to="end", when=YES),
    ]
    return nodes, edges, "end"


def fan_out() -> Graph:
    nodes = {
        "split": Node(operator="split"),
        "face": Node(operator="face", fan_out=FanOut(per_row="split.faces", most=9)),
        "age": Node(operator="age"),
        "scene": Node(operator="scene"),
        "join": Node(operator="join", fan_in=True),
        "say": Node(operator="say"),
    }
    edges = [
        Edge(from_="split", to="face", when=YES),
        Edge(from_="face", to="age", when=YES),
        Edge(from_="age", to="join", when=SURE),
        Edge(from_="split", to="scene", when=SURE),
        Edge(from_="scene", to="join", when=YES),
        Edge(from_="join", to="say"),
    ]
    return nodes, edges, "say"


def nested() -> Graph:
    nodes = {
        "page": Node(operator="page", fan_out=FanOut(per_row="pages", most=9)),
        "line": Node(operator="line", fan_out=FanOut(per_row="page.lines", most=9)),
        "word": Node(operator="word"),
        "text": Node(operator="text", fan_in=True),
        "all": Node(operator="all", fan_in=True),
    }
    edges = [
        Edge(from_="page", to="line", when=YES),
        Edge(from_="line", to="word", when=SURE),
        Edge(from_="word", to="text"),
        Edge(from_="text", to="all"),
    ]
    return nodes, edges, "all"


GRAPHS = {
    "a chain": chain(None, None),
    "a filter": chain(YES, YES),
    "a diamond": diamond(),
    "a fan-out": fan_out(),
    "nested fan-outs": nested(),
}


def drawn_predictions(generator: np.random.Generator, samples: int = 40) -> PredictionRecords:
    shape = (3, samples)
    quality = generator.choice([0.0, 1.0, 1.0, 0.5], shape)
    return PredictionRecords(
        models=("cheap", "middle", "dear"),
        quality=quality,
        certainty=generator.uniform(0, 1, shape),
        part=(np.arange(samples) % 2).astype(np.int8),
        label=generator.choice(["yes", "no"], samples),
        prediction=generator.choice(["yes", "no"], shape),
    )


def drawn_records(graph: Graph, tuples: int, generator: np.random.Generator) -> JointRecords:
    """Joint records whose fan-outs have from no to three rows."""
    nodes, edges, _ = graph
    number = {name: i for i, name in enumerate(nodes)}
    made: dict[str, list[tuple[int, int]]] = {}
    rows: list[tuple[int, int, int, int]] = []
    for name, scope in scopes_of(nodes, edges).items():
        outer = scope.counted_in if nodes[name].fan_out else scope.opener
        slots = made[outer] if outer else [(t, OUTERMOST) for t in range(tuples)]
        made[name] = []
        for of_tuple, around in slots:
            for _ in range(int(generator.integers(0, 4)) if nodes[name].fan_out else 1):
                made[name].append((of_tuple, len(rows)))
                rows.append((of_tuple, number[name], int(generator.integers(40)), around))
    shuffled = generator.permutation(len(rows))
    place = np.argsort(shuffled)
    columns = np.array(rows)[shuffled].T
    columns[3] = np.where(columns[3] == OUTERMOST, OUTERMOST, place[columns[3]])
    part = (np.arange(tuples) % 2).astype(np.int8)
    return Items(*columns).joint_records(nodes, edges, names=[str(t) for t in range(tuples)], part=part)


def drawn_cascades(generator: np.random.Generator, count: int) -> list[Cascade]:
    chains = [("cheap",), ("middle",), ("dear",), ("cheap", "dear"), ("cheap", "middle", "dear"), ("middle", "dear")]
    return [
        Cascade(models=models, thresholds=tuple(generator.uniform(0, 1, len(models) - 1).round(2).tolist()))
        for models in (chains[int(generator.integers(len(chains)))] for _ in range(count))
    ]


def walked(
    graph: Graph,
    joint: JointRecords,
    of_tuple: int,
    predictions: Mapping[str, PredictionRecords],
    cascades: Mapping[str, Cascade],
    positive: When | None = None,
) -> tuple[float, float, bool]:
    """Quality, work and result of one tuple, item by item, by the policy that the router asks."""
    nodes, edges, output = graph
    scopes = scopes_of(nodes, edges)
    begin, end = joint.begin[of_tuple : of_tuple + 2].tolist()
    items = range(end - begin)
    node_of = [joint.nodes[joint.node[begin + i]] for i in items]
    parent = joint.parent[begin:end].tolist()
    answers: dict[int, tuple[float, float, str, float]] = {}
    started: set[tuple[str, int]] = set()

    def within(item: int, opener: str) -> int:
        """The fan-out item of `opener` around an item, or the request row."""
        while opener and node_of[item] != opener:
            item = parent[item]
        return item if opener else OUTERMOST

    for name in scopes:
        leading = [edge for edge in edges if edge.to == name]
        for around in _slots_of(scopes[name].counted_in, node_of):
            open_or_live = [not leading]
            for edge in leading:
                outer = scopes[edge.from_]
                if outer.opener != scopes[name].counted_in:
                    open_or_live.append((outer.opener, around) in started)
                    continue
                sources = [i for i in items if node_of[i] == edge.from_ and within(i, outer.opener) == around]
                open_or_live.append(any(i in answers and _met(edge.when, answers[i]) for i in sources))
            if node_begins(0, sum(open_or_live), nodes[name].join == "first", False) != BEGIN:
                continue
            started.add((name, around))
            own = scopes[name].opener if not nodes[name].fan_out else scopes[name].counted_in
            for i in items:
                enclosing = parent[i] if own else OUTERMOST
                if node_of[i] == name and enclosing == around:
                    answers[i] = _answer(predictions[name], cascades[name], int(joint.row[begin + i]))
    last = next(i for i in items if node_of[i] == output)
    result = last in answers and positive is not None and _met(positive, answers[last])
    quality = float(np.prod([answer[0] for answer in answers.values()]))
    return quality, sum(answer[1] for answer in answers.values()), result


def _slots_of(opener: str, node_of: Sequence[str]) -> list[int]:
    return [i for i, name in enumerate(node_of) if name == opener] if opener else [OUTERMOST]


def _met(when: When | None, answer: tuple[float, float, str, float]) -> bool:
    if when is None:
        return True
    return answer[2] in when.one_of if when.one_of is not None else answer[3] >= (when.at_least or 0)


def _answer(records: PredictionRecords, cascade: Cascade, sample: int) -> tuple[float, float, str, float]:
    work = 0.0
    for stage, model in enumerate(cascade.models):
        row = records.models.index(model)
        work += WORK_S[model]
        certainty = float(records.certainty[row, sample])
        if stage == len(cascade.thresholds) or certainty >= cascade.thresholds[stage]:
            break
    assert records.prediction is not None
    return float(records.quality[row, sample]), work, str(records.prediction[row, sample]), certainty
