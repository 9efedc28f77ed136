from dataclasses import replace

from gearshift.cascade import Cascade
from gearshift.profiles.engines.engine_profile import Sharing
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.verbs.language.validate import doubts_about_turns
from tests.language_task import language_gear, language_plan, random_answers, small_engine

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
