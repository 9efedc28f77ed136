from dataclasses import replace

import pytest

from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.contract.planner import Search
from gearshift.planner.language.compared.compare import SharedSearches, permuted
from gearshift.planner.language.placed import both_parts
from gearshift.planner.language.planners import LanguagePlanner, Searches
from gearshift.planner.language.replays import replayed
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.language.search import LanguageSearch
from gearshift.profiles.engines.engine_tables import engine_tables
from tests.language_profiles import bursty_trace, language_profile

PROFILE = language_profile()


def with_searches(name: str, search_for: Searches) -> LanguagePlanner:
    planner: LanguagePlanner = planners.named(name, "tokens")  # type: ignore[assignment]
    return planner.with_searches(search_for)


def request(latency_s: float = 0.3) -> LanguageRequest:
    return LanguageRequest(
        profile=PROFILE,
        trace=bursty_trace(1, 10, seconds=4),
        hardware=identical_devices(1, kind="gpu", memory_bytes=30_000_000),
        objective=Objective(latency_s=latency_s, metric="ttft", scope="trace"),
        most_candidates=4,
        most_tried=2,
    )


@pytest.mark.long
def test_model_switching_replays_nothing_that_the_optimal_planner_has_searched_and_is_the_same_plan() -> None:
    shared, asked = SharedSearches(), request()
    with_searches("optimal", shared.of).plan(asked)
    known = shared.of(asked, Search(asked)).known
    before = [(len(one.replays.seen), len(one.confirming.seen)) for one in known.values()]
    made = with_searches("model-switching", shared.of).plan(asked)
    assert [(len(one.replays.seen), len(one.confirming.seen)) for one in known.values()] == before
    assert made == planners.plan("model-switching", asked)


@pytest.mark.long
def test_one_limit_has_the_plans_that_each_planner_and_the_control_make_alone() -> None:
    shared, asked = SharedSearches(), request()
    for name in planners.for_("tokens"):
        assert with_searches(name, shared.of).plan(asked) == planners.plan(name, asked)
    for seed in range(2):
        control = with_searches("optimal", shared.permuted(seed)).plan(asked)
        assert control == planners.plan("optimal", replace(asked, profile=permuted(PROFILE, seed=seed)))


@pytest.mark.long
def test_no_row_is_worse_on_part_a_than_its_plan_alone_whatever_limits_came_before() -> None:
    shared = SharedSearches()
    for latency_s in (0.6, 0.2, 0.3):
        asked = request(latency_s)
        on_a, _ = both_parts(asked)
        rows = [with_searches("optimal", search_for).plan(asked) for search_for in (shared.of, LanguageSearch)]
        together, alone = (replayed(asked, engine_tables(made, PROFILE), on_a).quality for made in rows)
        assert together >= alone


@pytest.mark.long
def test_the_control_searches_no_space_anew_that_looks_at_no_certainty(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, asked, searched = SharedSearches(), request(), list[int]()
    with_searches("optimal", shared.of).plan(asked)
    inner = LanguageSearch._searched
    monkeypatch.setattr(
        LanguageSearch,
        "_searched",
        lambda search, space, carried: searched.append(space) or inner(search, space, carried),
    )
    with_searches("optimal", shared.permuted(0)).plan(asked)
    assert searched == [2]


def test_searches_are_shared_for_another_latency_alone_and_without_a_budget() -> None:
    shared = SharedSearches()

    def found(asked: LanguageRequest) -> object:
        return shared.of(asked, Search(asked)).found

    assert found(request()) is found(request(0.6))
    assert found(request()) is not found(replace(request(), seed=1))
    budgeted = replace(request(), budget_s=60.0)
    assert found(budgeted) is not found(budgeted)
