"""Whether learned caches keep the agreement that was asked for on new samples: builds from few digits, over seeds.

Each build takes other 600 images for predictors, selectors and the choice; agreement is counted on those left, and
whether it is on target among builds with caches, as those without always are.  There are the choice by price (`build`)
and one without a look at other samples.

    python -m benchmarks.caches.promise [--builds 24] [--quick]

About five minutes on one core.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from examples.learned_caches import networks as digit_networks
from gearshift import caches
from gearshift.caches.building.choosing import choose, problem_of
from gearshift.caches.building.compose import exact, joint
from gearshift.caches.building.evaluation import measure_in_line
from gearshift.caches.building.exploration import explore_module
from gearshift.caches.building.problem import Problem, joint_outcome
from gearshift.caches.network.collect import as_tensor

KNOWN, BUILT = 500, 600
TARGETS = (0.90, 0.95)
HELD = 0.9
SAME = 1e-9
RULES: dict[str, Callable[[Problem, int], tuple[int, ...]]] = {
    "price": lambda problem, seed: choose(problem, None, seed).variants,
    "unchecked": lambda problem, seed: joint(problem, [exact(problem).chosen], most_nodes=200).chosen,
}


def cases_of(builds: int, epochs: int) -> list[tuple[Problem, Problem]]:
    """Per build what its choice is made from, and the same variants on new samples."""
    images, labels = digit_networks.digits()
    torch.manual_seed(0)
    network = digit_networks.Network(blocks=6, width=4)
    network = digit_networks.trained(network, images[:KNOWN], labels[:KNOWN], epochs=3)
    cases, seconds = [], None
    for seed in range(builds):
        order = np.random.default_rng([seed, 99]).permutation(np.arange(KNOWN, len(images)))
        rows, new = order[:BUILT], order[BUILT:]
        how = caches.Training(epochs=epochs)
        made = explore_module(
            network, images[rows], labels[rows], variants=("FC(16)", "Pool(32,16)"), training=how, seed=seed
        )
        if seconds is None:  # the same for all, so that seeds differ in samples alone
            seconds = measure_in_line(made.chain, made.explored, images[rows])
        _, problem, _ = problem_of(made.chain, made.explored, *seconds, how=how, target=0.9)
        cases.append((problem, on_new(made, problem, images[new])))
        print(f"\rbuilt {seed + 1} of {builds}", end="", flush=True)
    print()
    return cases


def on_new(made, problem: Problem, images: np.ndarray) -> Problem:
    """What every variant at every level does on `images`."""
    hits, right = [], []
    with torch.inference_mode():
        hidden = list(made.chain.hidden(as_tensor(images)))
        for one in made.explored:
            probabilities = torch.softmax(one.trained.cache.predicted(hidden[one.layer]), dim=1)
            sure = one.trained.cache.judged(probabilities).numpy()
            agrees = (probabilities.argmax(dim=1) == hidden[-1].argmax(dim=1)).numpy()
            for threshold in one.trained.thresholds or (np.inf,):
                hits.append(sure >= np.float32(threshold))
                right.append(agrees)
    return replace(problem, hits=np.array(hits), right=np.array(right))


def held_of(agreement: np.ndarray, chosen: list[tuple[int, ...]], target: float) -> float:
    """The share of builds with caches that agree as much as `target`; NaN where none has any."""
    kept = [one >= target - SAME for one, choice in zip(agreement, chosen, strict=True) if choice]
    return float(np.mean(kept)) if kept else np.nan


def main() -> int:
    parser = parser_of(__doc__, quick="small, to show only that it works")
    parser.add_argument("--builds", type=int, default=24)
    options = parser.parse_args()
    print(describe())
    torch.set_num_threads(1)
    cases = cases_of(2 if options.quick else options.builds, epochs=1 if options.quick else 10)
    bars = Bars()
    for target in TARGETS:
        print(
            f"\n{target:.0%} asked for: with caches, of those on target or above, more than 1 % below; of all mean and "
            "least agreement, gain"
        )
        for name, rule in RULES.items():
            chosen = [rule(replace(problem, target=target), seed) for seed, (problem, _) in enumerate(cases)]
            found = [joint_outcome(new, choice) for (_, new), choice in zip(cases, chosen, strict=True)]
            agreement = np.array([one.accuracy for one in found])
            ratio = np.mean([one.latency_s / new.base_s for one, (_, new) in zip(found, cases, strict=True)])
            held, below = held_of(agreement, chosen, target), 1 - held_of(agreement, chosen, target - 0.01)
            print(
                f"{name:>10}: {len(cases) - chosen.count(()):2d} of {len(cases)} {held:5.0%} {below:5.0%}   "
                f"{agreement.mean():.1%} {agreement.min():.1%}   {1 / ratio:.2f}"
            )
            if name == "price":
                bars.at_least(f"{target:.0%}, builds with caches that keep it on new samples", held, HELD)
    print(f"\n{bars}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
