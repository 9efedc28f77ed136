"""Profile a project of language models from outside: engines are timed, all prompts answered and judged."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from gearshift.errors import GearshiftError, require
from gearshift.hardware import is_cuda
from gearshift.measuring.engines.answering import answers_of, prompts_answered
from gearshift.measuring.engines.endpoint import Endpoint
from gearshift.measuring.engines.judging import Judge, judge_of, quality_of
from gearshift.measuring.engines.kept import (
    Answered,
    KeptJudgements,
    KeptRows,
    TimedBeside,
    TimedDecode,
    TimedPrefill,
    kept_judgements,
    partial_folder,
)
from gearshift.measuring.engines.reached import (
    Said,
    cores_as_served,
    doubts_about_urls,
    running,
    said_by,
    said_by_others,
)
from gearshift.measuring.engines.records import records_of
from gearshift.measuring.engines.sharing import (
    Beside,
    Started,
    beside_of,
    calls_of_pair,
    doubts_about_sharing,
    factors_of,
    pairs_of,
    seconds_of_pair,
    steps_of,
    timed_beside,
)
from gearshift.measuring.engines.times import decode_times, engine_from_times
from gearshift.measuring.engines.timing import EngineTimer, Work, calls_of, first_of, tokens_of, work_of
from gearshift.measuring.engines.under_load import under_load
from gearshift.models.language_config import EngineSettings, LanguageProject, read_language_project
from gearshift.profiles.engines.engine_profile import EngineProfile, Sharing
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.prompts import Prompt, read_prompts
from gearshift.profiles.engines.ranking import rankings, with_ranks
from gearshift.runtime.backends.local import available_cores
from gearshift.runtime.engines.replicas.identity import noted
from gearshift.support.event_loop import run_in_own_loop
from gearshift.support.processors import pinned

Progress = Callable[[str, float], None]
Notice = Callable[[str], None]


CALLS_TO_REACH = 2
"""Calls to try an endpoint that runs already, before the first engine is timed."""
Place = tuple[str, int]
"""A model, and its `tensor_parallel`."""


@dataclass(slots=True, eq=False)
class Task:
    """The cost of a profile; `planned` counts the calls of models and judge, `done` those made or kept."""

    path: Path
    project: LanguageProject
    prompts: tuple[Prompt, ...]
    kept: dict[Place, KeptRows]
    judgements: KeptJudgements
    progress: Progress
    notice: Notice
    judge: Judge | None = None
    planned: int = 0
    done: int = 0
    available: tuple[int, ...] = field(default_factory=available_cores)
    """The processors for engines and for this process."""
    said: dict[str, list[Said]] = field(default_factory=dict)
    """The words about themselves of each model's endpoints, of whatever degree, as any of them may be served."""

    @property
    def places(self) -> list[Place]:
        """Engines to be measured; the first of each model is asked for answers, too."""
        return [(name, degree) for name, model in self.project.models.items() for degree in model.engine.degrees]

    @property
    def asked(self) -> dict[str, Prompt]:
        """The prompts by their keys; of alike ones, which are asked once, the last."""
        return {one.key: one for one in self.prompts}

    def settings(self, place: Place) -> EngineSettings:
        name, degree = place
        return self.project.models[name].engine.on(degree)

    def answers(self, place: Place) -> bool:
        name, degree = place
        return degree == self.project.models[name].engine.degrees[0]

    def step(self, what: str, calls: int = 1) -> None:
        self.done += calls
        self.progress(what, min(1.0, self.done / max(1, self.planned)))


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
    works = _announce(task, partial)
    try:
        with pinned(_beside_engines(task)):
            measured, sharing = run_in_own_loop(_measure_all(task, works))
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


def _beside_engines(task: Task) -> frozenset[int] | None:
    """The processors that engines leave to this process, as where they are served; None where none have any."""
    started = [task.settings(place) for place in task.places if task.settings(place).command]
    if not started or any(is_cuda(one.kind) for one in started):
        return None
    taken = frozenset[int]().union(*(cores_as_served(one, task.available) for one in started))
    return frozenset(task.available) - taken or None


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


