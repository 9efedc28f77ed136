from dataclasses import replace

from gearshift.cascade import Cascade
from gearshift.profiles.engines.engine_profile import Sharing
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.reporting.language.words import placed_sharing_in_words, sharing_in_words
from tests.language_task import language_gear, language_plan, random_answers, small_engine

MODELS = ("small", "large")
BESIDE_LARGE = Sharing(model="small", beside="large", device_kind="gpu", factor=1.1, interval=(1.05, 1.3))
BESIDE_SMALL = Sharing(model="large", beside="small", device_kind="gpu", factor=0.2, interval=(0.2, 0.2))
PROFILE = LanguageProfile(
    operator="chat",
    engines=tuple(small_engine(model) for model in MODELS),
    answers=random_answers(MODELS, 4, 0),
    sharing=(BESIDE_LARGE, BESIDE_SMALL),
)
CASCADE = Cascade(models=MODELS, thresholds=(0.5,), decide_at_tokens=(1,))


def told(placed: dict[str, str], profile: LanguageProfile) -> list[str]:
    return placed_sharing_in_words(language_plan(placed, language_gear(placed, CASCADE)), profile)


def test_a_profile_says_how_engines_slow_each_other_and_how_sure_that_is() -> None:
    assert sharing_in_words(PROFILE)[0] == (
        "a step of small beside large takes 2.2 times as long as alone (2.1 to 2.6 in the repeats)"
    )


def test_a_factor_above_all_that_was_measured_is_told_with_its_reason() -> None:
    raised = Sharing(model="small", beside="large", device_kind="cpu", factor=1.0, interval=(0.9, 0.95))
    (told,) = sharing_in_words(replace(PROFILE, sharing=(raised,)))
    assert told.endswith("takes 2 times as long as alone (1.8 to 1.9 in the repeats, and processors allow no less)")


def test_a_plan_says_which_engines_share_devices_and_what_their_steps_then_take() -> None:
    assert told({"small-0": "d0", "large-0": "d0"}, PROFILE) == [
        "small and large share d0: while two are at work, a step of small takes 2.2 and a step of large takes 1 "
        "times as long as alone"
    ]


def test_engines_that_share_devices_and_were_not_timed_together_are_told() -> None:
    (note,) = told({"small-0": "d0", "large-0": "d0"}, replace(PROFILE, sharing=(BESIDE_LARGE,)))
    assert note == (
        "small and large share d0, and were not timed beside each other: they are taken to take turns in steps, "
        "without loss"
    )


def test_nothing_is_said_of_engines_with_devices_of_their_own() -> None:
    assert told({"small-0": "d0", "large-0": "d1"}, PROFILE) == []
