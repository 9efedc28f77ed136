from functools import cache

import pytest

from gearshift.planner import planners
from gearshift.planner.language.compared.explain import each_language_alone, request_as_made
from gearshift.planner.one_alone import OneAlone
from gearshift.profiles.profile import PART_B
from gearshift.traces.generate import steady
from tests.two_language_models import SMALL_ALONE, cascade, language_plan, language_profile
from tests.unit.planner.language.test_planners import request

PROFILE, PLAN, TRACE = language_profile(), language_plan([cascade(-0.5, 4)]), steady(60, 10, seed=1)


@cache
def alone() -> dict[str, OneAlone]:
    return {one.models["chat"]: one for one in each_language_alone(PLAN, PROFILE, TRACE)}


def test_each_model_of_the_profile_is_simulated_alone() -> None:
    assert {name: one.predicted is not None for name, one in alone().items()} == {"small": True, "large": True}


def test_a_model_that_is_always_right_is_so_alone() -> None:
    found = alone()["large"].predicted
    assert found is not None
    assert found.accuracy == 1.0
    assert found.tokens
    assert found.tokens.answered_by == {"large": 1.0}


def test_the_quality_of_a_model_alone_is_about_that_of_its_recorded_answers() -> None:
    found = alone()["small"].predicted
    assert found is not None
    answers = PROFILE.answers
    assert found.accuracy == pytest.approx(answers.quality[0, answers.indices(PART_B)].mean(), abs=0.05)


def test_a_model_whose_endpoint_the_plan_lacks_is_refused_in_words() -> None:
    plan = language_plan([SMALL_ALONE], replicas={"small": 1})
    reasons = [one.reason for one in each_language_alone(plan, PROFILE, TRACE)]
    assert reasons == ["", "no endpoint of the plan serves model 'large'"]


def test_a_model_alone_has_the_memory_that_the_plan_had() -> None:
    asked = request(2.0, memory_share=0.6)
    made = planners.plan("single", asked)
    assert request_as_made(made, asked.profile, asked.trace).memory_share == 0.6
