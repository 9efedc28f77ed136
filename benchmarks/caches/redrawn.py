"""Whether the choice of learned caches keeps the agreement asked for, whichever images judge: drawn anew many times.

Predictors and selectors are those of one exploration.  The images that judge it and the unseen ones are put together;
each time as many as before are drawn to judge, caches are chosen by them, and agreement is counted on the others.

    python -m benchmarks.caches.redrawn [--data DIR --network resnet56 | --digits] [--draws 100] [--quick]

A minute for digits; for a ResNet some minutes after `cifar.py` with the same `--work`.  The bar: nine draws in
ten keep it, of those that choose any caches.
"""

import numpy as np
import torch

from benchmarks.caches.ablations import candidates_of
from benchmarks.caches.tasks import options_of, task_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_head, spread
from gearshift.caches.building.choosing import by_price, judged_on
from gearshift.caches.building.evaluation import measure_in_line
from gearshift.caches.building.problem import joint_outcome
from gearshift.caches.store.manifest import LIKELY

TARGETS = (0.97, 0.99)
SAME = 1e-9


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--draws", type=int, default=100)
    options = parser.parse_args()
    task, draws = task_of(options), 3 if options.quick else options.draws
    torch.set_num_threads(1)
    print(describe(), f"PyTorch {torch.__version__}, one thread", sep=", ")
    network, (inputs, labels), (unseen, _) = task.network("large"), task.images("build"), task.images("test")
    made = task.explored(network, (inputs, labels), task.caches_folder("large"))
    seconds = measure_in_line(made.chain, made.explored, inputs[made.split.check][:64])
    print(
        f"\n\n{task.name}: {len(made.explored)} predictors; {len(made.split.check)} images judge, as built, then others"
    )
    print_head(
        "\n| asked for | as built | drawn anew | over 1 % below | gain reckoned | with caches | of those on target |"
    )
    bars = Bars()
    for target in TARGETS:
        both = candidates_of(made, made.explored, unseen, seconds, target)
        hits, right = (
            np.hstack([getattr(one, name) for one in (both.problem, both.unseen)]) for name in ("hits", "right")
        )
        judging = both.problem.samples
        orders = [
            np.arange(hits.shape[1]),
            *(np.random.default_rng([7, k]).permutation(hits.shape[1]) for k in range(draws)),
        ]
        agrees, gains = [], []
        for order in orders:
            problem, new = (
                judged_on(both.problem, hits[:, rows], right[:, rows]) for rows in np.split(order, [judging])
            )
            chosen = by_price(problem, problem, LIKELY).chosen
            found = joint_outcome(new, chosen)
            agrees.append(found.accuracy if chosen else np.nan)
            gains.append(new.base_s / found.latency_s)
        known = np.array(agrees[1:])[~np.isnan(agrees[1:])]
        if not len(known):
            print(f"| {target:.0%} | no caches in any draw | | | | 0 of {draws} | |")
            continue
        held = float((known >= target - SAME).mean())
        print(
            f"| {target:.0%} | {agrees[0]:.2%} | {spread(100 * known)} % | {(known < target - 0.01).mean():.0%} "
            f"| {np.mean(gains[1:]):.2f} | {len(known)} of {draws} | {held:.0%} |",
            flush=True,
        )
        bars.at_least(f"{target:.0%}, draws with caches that keep it on the other images", held, LIKELY)
    print(f"\n{bars}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
