"""The cascade for a relation: a gear's, the cheapest that is accurate enough, or one with a certificate."""

import msgspec
import numpy as np
import pytest

from gearshift.bulk.choice import accuracy_bound, choose, quality_of
from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput
from gearshift.objective import Objective
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords, Profile
from gearshift.result import share_bound
from tests.little_task import little_plan, little_profile, two_gear_plan

BOTH = Cascade(models=("small", "large"), thresholds=(0.5,))


def profile_of(samples: int) -> Profile:
    """`small` is right on 80 %, and less certain where it is wrong; `large` on 95 %."""
    generator = np.random.default_rng(3)
    quality = (generator.random((2, samples)) < [[0.8], [0.95]]).astype(float)
    certainty = np.clip(0.3 * quality + generator.random((2, samples)) * 0.7, 0, 1)
    curves = little_profile().curves
    part = (np.arange(samples) % 2).astype(np.int8)
    records = PredictionRecords(models=("small", "large"), quality=quality, certainty=certainty, part=part)
    return Profile(operator="sums", curves=curves, predictions=records)


def test_without_an_objective_of_accuracy_it_is_the_gear_of_the_lowest_load():
    plan, profile = two_gear_plan(""), little_profile()
    assert choose(plan, "sums", profile).cascades == {"sums": BOTH}
    assert choose(plan, "sums", profile, gear=1).cascades == {"sums": Cascade(models=("small",))}


def test_the_plans_objective_counts_where_nothing_is_asked_for():
    plan = little_plan("")
    pipeline = msgspec.structs.replace(plan.pipelines["sums"], objective=Objective(accuracy=0.9))
    plan, profile = msgspec.structs.replace(plan, pipelines={"sums": pipeline}), profile_of(2000)
    assert choose(plan, "sums", profile) == choose(plan, "sums", profile, accuracy=0.9)


def test_the_cheapest_cascade_of_an_accuracy_reaches_it_on_part_a():
    plan, profile = little_plan(""), profile_of(2000)
    cheap, dear = (choose(plan, "sums", profile, accuracy=a) for a in (0.82, 0.93))
    assert cheap.work_s < dear.work_s
    for choice, accuracy in ((cheap, 0.82), (dear, 0.93)):
        (cascade,) = choice.cascades.values()
        assert quality_of(cascade, profile, PART_A).mean() >= accuracy
        assert choice.accuracy == pytest.approx(quality_of(cascade, profile, PART_B).mean())


def test_a_certificate_holds_on_part_b_and_costs_more():
    plan, profile = little_plan(""), profile_of(4000)
    plain, certified = (choose(plan, "sums", profile, accuracy=0.9, confidence=c) for c in (None, 0.95))
    assert certified.at_least is not None
    assert certified.at_least >= 0.9
    assert certified.work_s >= plain.work_s
    wrong = round((1 - certified.accuracy) * 2000)
    assert certified.at_least == pytest.approx(share_bound(wrong, 2000, 0.95))


def test_too_few_samples_for_a_certificate_are_said():
    with pytest.raises(InvalidInput, match=r"cannot be certified at confidence 0\.95: 20 samples of part B show"):
        choose(little_plan(""), "sums", profile_of(40), accuracy=0.9, confidence=0.95)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"accuracy": 0.999}, r"no cascade of the plan's models has accuracy 0\.999: the best has"),
        ({"accuracy": 0.9, "gear": 0}, "accuracy 0.9 and gear 0 are both given"),
        ({"confidence": 0.9, "gear": 0}, "a confidence is given for a gear"),
        ({"confidence": 0.9}, "a confidence is given without an accuracy"),
        ({"accuracy": 90}, "accuracy is 90; give a share between 0 and 1"),
        ({"gear": 5}, "gear is 5, the plan has gears 0 to 0"),
    ],
)
def test_what_cannot_be_chosen_is_refused(asked, said):
    with pytest.raises(InvalidInput, match=said):
        choose(little_plan(""), "sums", profile_of(400), **asked)


def test_bounds_of_scores_between_right_and_wrong_are_chernoffs():
    scores = np.full(100, 0.9)
    assert 0.7 < accuracy_bound(scores, 0.95) < 0.9
    assert accuracy_bound(np.ones(100), 0.95) == share_bound(0, 100, 0.95)


def test_where_a_plan_promises_recall_a_gear_counts_which_keeps_it():
    plan = two_gear_plan("")
    promised = Objective(recall=0.9, positive="a", confidence=0.95)
    pipeline = msgspec.structs.replace(plan.pipelines["sums"], objective=promised)
    plan, profile = msgspec.structs.replace(plan, pipelines={"sums": pipeline}), little_profile()
    assert choose(plan, "sums", profile) == choose(plan, "sums", profile, gear=0)
