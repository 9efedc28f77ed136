"""Queries of MultiModalQA's shapes, their operators configured together, as in section 5.4 of Ken.

Real are the shapes of the queries and how often each occurs, the judged answers and certainties of Llama 3B, 8B and 70B
(MT-Bench turns, in place of MultiModalQA's, which nobody recorded), and the run times of Llamas on V100.  **Synthetic**
is RoBERTa: 335 million parameters, right as often as `--roberta` says, a certainty that is as telling as the Llamas',
and the run time of BERT large.  The two operators have no joint records: they are assumed to err independently.

There are 159 recorded turns, half of them for choosing: figures have several points of noise, and a way with more to
choose from may look worse on the other half.  Work is in seconds of a device per operator of a query; waiting is not
simulated, so that nothing here is the paper's 122 times.
"""

from collections.abc import Sequence
from csv import DictReader
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.imported import DEVICE_KIND, bert_curves, mt_bench
from benchmarks.shared.machine import describe
from gearshift.cascade import Cascade
from gearshift.hardware import Device
from gearshift.planner.space.cascade_search import search_cascades, work_per_request_s
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords, Profile
from gearshift.sql.optimizer import front_of, independent
from gearshift.sql.steps import StepRecords, step_records

ROBERTA = "roberta"
OPERATORS = ("TextQ", "TableQ")
POINTS = 200
LEVELS = 5

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The operators of a kind of query, and how many of the dev set's queries are of it."""

    operators: tuple[str, ...]
    count: int


def shapes(data: Path) -> list[Shape]:
    with (data / "pipelines" / "mmqa" / "query_shapes.csv").open() as file:
        rows = list(DictReader(file))
    named = []
    for row in rows:
        words = row["shape"].replace("(", ",").replace(")", ",").split(",")
        operators = tuple(word for word in words if word in OPERATORS)
        assert len(operators) == int(row["operators"]), row
        named.append(Shape(operators=operators, count=int(row["count_in_dev"])))
    return named


def with_roberta(data: Path, accuracy: float, seed: int) -> Profile:
    """The Llamas of `mt_bench` without the 1B, and a synthetic RoBERTa."""
    llamas = mt_bench(data, models=("3b", "8b", "70b"))
    records, generator = llamas.predictions, np.random.default_rng(seed)
    samples = len(records.part)
    ease = records.quality.mean(axis=0)
    order = np.argsort(np.argsort(ease + generator.normal(0, ease.std(), samples)))  # right on what is easy, roughly
    quality = (order >= samples * (1 - accuracy)).astype(np.float64)
    certainty = np.clip(0.25 * quality + generator.random(samples) * 0.75, 0, 1)
    large = next(curve for name, curve in bert_curves(data).items() if "large" in name)
    curve = msgspec.structs.replace(large, model=ROBERTA)
    return Profile(
        operator="question",
        curves=(*llamas.curves, curve),
        predictions=PredictionRecords(
            models=(ROBERTA, *records.models),
            quality=np.vstack([quality, records.quality]),
            certainty=np.vstack([certainty, records.certainty]),
            part=records.part,
        ),
    )


def implementations(profile: Profile, device: Device) -> dict[str, list[Cascade]]:
    """What each way of configuring an operator may choose from."""
    llamas = [model for model in profile.models if model != ROBERTA]
    single = {model: Cascade(models=(model,)) for model in profile.models}
    work_s = work_per_request_s(profile, device)
    space = search_cascades(profile.predictions, work_s)
    simple = search_cascades(
        profile.predictions, work_s, allowed=lambda chain: len(chain) == 1 or (len(chain) == 2 and chain[0] == ROBERTA)
    )
    return {
        "RoBERTa alone": [single[ROBERTA]],
        "Llamas alone": [single[model] for model in llamas],
        "RoBERTa + Llamas": list(single.values()),
        "simple cascades": [simple.cascade(int(one)) for one in simple.front()],
        "all cascades": [space.cascade(int(one)) for one in space.front()],
    }


