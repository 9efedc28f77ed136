"""The quality of answers: by the project's judge, its references, or agreement with the last model."""

import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import GearshiftError, InvalidInput, ModelFailed, require
from gearshift.measuring.engines.kept import KeptJudgements
from gearshift.models.language_config import LanguageProject
from gearshift.models.user_code import function_in_folder, said_in_one_line
from gearshift.profiles.engines.prompts import Prompt

Judge = Callable[[Any, str, Any], Any]


def judge_of(project: LanguageProject, directory: Path) -> Judge | None:
    """Raises `InvalidInput` for one that could judge no answer, which is told before any is asked for."""
    if not project.judge:
        return None
    where = "gearshift.toml, field judge"
    judge = function_in_folder(project.judge, directory, field="judge", where=where)
    remedy = "have it take prompt, answer and reference, and return a number in [0, 1]"
    gives_none = any(kind(judge) for kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction))
    require(not gives_none, f"{project.judge} is async or a generator", where=where, remedy=remedy)
    try:
        inspect.signature(judge).bind(None, "", None)
    except TypeError as error:
        raise InvalidInput(f"{project.judge} cannot be called: {error}", where=where, remedy=remedy) from error
    except ValueError:  # some functions in C have no signature
        pass
    return judge


def quality_of(
    project: LanguageProject,
    judge: Judge | None,
    prompts: Sequence[Prompt],
    texts: Sequence[Sequence[str]],
    *,
    kept: KeptJudgements | None = None,
    step: Callable[[int, int], None] = lambda model, calls: None,
) -> tuple[NDArray[np.float64], bool]:
    """Quality (models, prompts) of `texts` in the same order, and whether it is known.

    The judge is asked once about the same answer to the same prompt, and about none that is `kept`,
    where its judgements are added as they come. `step` is called with a model's number and 0 before
    its answers are judged, then with 1 after each call.

    Without a judge, an answer is right where it is the reference but for spaces at its ends. Without
    a reference too, it is right where it is the last model's, and quality is not known.
    """
    if judge is not None:
        known = KeptJudgements() if kept is None else kept
        quality = np.empty((len(texts), len(prompts)))
        for model, row in enumerate(texts):
            step(model, 0)
            for number, (prompt, text) in enumerate(zip(prompts, row, strict=True)):
                found = known.of(prompt, text)
                if found is None:
                    found = _judged(project, judge, prompt, text)
                    known.keep(prompt, text, found)
                    step(model, 1)
                quality[model, number] = found
        return quality, True
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
