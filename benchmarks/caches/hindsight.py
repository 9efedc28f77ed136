"""What learned caches would gain if they knew the samples: with all classes, and on class-local streams.

In hindsight: priors, thresholds and choice are made from the very samples that are then scored, window by window of the
streams of `streams.py`, as no adaptation can.  By an oracle: each predictor hits exactly where it agrees with
the model, so that all answers agree.  Both are the fastest choices that a search finds, no bounds, and the first may
answer as much unlike the model as is allowed, so either may be the faster one.  Latency is by the measured times of
segments and lookups, in line; the last column has lookups free.

    python -m benchmarks.caches.hindsight [--data DIR --network resnet56 | --digits] [--quick]

Two minutes for digits; nine for resnet56 with 56 predictors, after `cifar.py` with the same `--work`, by itself
the time of the exploration more.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from benchmarks.caches.ablations import logits_of, some_of
from benchmarks.caches.streams import EXPONENTS
from benchmarks.caches.tasks import options_of, task_of
from benchmarks.shared.class_local_streams import class_local_stream, halves
from benchmarks.shared.machine import describe
from gearshift.caches.adapting.class_mix import mix_of
from gearshift.caches.adapting.retrain import LEVELS
from gearshift.caches.building import compose
from gearshift.caches.building.choosing import choices_by_price, judged_on, problem_of
from gearshift.caches.building.evaluation import measure_in_line
from gearshift.caches.building.problem import Problem, joint_outcome, wrong_of
from gearshift.caches.network.train import Explored, Training, threshold_by_level

TARGETS = (0.97, 0.99)
SAMPLES, WINDOW = 5400, 900
STRICT = tuple(sorted({*LEVELS, *Training().levels}))


def in_hindsight(
    problem: Problem, explored: Sequence[Explored], said: torch.Tensor, best: np.ndarray, prior: np.ndarray
) -> tuple[Problem, Problem]:
    """Every cache at every level that these samples themselves show, and each hitting where it is right."""
    right = np.zeros((len(explored), len(best)), dtype=bool)
    offers: list[tuple[int, float, np.ndarray]] = []
    for i, one in enumerate(explored):
        with torch.inference_mode():
            probabilities, sure = one.trained.cache.told(said[i] + torch.from_numpy(prior).float())
        right[i] = probabilities.argmax(dim=1).numpy() == best
        found = threshold_by_level(sure.numpy(), right[i], STRICT, np.ones(len(best)))
        offers += [(i, level, sure.numpy() >= threshold) for level, threshold in found.items()]
    every = np.arange(len(explored))
    origins = np.array([i for i, _, _ in offers], dtype=int)
    hits = np.array([hit for _, _, hit in offers], dtype=bool).reshape(-1, len(best))
    known = _of(problem, origins, hits, right[origins])
    return (
        replace(known, level=np.array([level for _, level, _ in offers])),
        _of(problem, every, right, np.ones_like(right)),
    )


def _of(problem: Problem, rows: np.ndarray, hits: np.ndarray, right: np.ndarray) -> Problem:
    """Some of the caches, some of them more than once, and which samples each hits (rows, n)."""
    return replace(judged_on(some_of(problem, rows), hits, right), level=None)


def fastest(problem: Problem) -> float:
    """The least mean seconds found among choices that keep the target on the problem's samples."""
    kept = [found for _, found in choices_by_price(problem) if wrong_of(problem, found) <= problem.most_wrong]
    return min((joint_outcome(problem, one).latency_s for one in kept), default=problem.base_s)


def with_oracle(problem: Problem) -> float:
    """The least mean seconds found where every hit is right."""
    found = compose.joint(problem, most_nodes=2000)
    return joint_outcome(problem, found.chosen).latency_s


def main() -> int:
    options = options_of(__doc__).parse_args()
    task = task_of(options)
    torch.set_num_threads(1)
    print(describe(), f"PyTorch {torch.__version__}, one thread", sep=", ")
    network, (inputs, labels), (unseen, of_unseen) = task.network("large"), task.images("build"), task.images("test")
    made = task.explored(network, (inputs, labels), task.caches_folder("large"))
    seconds = measure_in_line(made.chain, made.explored, inputs[made.split.check][:64])
    _, offered, origins = problem_of(made.chain, made.explored, *seconds, how=Training(), target=TARGETS[0])
    one_each = np.unique(origins, return_index=True)[1]
    problem = _of(offered, one_each, offered.hits[one_each], offered.right[one_each])
    said, best = logits_of(made.chain, made.explored, unseen)
    built = mix_of(made.answers.best, said.shape[2])
    rows = halves(of_unseen)[1]
    streams = {"all classes": [np.arange(len(unseen))]}
    for exponent in EXPONENTS:
        drawn = class_local_stream(of_unseen[rows], SAMPLES, exponent=exponent, window=WINDOW, seed=0).rows
        streams[f"exponent {exponent:g}"] = np.split(rows[drawn], range(WINDOW, SAMPLES, WINDOW))
    print(
        f"\n\n{task.name}: {len(made.explored)} predictors after {len(made.chain) - 1} blocks; "
        f"the model takes {1e3 * problem.base_s:.3f} ms; gains of whole streams\n\n"
        f"| stream | {' | '.join(f'hindsight, {target:.0%}' for target in TARGETS)} | oracle | oracle, lookups free |\n"
        f"|{'---|' * (3 + len(TARGETS))}"
    )
    for name, windows in streams.items():
        took: list[list[float]] = []
        for window in windows:
            prior = np.log(mix_of(best[window], said.shape[2]) / built) if len(windows) > 1 else np.zeros(said.shape[2])
            known, oracle = in_hindsight(problem, made.explored, said[:, window], best[window], prior)
            free = replace(oracle, lookup_s=np.zeros(len(oracle)))
            in_turn = [fastest(replace(known, target=target)) for target in TARGETS]
            took.append([*in_turn, with_oracle(oracle), with_oracle(free)])
        gains = problem.base_s / np.mean(took, axis=0)
        print(f"| {name} | {' | '.join(f'{gain:.2f}' for gain in gains)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
