"""The order of a profile of language models: endpoints are reached, engines timed, prompts asked, pairs timed."""

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from gearshift.errors import GearshiftError, require
from gearshift.measuring.engines.answering import answers_of
from gearshift.measuring.engines.cost import CALLS_TO_REACH, expected, most_calls_of_repeat
from gearshift.measuring.engines.endpoint import Endpoint
from gearshift.measuring.engines.judging import quality_of
from gearshift.measuring.engines.kept import Answered, KeptRows, TimedBeside, TimedDecode, TimedPrefill
from gearshift.measuring.engines.reached import doubts_about_urls, running, said_by, said_by_others
from gearshift.measuring.engines.sharing import (
    Beside,
    Started,
    calls_of_pair,
    doubts_about_sharing,
    factors_of,
    seconds_of_pair,
    steps_of,
    timed_beside,
)
from gearshift.measuring.engines.task import Place, Task, named_pair, pairs_in
from gearshift.measuring.engines.times import decode_times, engine_from_times
from gearshift.measuring.engines.timing import EngineTimer, Work
from gearshift.measuring.engines.under_load import under_load
from gearshift.profiles.engines.engine_profile import EngineProfile, Sharing


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


async def measured_all(task: Task, works: dict[Place, Work]) -> tuple[list[Measured], Shared]:
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
    for pair in pairs_in(task, works):
        places = [(one.name, one.settings.degrees[0]) for one in pair]
        both = engines[places[0]], engines[places[1]]
        kept, other = task.kept[places[0]], task.kept[places[1]].name
        try:
            await _measure_beside(task, pair, both, kept, other)
            shared.found += factors_of(both, [row for (name, _), row in sorted(kept.beside.items()) if name == other])
        except GearshiftError as error:
            shared.warnings.append(
                f"{named_pair(pair)} could not be timed, and are predicted to take turns in steps, without loss: "
                f"{error}"
            )
    shared.warnings += doubts_about_sharing(shared.found)
    return measured, shared


async def _measure_beside(
    task: Task, pair: tuple[Beside, Beside], engines: tuple[EngineProfile, EngineProfile], kept: KeptRows, other: str
) -> None:
    how, most = task.project.profile, most_calls_of_repeat(pair)
    left = [repeat for repeat in range(how.repeats) if (other, repeat) not in kept.beside]
    task.step(f"{named_pair(pair)}", calls_of_pair(pair, how) - most * how.repeats)
    if not left:
        return
    task.notice(f"{named_pair(pair)}: about {seconds_of_pair(pair, engines) * len(left):.0f} s of timing")
    chat = bool(task.prompts[0].messages)
    async with Started(pair, task.path.parent, chat=chat, available=task.available) as timers:
        for repeat in left:
            alone, together = await timed_beside(pair, timers, steps_of(pair, engines))
            kept.keep(TimedBeside(other=other, repeat=repeat, alone=alone, together=together))
            task.step(f"{named_pair(pair)}", most)


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
    task.notice(expected(task, place, work, probe_s=(probe.came_ns[-1] - probe.sent_ns) / 1e9 / len(probe.came_ns)))
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
