"""Composition of learned caches: quality of every method on 200 random instances, and the time of the exact one.

    python -m benchmarks.caches.composition [--quick]

Instances are those of the tests: deeper layers hit more, some variants err too much, some lookups take longer than a
layer; half of them run lookups beside the model, three quarters have a memory budget.  Takes two minutes.
"""

import time
from collections import defaultdict
from functools import partial

import numpy as np
from tests.unit.caches.instances import instance  # the same in tests and benchmarks

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe, pin_to_last_core, seconds_of
from gearshift.caches.building import compose

LONGEST_S = 1.0


def main() -> int:
    parser = parser_of(__doc__, quick="small, to show only that it works")
    quick = parser.parse_args().quick
    pin_to_last_core()
    print(describe())
    excess: dict[str, list[float]] = defaultdict(list)
    for seed in range(6 if quick else 200):
        problem = instance(seed, 3 + seed % 18, 1 + seed % 6, beside=bool(seed % 2), memory=seed % 4 > 0)
        *others, exact = compose.compose_all(problem)
        for one in others:
            excess[one.method].append(one.expected.latency_s / exact.expected.latency_s - 1)
    print("\nexpected latency above the exact composition's")
    for method, values in excess.items():
        print(f"{method:>24}: mean {np.mean(values):.1%}, worst {np.max(values):.1%}, best {np.min(values):.1%}")
    print("\n100 layers of 6 variants, exact")
    slowest = 0.0
    for beside in (False, True):
        for memory in (False, True):
            problems = [instance(seed, 100, 6, beside=beside, memory=memory) for seed in range(2 if quick else 20)]
            times = [seconds_of(partial(compose.exact, problem), repeats=1)[0] for problem in problems]
            slowest = max(slowest, *times)
            told = f"lookups {'beside' if beside else 'in line'}, {'a' if memory else 'no'} memory budget"
            print(f"{told:>40}: median {np.median(times):.2f} s, slowest {max(times):.2f} s")
    print("\njoint hits of 1,000 samples, 6 variants a layer, in line")
    for layers in (5, 10) if quick else (5, 10, 15, 20, 30):
        problem = instance(1, layers, 6, samples=1000, memory=False)
        known = [compose.exact(problem).chosen]
        began = time.perf_counter()
        found = compose.joint(problem, known)
        spent_s, latency_s = time.perf_counter() - began, found.measured.latency_s
        share, gap = latency_s / problem.base_s, found.gap_s / latency_s
        print(f"{layers:4} layers: {share:.1%} of the base model, gap {gap:.1%}, {spent_s:.1f} s")
    never_worse = min(min(values) for values in excess.values()) >= -1e-12
    print(f"\nexact is never worse: {never_worse}; under {LONGEST_S:g} s: {slowest < LONGEST_S}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
