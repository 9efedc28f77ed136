"""Whether each load range should choose its own factor and batch rule, where plans that refine have one for all.

Cells are those of `benchmarks/refinement/cells.py`.  The plan that the planner takes first, and the most accurate one
of those that it tries, are replayed on part B; and the first with the ways of each quarter of the requests, by load,
changed one at a time for the better on part A: the factor of the level, and what batches are for.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.refinement.cells import START_S, request_of
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table
from gearshift.gear import GearPlan
from gearshift.planner.contract.planner import SoFar
from gearshift.planner.evaluate.confirm import SEEDS, replay
from gearshift.planner.refine.search import FACTORS, LATE_SHARE, PAIRS, Found, in_order, keeps_on_part_a, ways_of
from gearshift.planner.refine.way import Pair, Way, pairs_of
from gearshift.planner.space.metered import range_weights
from gearshift.planner.space.request import PlanRequest, load_ranges
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.result import ServingResult

CELLS = ("yelp/25/1", "yelp/50/1", "imdb/25/1", "imdb/50/1", "command/25/1", "command/50/1", "imdb/25/3")
BLOCKS = 4
WORTH = 0.001
"""The accuracy on part B for which more replays would be worth it."""


def plan_of(pair: Pair, ways: Sequence[Way]) -> GearPlan:
    """A plan with a way for each load range."""
    ends = pair.request.upper_ends()
    ranges = zip(load_ranges(ends), ends.tolist(), ways, strict=True)
    return pair.of_gears([pair.gear(load_range, qps, way) for load_range, qps, way in ranges])


def figures(pair: Pair, ways: Sequence[Way], *, part: int) -> ServingResult:
    seeds = 1 if part == PART_A else SEEDS
    return replay(plan_of(pair, ways), pair.request, part=part, seeds=seeds).result


def blocks_of(request: PlanRequest) -> list[int]:
    """The block of each load range: about as many requests of the trace in each."""
    requests = range_weights(request) * request.upper_ends()
    shares = np.cumsum(requests) / requests.sum()
    return [min(int(share * BLOCKS - 1e-9), BLOCKS - 1) for share in shares.tolist()]


def improved(one: Found, request: PlanRequest) -> list[Way]:
    """The ways of each range after one pass over the blocks."""
    blocks, best = blocks_of(request), one.accuracy
    ways = [one.way] * len(blocks)
    for block in sorted(set(blocks)):
        now = ways[blocks.index(block)]
        other = replace(now, refine_for="gain" if now.refine_for == "rows" else "rows")
        for way in [other, *(replace(now, factor=factor) for factor in FACTORS if factor != now.factor)]:
            changed = [way if at == block else kept for at, kept in zip(blocks, ways, strict=True)]
            found = figures(one.pair, changed, part=PART_A)
            late = LATE_SHARE * (1 - request.objective.percentile)
            if found.share_late <= late and found.accuracy > best:
                best, ways = found.accuracy, changed
    return ways


def tried(request: PlanRequest) -> tuple[Found, Found]:
    """The way that the planner takes first, and the most accurate on part A."""
    pairs = sorted(pairs_of(request), key=lambda pair: -pair.promise(Way()))[:PAIRS]
    found = [each for pair in pairs for each in ways_of(SoFar(request), pair)]
    kept = [each for each in found if keeps_on_part_a(each, request)]
    return in_order(found, request)[0], max(kept, key=lambda each: each.accuracy)


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="one cell of 5 s")
    parser.add_argument("--cells", nargs="*", default=list(CELLS), help="data set/milliseconds/devices")
    parser.add_argument("--peak", type=float, default=2500.0, help="requests in the busiest second, per device")
    parser.add_argument("--start", type=int, default=START_S)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--halves", type=int, default=0, help="the seed of parts A and B")
    asked = parser.parse_args()
    if asked.quick:
        asked.cells, asked.seconds = ["yelp/50/1"], 5
    print(describe(), flush=True)
    rows, gained = [], []
    for cell in asked.cells:
        request = cell_of(asked, cell)
        first, most = tried(request)
        everywhere = [figures(each.pair, [each.way] * request.ranges, part=PART_B) for each in (first, most)]
        per_range = figures(first.pair, improved(first, request), part=PART_B)
        gained.append(per_range.accuracy - everywhere[1].accuracy)
        results = (*everywhere, per_range)
        rows.append((cell, *(f"{each.accuracy:.2%}, {each.latency_s.p50 * 1e3:.1f}" for each in results)))
        print("done:", *rows[-1], flush=True)
    header = ("cell", "as planned: accuracy, p50 in ms", "the most accurate way", "a way for each quarter")
    print_table(header, rows)
    median, most = float(np.median(gained)), max(gained)
    told = f"ways of ranges gain {median:+.2%} over the most accurate way in the median ({most:+.2%} at most)"
    print_bar(median >= WORTH, told)


def cell_of(asked: argparse.Namespace, cell: str) -> PlanRequest:
    dataset, latency_ms, devices = cell.split("/")
    return request_of(asked, dataset, float(latency_ms), int(devices))


if __name__ == "__main__":
    main()
