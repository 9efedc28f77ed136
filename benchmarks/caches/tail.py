"""The tail with learned caches: lookups in line, bounded (`most_delay`) or not, and beside the model, against the same
model without them.

Pairs of rounds in turn, each over the same images one by one; what is shown is the median over pairs, and the range.
The base model is timed on the core that the cached ones have, and on all cores; lookups beside have the last core.
It runs as it is, those with caches with batch norms folded.

    python -m benchmarks.caches.tail [--data DIR --network resnet56 | --digits] [--quick]

About five minutes on two cores for digits; for resnet56 as long as `cifar.py` takes, and a quarter of an hour
after it, with the same `--work`.  The bar: p99 within 3 % of the base model's.
"""

from typing import Any

import numpy as np

from benchmarks.caches.tasks import Timed, agreement, base_run, cached_run, classes_of, in_turn, options_of, task_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import spread
from gearshift import caches
from gearshift.caches.running.concurrent_lookups import divided_cores

WITHIN = 1.03
BASE, EVERY = "base model", "base model, all cores"
INLINE, BOUNDED, BESIDE = "in line", "in line, bounded", "beside"
HOW: dict[str, dict[str, Any]] = {
    INLINE: {},
    BOUNDED: {"most_delay": WITHIN - 1},
    BESIDE: {"lookups": "beside"},
}


def main() -> int:
    options = options_of(__doc__).parse_args()
    task = task_of(options)
    print(describe())
    cores = divided_cores(1)
    network, build = task.network("large"), task.images("build")
    images, _ = task.images("test")
    models = {name: how for name, how in HOW.items() if name != BESIDE or cores is not None}
    if cores is None:
        print("one core: lookups beside the model are left out, as they would run in line")
    own = frozenset({0}) if cores is None else cores.base
    every = own if cores is None else cores.base | cores.lookups
    timed = {BASE: Timed(base_run(network), own), EVERY: Timed(base_run(network), every)}
    folder = task.caches_folder("large")
    for name, how in models.items():
        built = task.built(network, build, folder, accuracy=options.accuracy, **how)
        chosen = ", ".join(f"{entry.variant} after {entry.block}" for entry in built.manifest.chosen)
        gain = built.manifest.base_s / built.manifest.latency_s
        print(f"\n{name}: {chosen or 'no cache pays'}, expected gain {gain:.2f}")
        model = caches.load(folder, network)
        timed[name] = Timed(cached_run(model), own)
    rounds, rows = (2, 30) if options.quick else (options.rounds, options.rows)
    seconds = in_turn(timed, images[:rows], rounds=rounds)
    base = classes_of(timed[BASE].run, images)
    print(f"\n{rounds} pairs of {rows} images one by one: milliseconds, median (range)\n")
    print(f"{'':24}{'mean':>24}{'p99':>24}{'mean / base':>24}{'p99 / base':>24}   agreement")
    means = {name: each.mean(axis=1) for name, each in seconds.items()}
    p99 = {name: np.quantile(each, 0.99, axis=1, method="higher") for name, each in seconds.items()}
    for name, one in timed.items():
        cells = (1e3 * means[name], 1e3 * p99[name], means[name] / means[BASE], p99[name] / p99[BASE])
        told = "".join(f"{spread(cell):>24}" for cell in cells)
        print(f"{name:24}{told}   {agreement(one.run, base, images)}")
    bars = Bars()
    bars.at_most(f"p99 with lookups {BOUNDED}, over the base model's", np.median(p99[BOUNDED] / p99[BASE]), WITHIN)
    print(f"\n{bars}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
