"""The quality of answers: by the project's judge, its references, or agreement with the last model."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import GearshiftError, InvalidInput, ModelFailed, require
from gearshift.models.language_config import LanguageProject
from gearshift.models.user_code import function_in_folder, said_in_one_line
from gearshift.profiles.engines.prompts import Prompt

Judge = Callable[[Any, str, Any], Any]


def judge_of(project: LanguageProject, directory: Path) -> Judge | None:
    if not project.judge:
        return None
    return function_in_folder(project.judge, directory, field="judge", where="gearshift.toml, field judge")


def quality_of(
    project: LanguageProject, judge: Judge | None, prompts: Sequence[Prompt], texts: Sequence[Sequence[str]]
) -> tuple[NDArray[np.float64], bool]:
    """Quality (models, prompts) of `texts` in the same order, and whether it is known.

    Without a judge, an answer is right where it is the reference but for spaces at its ends. Without
    a reference too, it is right where it is the last model's, and quality is not known.
    """
    if judge is not None:
        return np.array(
            [[_judged(project, judge, *pair) for pair in zip(prompts, row, strict=True)] for row in texts]
        ), True
    lacking = [prompt.id for prompt in prompts if prompt.reference is None]
    require(
        len(lacking) in (0, len(prompts)),
        f"prompt {lacking[0]!r} has no reference, and others have one" if lacking else "",
        remedy="give each prompt one, or none, or name a judge",
    )
    right = texts[-1] if lacking else [str(prompt.reference) for prompt in prompts]
    same = [[float(text.strip() == one.strip()) for text, one in zip(row, right, strict=True)] for row in texts]
    return np.array(same), not lacking


def _judged(project: LanguageProject, judge: Judge, prompt: Prompt, text: str) -> float:
    where = f"prompt {prompt.id!r}"
    try:
        given = judge(list(prompt.messages) if prompt.messages else prompt.prompt, text, prompt.reference)
    except GearshiftError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelFailed(f"the judge {project.judge} raised {said_in_one_line(error)} at {where}") from error
    try:
        quality = float(given)
    except (TypeError, ValueError):
        quality = math.nan
    if not 0 <= quality <= 1:
        raise InvalidInput(
            f"the judge {project.judge} gave {given!r}",
            where=where,
            remedy="have it return a number in [0, 1], such as a score of 1 to 10 divided by 10",
        )
    return quality
