"""Seconds to evaluate 50,000 candidate cascades on 16,000 samples, and to find their front."""

import numpy as np

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe, pin_to_last_core, seconds_of
from gearshift.planner.space.cascade_search import evaluate_cascade, search_cascades
from gearshift.profiles.profile import PART_A, PredictionRecords

SAMPLES = 16_000
ACCURACIES = (0.60, 0.75, 0.85, 0.90, 0.93)
WORK_S = (0.001, 0.002, 0.005, 0.010, 0.030)
QUANTILES = 72


def records() -> PredictionRecords:
    generator = np.random.default_rng(0)
    difficulty = generator.random(SAMPLES)
    return PredictionRecords(
        models=tuple(f"m{i}" for i in range(len(ACCURACIES))),
        quality=np.stack([(difficulty < a).astype(np.float64) for a in ACCURACIES]),
        certainty=np.stack([a - difficulty + generator.normal(0, 0.2, SAMPLES) for a in ACCURACIES]),
        part=np.repeat([0, 1], [SAMPLES - 2, 2]).astype(np.int8),
    )


def main() -> None:
    parser_of(__doc__).parse_args()
    pin_to_last_core()
    made = records()
    work_s = dict(zip(made.models, WORK_S, strict=True))
    space = search_cascades(made, work_s, quantiles=QUANTILES)
    times = sorted(seconds_of(lambda: search_cascades(made, work_s, quantiles=QUANTILES).front(), repeats=9))
    checked = np.random.default_rng(2).integers(0, len(space), 200)
    worst = max(
        abs(evaluate_cascade(space.cascade(int(i)), made, work_s, part=PART_A).accuracy - space.accuracy[i])
        for i in checked
    )
    print(describe())
    print(
        f"{len(space)} candidates on {SAMPLES} samples: {times[4]:.4f} s median of 9 ({times[0]:.4f}..{times[-1]:.4f})"
    )
    print(f"front: {len(space.front())} cascades; 200 candidates evaluated one by one differ by at most {worst:.1e}")


if __name__ == "__main__":
    main()