def _announce(task: Task, partial: Path | None) -> dict[Place, Work]:
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
            f"{_named(task, place)}: {of_model} calls, about {prompts + size // 4:,} tokens of prompts and at most "
            f"{answers + most:,} of answers"
        )
    for pair in _pairs(task, works):
        most = calls_of_pair(pair, project.profile)
        calls += most
        prompts = sum(one.most_calls * one.context for one in pair) * project.profile.repeats
        answers = sum(one.most_calls * one.tokens for one in pair) * project.profile.repeats
        texts.append(f"{_both(pair)}: at most {most} calls, {prompts:,} tokens of prompts and {answers:,} of answers")
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
    for pair in _pairs(task, works):
        of, other = (task.kept[one.name, one.settings.degrees[0]] for one in pair)
        calls += _most_calls_of_repeat(pair) * sum((other.name, repeat) in of.beside for repeat in repeats)
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


class Measured(NamedTuple):
    """One engine: its times, the seconds that a request takes beside it, and answers where they were asked for."""

    engine: EngineProfile
    overhead_s: float
    warnings: list[str]
    answers: dict[str, Answered] | None

    def with_reading(self, read_s: float) -> "Measured":
        """With an engine that takes so long to read a request."""
        engine = msgspec.structs.replace(self.engine, overhead_per_prompt_s=read_s)
        return self._replace(engine=engine, overhead_s=max(0.0, self.overhead_s - read_s))


async def _reach_all(task: Task) -> None:
    """Ask endpoints that run already for a word before the first engine is timed, which may take long and cost much."""
    for name, model in [*task.project.models.items()][1:]:
        if model.engine.urls:
            settings = task.settings((name, model.engine.degrees[0]))
            endpoint = Endpoint(name, settings, settings.urls[0])
            try:
                chat = bool(task.prompts[0].messages)
                await EngineTimer(endpoint, task.project.profile, chat=chat).probe()
                others = await said_by_others(endpoint, chat=chat)
                task.step(f"{name}: reached", CALLS_TO_REACH + len(others))
            finally:
                endpoint.close()


def _try_judge(task: Task, first: "Measured") -> None:
    """On one answer, before the other models are asked."""
    for prompt in task.prompts:
        answer = None if first.answers is None else first.answers[prompt.key]
        if task.judge is not None and answer is not None and not answer.refused:
            quality_of(task.project, task.judge, [prompt], [[answer.text]], kept=task.judgements)
            return


@dataclass(slots=True)
class Shared:
    """How engines slow each other, as far as it could be measured."""

    found: list[Sharing] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


async def _measure_all(task: Task, works: dict[Place, Work]) -> tuple[list[Measured], Shared]:
    await _reach_all(task)
    measured: list[Measured] = []
    for place in task.places:
        one = await _measure(task, place, works[place])
        if one.answers is None:  # its model's first engine was asked for them, just before
            read_s = next(other.engine.reading_s for other in reversed(measured) if other.answers is not None)
            one = one.with_reading(read_s)
        if not measured:
            await asyncio.to_thread(_try_judge, task, one)
        measured.append(one)
    engines = {(one.engine.model, one.engine.tensor_parallel): one.engine for one in measured}
    shared = Shared()
    for pair in _pairs(task, works):
        places = [(one.name, one.settings.degrees[0]) for one in pair]
        both = engines[places[0]], engines[places[1]]
        kept, other = task.kept[places[0]], task.kept[places[1]].name
        try:
            await _measure_beside(task, pair, both, kept, other)
            shared.found += factors_of(both, [row for (name, _), row in sorted(kept.beside.items()) if name == other])
        except GearshiftError as error:
            shared.warnings.append(
                f"{_both(pair)} could not be timed, and are predicted to take turns in steps, without loss: {error}"
            )
    shared.warnings += doubts_about_sharing(shared.found)
    return measured, shared


def _pairs(task: Task, works: dict[Place, Work]) -> list[tuple[Beside, Beside]]:
    if not task.project.profile.sharing:
        return []
    return pairs_of([beside_of(place[0], task.settings(place), work) for place, work in works.items()])


async def _measure_beside(
    task: Task, pair: tuple[Beside, Beside], engines: tuple[EngineProfile, EngineProfile], kept: KeptRows, other: str
) -> None:
    how, most = task.project.profile, _most_calls_of_repeat(pair)
    left = [repeat for repeat in range(how.repeats) if (other, repeat) not in kept.beside]
    task.step(f"{_both(pair)}", calls_of_pair(pair, how) - most * how.repeats)
    if not left:
        return
    task.notice(f"{_both(pair)}: about {seconds_of_pair(pair, engines) * len(left):.0f} s of timing")
    chat = bool(task.prompts[0].messages)
    async with Started(pair, task.path.parent, chat=chat, available=task.available) as timers:
        for repeat in left:
            alone, together = await timed_beside(pair, timers, steps_of(pair, engines))
            kept.keep(TimedBeside(other=other, repeat=repeat, alone=alone, together=together))
            task.step(f"{_both(pair)}", most)


