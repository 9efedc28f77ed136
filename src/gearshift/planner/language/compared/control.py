"""Profiles to hold a plan's gain against: certainties that rank nothing, and certainties that know.

Splitting requests under load gains by itself, so what certainty is worth is the difference to a plan
whose certainties were permuted.
"""

from dataclasses import replace

import numpy as np

from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.profile import PART_A, PART_B


def permuted(profile: LanguageProfile, *, seed: int = 0) -> LanguageProfile:
    """The profile with each model's certainties dealt to other prompts of the same part."""
    generator = np.random.default_rng([seed, 0x9E])
    answers = profile.answers
    certainty = answers.certainty.copy()
    for model in range(len(answers.models)):
        for part in (PART_A, PART_B):
            mine = answers.indices(part)
            certainty[model, mine] = answers.certainty[model, generator.permutation(mine)]
    return replace(profile, answers=replace(answers, certainty=certainty))


def oracle(profile: LanguageProfile) -> LanguageProfile:
    """The profile with certainties that know by how much every later model would be better.

    Models are later where their mean quality is higher. No certainty can rank better than this does.
    """
    answers = profile.answers
    mean = answers.quality.mean(axis=1)
    certainty = answers.certainty.copy()
    for model in range(len(answers.models)):
        later = [other for other in range(len(answers.models)) if mean[other] > mean[model]]
        if later:
            gain = answers.quality[later].mean(axis=0) - answers.quality[model]
            certainty[model] = -gain[:, None]
    return replace(profile, answers=replace(answers, certainty=certainty), ranks=answers.models, ranks_at=())
