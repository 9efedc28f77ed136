from dataclasses import replace

import pytest

from gearshift.planner.contract.planner import Search
from gearshift.planner.language.improving import improved
from gearshift.planner.language.placed import PlacedSearch
from gearshift.planner.language.replays import replayed
from gearshift.planner.language.search import MOST_CONFIRMED, LanguageSearch
from gearshift.profiles.engines.engine_tables import engine_tables
from tests.unit.planner.language.test_planners import request

LIMITS_S = (0.2, 0.3, 0.6)


def best_on_a(search: LanguageSearch) -> float:
    """The quality on part A of the plan that `most_accurate` gives."""
    profile = search.request.profile
    tables = engine_tables(search.most_accurate(), profile)
    return replayed(search.request, tables, search.parts[0]).quality


def test_local_search_is_never_worse_than_its_best_start_and_the_same_again() -> None:
    asked = replace(request(), most_tried=5)
    found = []
    for _ in range(2):
        search = LanguageSearch(asked, Search(asked))
        placed = search.placed(search.placements[0])
        starts = [placed.start(choice) for choice in placed.constants()]
        best = max(start.score for start in starts)
        found.append(improved(starts, 40, 0, lambda _: None)[0])
        assert found[-1].score >= best
        assert len(placed.replays.begun) == 0
    assert found[0].choice == found[1].choice


def test_each_space_has_the_one_before_within_it() -> None:
    search = LanguageSearch(request(), Search(request()))
    for placement in search.placements:
        within: set[int] = set()
        for space in range(len(search.spaces)):
            among = set(search.placed(placement, space).among)
            assert within <= among
            within = among


def test_a_draft_that_part_b_confirms_is_the_plan_where_it_confirms_nothing_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = LanguageSearch(request(0.6), Search(request(0.6)))
    placed = search.placed(search.placements[0])
    starts = sorted(map(placed.start, filter(placed.holds, placed.constants())), key=lambda one: one.score)[::-1]
    worst = min(starts, key=lambda start: start.score)
    assert len(starts) > MOST_CONFIRMED
    monkeypatch.setattr(PlacedSearch, "confirmed", lambda _, choice: choice if choice == worst.choice else None)
    found = search._confirmed(starts, -1)
    assert found is not None
    assert found.choice == worst.choice


@pytest.mark.long
def test_a_looser_limit_never_has_a_worse_plan_after_a_tighter_one() -> None:
    search = LanguageSearch(request(LIMITS_S[0]), Search(request(LIMITS_S[0])))
    qualities = [best_on_a(search)]
    for latency_s in LIMITS_S[1:]:
        search = search.within(latency_s)
        qualities.append(best_on_a(search))
    assert qualities == sorted(qualities)


@pytest.mark.long
def test_certainty_never_has_a_worse_plan_than_shares_alone() -> None:
    asked = request()
    with_certainty = best_on_a(LanguageSearch(asked, Search(asked)))
    shares = replace(asked, profile=replace(asked.profile, ranks=(), ranks_at=()))
    assert with_certainty >= best_on_a(LanguageSearch(shares, Search(shares)))
