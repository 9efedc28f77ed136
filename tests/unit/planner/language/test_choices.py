import dataclasses

import numpy as np
import pytest

from gearshift.gear import SHARE_UNIT
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner.contract.planner import Search
from gearshift.planner.language.choices import PlanMaker, without_idle_replicas
from gearshift.planner.language.replays import fewer
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.language.search import LanguageSearch
from gearshift.profiles.engines.engine_tables import engine_tables
from tests.language_profiles import bursty_trace, language_profile


def maker_on(devices: int) -> PlanMaker:
    request = LanguageRequest(
        profile=language_profile(),
        trace=bursty_trace(1, 10, seconds=5),
        hardware=identical_devices(devices, kind="gpu", memory_bytes=30_000_000),
        objective=Objective(latency_s=0.3, metric="ttft"),
        most_candidates=8,
    )
    search = LanguageSearch(request, Search(request))
    return search.placed(search.placements[0]).maker


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_tables_of_a_choice_are_those_of_its_plan(devices: int) -> None:
    maker = maker_on(devices)
    last = len(maker.candidates.stages) - 1
    choice = (maker.free(last), maker.free(1, 0.5)._replace(most=(2, 0, 3)), maker.free(0, 1.5))
    mine, plan = maker.tables(choice), engine_tables(maker.plan(choice), maker.request.profile)
    for field in dataclasses.fields(mine):
        a, b = getattr(mine, field.name), getattr(plan, field.name)
        if field.name in ("stage_models", "thresholds", "decide_at"):
            shape = len(choice), mine.most_stages
            b = b.reshape(len(choice), plan.most_stages)
            a = a.reshape(shape)[:, : plan.most_stages]
            used = np.arange(plan.most_stages) < mine.stage_count[:, None]
            if field.name != "stage_models":
                used = np.arange(plan.most_stages) < mine.stage_count[:, None] - 1
            np.testing.assert_array_equal(np.where(used, a, 0), np.where(used, b, 0), err_msg=field.name)
        elif field.name == "most_stages":
            assert plan.most_stages <= mine.most_stages
        elif isinstance(a, np.ndarray):
            np.testing.assert_allclose(a, b, err_msg=field.name)
        else:
            assert a == b, field.name


def test_each_model_of_a_gear_has_whole_shares() -> None:
    maker = maker_on(3)
    for candidate, shares in enumerate(maker.shares):
        used = {stage.model for stage in maker.candidates.stages[candidate]}
        for model in maker.rates.models:
            total = int(shares[maker.rates.model == model].sum())
            assert total == (SHARE_UNIT if model in used else 0)


def test_replicas_without_any_share_leave_the_plan() -> None:
    maker = maker_on(1)
    single = next(c for c, stages in enumerate(maker.candidates.stages) if len(stages) == 1)
    made = without_idle_replicas(maker.plan(maker.constant(single)))
    assert len(made.placement.models) == 1


def test_gears_that_lose_little_quality_over_little_load_go_first() -> None:
    maker = maker_on(1)
    choice = tuple(maker.free(candidate, begins) for candidate, begins in ((3, 0.0), (2, 0.1), (1, 0.11), (0, 5.0)))
    quality = [0.1, 0.7, 0.8, 0.9]
    left = fewer(choice, quality, 3)
    assert [(gear.candidate, gear.begins) for gear in left] == [(3, 0.0), (1, 0.1), (0, 5.0)]