def _most_calls_of_repeat(pair: tuple[Beside, Beside]) -> int:
    return sum(one.most_calls for one in pair)


def _both(pair: tuple[Beside, Beside]) -> str:
    degree = pair[0].settings.degrees[0]
    return f"models {pair[0].name!r} and {pair[1].name!r} beside each other" + (
        f", tensor_parallel {degree}" if degree > 1 else ""
    )


async def _measure(task: Task, place: Place, work: Work) -> Measured:
    (name, _), settings = place, task.settings(place)
    async with running(name, settings, task.path.parent, available=task.available) as url:
        endpoint = Endpoint(name, settings, url)
        try:
            engine, overhead_s, warnings = await _timed(task, endpoint, place, work)
            answers = None
            if task.answers(place):
                answers = await answers_of(
                    endpoint, task.project, task.prompts, task.kept[place], lambda: task.step(f"{name}: answers")
                )
        finally:
            endpoint.close()
    if answers is not None:
        loaded = under_load(engine, overhead_s, [*answers.values()], task.project.profile.at_once)
        engine, overhead_s, warnings = loaded.engine, loaded.beside_s, [*warnings, *loaded.warnings]
    return Measured(engine, overhead_s, warnings, answers)


async def _timed(task: Task, endpoint: Endpoint, place: Place, work: Work) -> tuple[EngineProfile, float, list[str]]:
    how, kept, name = task.project.profile, task.kept[place], endpoint.name
    timer = EngineTimer(endpoint, how, chat=bool(task.prompts[0].messages))
    probe = await timer.probe()
    said = [await said_by(endpoint, probe), *await said_by_others(endpoint, chat=bool(task.prompts[0].messages))]
    task.said.setdefault(name, []).extend(said)
    task.step(f"{name}: reached", 1 + len(said))
    task.notice(_expected(task, place, work, probe_s=(probe.came_ns[-1] - probe.sent_ns) / 1e9 / len(probe.came_ns)))
    for repeat in range(how.repeats):
        for tokens in work.lengths:
            if (tokens, repeat) not in kept.prefills:
                kept.keep(TimedPrefill(wanted=tokens, repeat=repeat, time=await timer.prefill(tokens)))
                task.step(f"{name}: prompt of {tokens} tokens")
        for requests, context in work.together:
            if (requests, context, repeat) not in kept.decodes:
                run = await timer.decode(requests, context)
                kept.keep(TimedDecode(requests=requests, context=context, repeat=repeat, run=run))
                task.step(f"{name}: {requests} requests together", 2 * requests)
    decodes = decode_times([row.run for row in kept.decodes.values()])
    require(
        bool(decodes),
        f"model {name!r} gave too few tokens for a request to be timed",
        where=endpoint.url,
        remedy="raise decoded_tokens in [profile], or use an engine that takes ignore_eos",
    )
    lacking = sorted({row.requests for row in kept.decodes.values()} - {one.requests for one in decodes})
    engine, overhead_s, warnings = engine_from_times(
        name, endpoint.settings, [row.time for row in kept.prefills.values()], decodes
    )
    settings = endpoint.settings
    engine = msgspec.structs.replace(
        engine, context_tokens=settings.context_tokens, picture_tokens=settings.picture_tokens
    )
    if lacking:
        warnings.append(
            f"steps of {', '.join(map(str, lacking))} requests of model {name!r} together could not be timed and are "
            "left out, as longer runs took no longer: profile again without other work, or raise repeats in [profile]"
        )
    return engine, overhead_s, [*doubts_about_urls(name, endpoint.settings.urls, said), *warnings]


def _expected(task: Task, place: Place, work: Work, *, probe_s: float) -> str:
    how, project = task.project.profile, task.project
    timing = how.repeats * (len(work.lengths) + (how.decoded_tokens + 4) * len(work.together)) * probe_s
    told = f"{_named(task, place)}: about {timing:.0f} s of timing"
    if not task.answers(place):
        return told
    left = sum(key not in task.kept[place].answers for key in task.asked)
    answering = left * project.most_tokens * probe_s / how.at_once
    return f"{told}, and up to about {answering:.0f} s for {left} answers"


def _named(task: Task, place: Place) -> str:
    name, degree = place
    several = len(task.project.models[name].engine.degrees) > 1
    return f"model {name!r}" + (f", tensor_parallel {degree}" if several else "")
