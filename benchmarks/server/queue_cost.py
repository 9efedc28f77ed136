"""What a sample costs of a replica's queue, by how many wait: in an overloaded server that is thousands.

Batches of `BATCH` come and go while `waiting` stay.  Without deadlines samples leave in the order in which they came;
with them, each request's own, they do not.
"""

import itertools
import random
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_head
from gearshift.request import NO_DEADLINE_NS, Request, Sample
from gearshift.runtime.router.queue import WaitingQueue

BATCH = 64
APART_NS = 200_000


def samples(*, deadlines: bool, seed: int = 1) -> Iterator[Sample]:
    """One after another, `APART_NS` apart."""
    draw = random.Random(seed)
    for i in itertools.count(1):
        deadline_ns = i * APART_NS + draw.randrange(10**8, 10**9) if deadlines else NO_DEADLINE_NS
        yield Sample(Request(id=i, operator="task", arrived_ns=i * APART_NS, deadline_ns=deadline_ns), 0, i)


def costs_us(waiting: int, *, deadlines: bool, batches: int) -> tuple[float, float]:
    """Microseconds to queue a sample and to take one out, medians of batches."""
    queue, coming = WaitingQueue(10**15), samples(deadlines=deadlines)
    for sample in itertools.islice(coming, waiting):
        queue.add(sample, sample.request.arrived_ns)
    took = []
    for _ in range(batches):
        batch = list(itertools.islice(coming, BATCH))
        begun = time.perf_counter()
        for sample in batch:
            queue.add(sample, sample.request.arrived_ns)
        added = time.perf_counter()
        queue.take(BATCH, batch[-1].request.arrived_ns)
        took.append((added - begun, time.perf_counter() - added))
    add_s, take_s = np.median(took, axis=0)
    return 1e6 * add_s / BATCH, 1e6 * take_s / BATCH


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--batches", type=int, default=1000)
    arguments = parser.parse_args()
    print(describe())
    print_head("\n| samples that wait | deadlines | queue one | take one |")
    for deadlines, waiting in itertools.product((False, True), (0, 100, 2_000, 8_000)):
        add_us, take_us = costs_us(waiting, deadlines=deadlines, batches=arguments.batches)
        print(f"| {waiting} | {deadlines} | {add_us:.2f} us | {take_us:.2f} us |", flush=True)


if __name__ == "__main__":
    main()
