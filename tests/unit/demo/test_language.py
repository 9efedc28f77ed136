from pathlib import Path

import numpy as np
import pytest

from gearshift.demo.language import alone, why_no_engine
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import read_language_profile
from gearshift.verbs.plan import plan
from gearshift.workload import Trace
from tests.llama import why_no_llama

RECORDED = Path(__file__).parents[3] / "src/gearshift/demo/recorded_orders"


@pytest.fixture(scope="module")
def profile() -> LanguageProfile:
    return read_language_profile(RECORDED)


def test_the_recorded_profile_is_of_the_models_that_come_with_the_project(profile: LanguageProfile) -> None:
    quality = profile.answers.quality.mean(1)
    assert profile.models == (*profile.ranks, "large") == ("small", "medium", "large")
    assert quality.shape == (3,)
    assert 0.4 < quality[0] < 0.9 < quality[1] < quality[2]


def test_engines_are_found_as_the_tests_find_them() -> None:
    assert bool(why_no_engine()) == bool(why_no_llama())


@pytest.mark.long  # it compiles the simulation
def test_a_model_alone_has_every_device(profile: LanguageProfile) -> None:
    trace = Trace(arrivals_ns=np.arange(40, dtype=np.int64) * 50_000_000, duration_s=2.0)
    made = plan(profile, trace, planner="optimal", ttft_s=1.0, devices=2)
    single = alone(made, profile, "small")
    assert [one.model for one in single.placement.replicas] == ["small", "small"]
    tables = engine_tables(single, profile)
    assert tables.stage_count.tolist() == [1]
    assert tables.shares.tolist()[0] == tables.shares.tolist()[1] > 0
