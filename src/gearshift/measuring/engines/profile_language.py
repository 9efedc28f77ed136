"""Profile a project of language models from outside: engines are timed, all prompts answered and judged."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from gearshift.errors import require
from gearshift.measuring.engines.answering import prompts_answered
from gearshift.measuring.engines.cost import announced
from gearshift.measuring.engines.judging import judge_of, quality_of
from gearshift.measuring.engines.kept import (
    KeptRows,
    kept_judgements,
)
from gearshift.measuring.engines.order import measured_all
from gearshift.measuring.engines.records import records_of
from gearshift.measuring.engines.task import Notice, Progress, Task, processors_beside
from gearshift.measuring.engines.timing import first_of
from gearshift.measuring.partial import partial_folder
from gearshift.models.language_config import read_language_project
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.prompts import read_prompts
from gearshift.profiles.engines.ranking import rankings, with_ranks
from gearshift.runtime.engines.replicas.identity import noted
from gearshift.support.event_loop import run_in_own_loop
from gearshift.support.processors import pinned


def profile_language(
    path: Path,
    *,
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress = lambda what, share: None,
    notice: Notice = lambda text: None,
) -> LanguageProfile:
    """Measure the engines of the project file `path`, and record its models' answers to its prompts.

    Answers, times and judgements are kept next to `folder` as they come. `notice` announces calls and tokens
    before the first call. Raises `InvalidInput` before it where they exceed the project's budget.
    """
    project = read_language_project(path)
    judge = judge_of(project, path.parent)
    prompts = read_prompts(path.parent / project.prompts)
    partial = None if folder is None else partial_folder(folder)
    judgements = kept_judgements(partial, project, path.parent)
    task = Task(path, project, prompts, {}, judgements, progress, notice, judge)
    for place in task.places:
        task.kept[place] = KeptRows(partial, project, place[0], task.settings(place))
    works = announced(task, partial)
    try:
        with pinned(processors_beside(task)):
            measured, sharing = run_in_own_loop(measured_all(task, works))
    except BaseExceptionGroup as group:
        raise first_of(group) from None
    models = [*project.models]
    each = [one.answers for one in measured if one.answers is not None]
    usable, warnings = prompts_answered(models, prompts, each)
    require(
        len(usable) >= 2,
        f"{len(usable)} prompts are answered by all models, and two are needed" + "".join(f": {w}" for w in warnings),
        where=project.prompts,
        remedy="shorten them, or serve models with a longer context",
    )
    rows = [[answers[prompts[i].key] for i in usable] for answers in each]
    answered, texts = [prompts[i] for i in usable], [[one.text for one in row] for row in rows]
    task.planned = task.done + (judgements.lacking(answered, texts) if judge else 0)
    quality, judged = quality_of(
        project,
        judge,
        answered,
        texts,
        kept=judgements,
        step=lambda model, calls: task.step(f"{models[model]}: judging", calls),
    )
    records, judges = records_of(project.certainty, models, rows, quality, judged=judged, seed=seed)
    made = LanguageProfile(
        operator=project.operator,
        engines=tuple(one.engine for one in measured),
        answers=records,
        certainty=project.certainty,
        judges=judges,
        sharing=tuple(sharing.found),
        prompt_keys=tuple(prompts[i].key for i in usable),
        overhead_s=float(np.mean([one.overhead_s for one in measured])),
        notes={what: value for name, said in task.said.items() for what, value in noted(name, said).items()},
        project=str(path) if folder is None else os.path.relpath(path, folder.resolve()),
    )
    doubts = [*warnings, *(text for one in measured for text in one.warnings), *sharing.warnings, *doubts_about(made)]
    return with_ranks(replace(made, warnings=tuple(dict.fromkeys(doubts))), rankings(made, seed=seed))


def doubts_about(made: LanguageProfile) -> list[str]:
    answers = made.answers
    means = answers.quality.mean(1)
    doubts = [
        f"model {small!r} is better than {large!r} ({means[i]:.3f} and {means[i + 1]:.3f}): models stand from the "
        "smallest to the largest, and a cascade that goes on to a worse one gains nothing"
        for i, (small, large) in enumerate(zip(answers.models, answers.models[1:], strict=False))
        if means[i] > means[i + 1]
    ]
    if not answers.judged:
        doubts.append(
            f"quality is agreement with model {answers.models[-1]!r}, as there is neither a judge nor a reference"
        )
    return doubts
