import itertools
from dataclasses import replace

import numpy as np

from gearshift.planner.language.choices import Choice, PlanMaker
from gearshift.planner.language.improving import Moves
from tests.unit.planner.language.test_choices import maker_on


def moves_of(maker: PlanMaker, *, most_gears: int = 4) -> Moves:
    few = replace(maker, request=replace(maker.request, most_gears=most_gears))
    return Moves(few, range(len(maker.candidates.stages)))


def walk(moves: Moves, steps: int) -> list[Choice]:
    generator, choice, seen = np.random.default_rng(0), moves.maker.constant(len(moves.among) - 1), []
    for _ in range(steps):
        choice = moves.drawn(choice, generator)
        seen.append(choice)
    return seen


def test_moves_leave_load_and_work_in_order_and_gears_few() -> None:
    moves = moves_of(maker_on(1))
    work = moves.maker.bottleneck_s
    for choice in walk(moves, 100):
        assert choice[0].begins == 0
        assert len(choice) <= 4
        assert all(a.begins < b.begins for a, b in itertools.pairwise(choice))
        assert all(work[a.candidate] >= work[b.candidate] for a, b in itertools.pairwise(choice))


def test_moves_reach_all_candidates_numbers_of_gears_and_bounds() -> None:
    moves = moves_of(maker_on(1))
    seen = walk(moves, 1000)
    assert {gear.candidate for choice in seen for gear in choice} == set(moves.among)
    assert {len(choice) for choice in seen} == {1, 2, 3, 4}
    for model in moves.maker.rates.models:
        assert {gear.most[model] for choice in seen for gear in choice} == set(moves.maker.bounds(model))


def test_no_candidate_is_moved_beyond_the_load_that_it_may_serve() -> None:
    moves = replace(moves_of(maker_on(1)), limit=lambda candidate: 0.5 + candidate)
    for choice in walk(moves, 100):
        assert all(b.begins <= 0.5 + a.candidate for a, b in itertools.pairwise(choice))