def points_of(steps: Sequence[StepRecords]) -> tuple[Floats, Floats, Floats, Floats]:
    """Accuracy and work per operator of a shape's front: on part A, then on part B."""
    picks, accuracy, work_s = front_of(steps, assume_independent=True)
    tested, tested_s = independent(steps, picks, PART_B)
    return accuracy, work_s / len(steps), tested, tested_s / len(steps)


def sampled(steps: Sequence[StepRecords], samples: int, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    """The same from configurations that were drawn uniformly."""
    generator = np.random.default_rng(seed)
    picks = np.stack([generator.integers(0, len(step.cascades), samples) for step in steps], axis=1)
    accuracy, work_s = independent(steps, picks, PART_A)
    tested, tested_s = independent(steps, picks, PART_B)
    return accuracy, work_s / len(steps), tested, tested_s / len(steps)


def front_over(of_shapes: Sequence[tuple[Floats, Floats, Floats, Floats]], weights: Floats) -> tuple[Floats, Floats]:
    """Mean accuracy and work on part B as the price of a second rises; each shape is configured by its own best."""
    tested, tested_s = [], []
    for price in [0.0, *np.geomspace(1e-4, 1e3, POINTS)]:
        best = [int(np.argmax(accuracy - price * work_s)) for accuracy, work_s, _, _ in of_shapes]
        tested.append(sum(w * shape[2][b] for w, shape, b in zip(weights, of_shapes, best, strict=True)))
        tested_s.append(sum(w * shape[3][b] for w, shape, b in zip(weights, of_shapes, best, strict=True)))
    return np.array(tested), np.array(tested_s)


def work_for(front: tuple[Floats, Floats], accuracy: float) -> float:
    """The least work of a point that is at least so accurate; infinite where there is none."""
    enough = front[0] >= accuracy
    return float(front[1][enough].min()) if enough.any() else float("inf")


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--roberta", type=float, default=0.6, help="the share of questions that RoBERTa gets right")
    parser.add_argument("--samples", type=int, default=2000, help="configurations that are drawn uniformly per shape")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = data_of(options)
    print(describe())
    device = Device(id="gpu-0", kind=DEVICE_KIND)
    named = shapes(data)
    weights = np.array([shape.count for shape in named]) / sum(shape.count for shape in named)
    profiles = {name: with_roberta(data, options.roberta, options.seed + n) for n, name in enumerate(OPERATORS)}
    fronts = {}
    ways = {name: implementations(profile, device) for name, profile in profiles.items()}
    for way in ways["TextQ"]:
        of_operator = {
            name: step_records(name, profile, device, cascades=ways[name][way]) for name, profile in profiles.items()
        }
        steps = [[of_operator[name] for name in shape.operators] for shape in named]
        fronts[way] = front_over([points_of(one) for one in steps], weights)
        if way == "all cascades":
            drawn = [sampled(one, options.samples, options.seed) for one in steps]
            fronts["all cascades, drawn uniformly"] = front_over(drawn, weights)
    ours, without = fronts["all cascades"], fronts["RoBERTa + Llamas"]
    top = min(float(ours[0].max()), float(without[0].max()))
    levels = np.linspace(float(without[0].min()), top, LEVELS + 1)[1:] - 1e-9
    told = "  ".join(f"{100 * level:.1f} %" for level in levels)
    print(f"{'':>30}  least s    best  {told}  (seconds of a device per operator, on part B)")
    for way, front in fronts.items():
        cells = "  ".join(f"{work_for(front, level):6.3f}" for level in levels)
        print(f"{way:>30}  {front[1].min():7.4f}  {100 * front[0].max():.1f} %  {cells}")
    gains = [work_for(without, level) / work_for(ours, level) for level in levels]
    print(f"all cascades take {', '.join(f'1/{gain:.2f}' for gain in gains)} of the work of models without cascades")


if __name__ == "__main__":
    main()
