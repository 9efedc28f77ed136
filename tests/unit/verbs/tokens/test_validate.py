from dataclasses import replace
from pathlib import Path

import pytest

from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput
from gearshift.profiles.engines.engine_profile import Sharing
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.verbs.tokens.validate import doubts_about_turns
from gearshift.verbs.validate import validate
from tests.language_task import language_gear, language_plan, random_answers, small_engine
from tests.two_language_models import ALONE, language_profile, write_language_plan

MODELS = ("small", "large")
PROFILE = LanguageProfile(
    operator="chat", engines=tuple(map(small_engine, MODELS)), answers=random_answers(MODELS, 8, seed=0)
)
PLACED = {"small-0": "d0", "large-0": "d0"}
PLAN = language_plan(PLACED, language_gear(PLACED, Cascade(models=MODELS, thresholds=(0.5,), decide_at_tokens=(1,))))


def test_engines_that_are_simulated_otherwise_than_emulated_are_told() -> None:
    (told,) = doubts_about_turns(engine_tables(PLAN, PROFILE))
    assert told.startswith("small-0 and large-0 share d0 and were not timed beside each other")
    pairs = [MODELS, MODELS[::-1]]
    timed = tuple(Sharing(model=one, beside=other, device_kind="gpu", factor=1.0) for one, other in pairs)
    assert doubts_about_turns(engine_tables(PLAN, replace(PROFILE, sharing=timed))) == ()


def test_a_trace_may_be_named_by_its_path(tmp_path: Path) -> None:
    write_language_plan(tmp_path, [ALONE], profile=language_profile())
    with pytest.raises(InvalidInput, match=r"trace.csv: no such file; check the path of the trace"):
        validate(tmp_path / "plan.json", tmp_path / "trace.csv", url="http://127.0.0.1:9/v1", backend="emulated")
