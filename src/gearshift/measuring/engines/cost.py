"""The calls and tokens of a profile of language models, announced before the first call and held to the budget."""

from pathlib import Path

from gearshift.errors import require
from gearshift.measuring.engines.sharing import Beside, calls_of_pair
from gearshift.measuring.engines.task import Place, Task, named, named_pair, pairs_in
from gearshift.measuring.engines.timing import Work, calls_of, tokens_of, work_of

CALLS_TO_REACH = 2
"""Calls to try an endpoint that runs already, before the first engine is timed."""


def announced(task: Task, partial: Path | None) -> dict[Place, Work]:
    """Plan the calls of each engine, say what they cost, and hold them to the budget."""
    project, works, texts, calls = task.project, {}, [], 0
    first = next(iter(project.models))
    for place in task.places:
        work = work_of(place[0], task.settings(place), project.profile)
        works[place] = work
        prompts, answers = tokens_of(work, project.profile)
        asked = [*task.asked.values()] if task.answers(place) else []
        size = sum(prompt.size_bytes for prompt in asked)
        most = sum(project.most_tokens if one.max_tokens is None else one.max_tokens for one in asked)
        of_model = calls_of(work, project.profile) + len(asked) + len(task.settings(place).urls[1:])
        if place[0] != first and task.answers(place) and task.settings(place).urls:
            of_model += CALLS_TO_REACH + len(task.settings(place).urls[1:])
        calls += of_model
        texts.append(
            f"{named(task, place)}: {of_model} calls, about {prompts + size // 4:,} tokens of prompts and at most "
            f"{answers + most:,} of answers"
        )
    for pair in pairs_in(task, works):
        most = calls_of_pair(pair, project.profile)
        calls += most
        prompts = sum(one.most_calls * one.context for one in pair) * project.profile.repeats
        answers = sum(one.most_calls * one.tokens for one in pair) * project.profile.repeats
        texts.append(
            f"{named_pair(pair)}: at most {most} calls, {prompts:,} tokens of prompts and {answers:,} of answers"
        )
    judged = len(project.models) * len(task.prompts) if project.judge else 0
    if judged:
        texts.append(f"{project.judge}: at most {judged} answers to judge")
    for text in texts:
        task.notice(text)
    kept = sum(len(rows) for rows in task.kept.values())
    if kept or len(task.judgements):
        also = f", and {len(task.judgements)} answers that are judged," if len(task.judgements) else ""
        task.notice(f"going on with {kept} answers and times{also} in {partial}")
    before = _calls_before(task, works)
    budget = project.profile.most_calls
    require(
        budget is None or calls - before <= budget,
        f"{calls - before} calls are left to be made, and most_calls is {budget}",
        where=str(task.path),
        remedy="raise it, or give fewer prompts, repeats, concurrency or contexts in [profile]",
    )
    task.planned = calls + judged
    task.step("reaching engines", before + _judged_before(task))
    return works


def _calls_before(task: Task, works: dict[Place, Work]) -> int:
    """The calls whose answers and times are kept."""
    calls, repeats = 0, range(task.project.profile.repeats)
    for place, work in works.items():
        kept = task.kept[place]
        calls += sum((tokens, repeat) in kept.prefills for tokens in work.lengths for repeat in repeats)
        calls += sum(2 * one[0] for one in work.together for repeat in repeats if (*one, repeat) in kept.decodes)
        calls += sum(key in kept.answers for key in task.asked) if task.answers(place) else 0
    for pair in pairs_in(task, works):
        of, other = (task.kept[one.name, one.settings.degrees[0]] for one in pair)
        calls += most_calls_of_repeat(pair) * sum((other.name, repeat) in of.beside for repeat in repeats)
    return calls


def _judged_before(task: Task) -> int:
    """The kept answers whose judgements are kept, too."""
    return sum(
        task.judgements.of(prompt, kept.answers[key].text) is not None
        for place, kept in task.kept.items()
        if task.answers(place)
        for key, prompt in task.asked.items()
        if key in kept.answers
    )


def most_calls_of_repeat(pair: tuple[Beside, Beside]) -> int:
    return sum(one.most_calls for one in pair)


def expected(task: Task, place: Place, work: Work, *, probe_s: float) -> str:
    how, project = task.project.profile, task.project
    timing = how.repeats * (len(work.lengths) + (how.decoded_tokens + 4) * len(work.together)) * probe_s
    told = f"{named(task, place)}: about {timing:.0f} s of timing"
    if not task.answers(place):
        return told
    left = sum(key not in task.kept[place].answers for key in task.asked)
    answering = left * project.most_tokens * probe_s / how.at_once
    return f"{told}, and up to about {answering:.0f} s for {left} answers"
