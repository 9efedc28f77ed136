"""Ask one model for its answers to all prompts, several at a time, and keep each as it comes."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from gearshift.errors import GearshiftError, NoAnswer, require
from gearshift.measuring.engines.endpoint import OF_PROMPT, BrokenAnswer, Endpoint, Refused
from gearshift.measuring.engines.heard import Heard
from gearshift.measuring.engines.kept import Answered, KeptRows
from gearshift.measuring.engines.timing import require_logprobs
from gearshift.models.language_config import LanguageProject
from gearshift.profiles.engines.certainty import recorded_features, recorded_sums
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS
from gearshift.profiles.engines.prompts import Prompt

MOST_NAMED = 20
"""Prompts left out that a warning names."""


async def answers_of(
    endpoint: Endpoint,
    project: LanguageProject,
    prompts: Sequence[Prompt],
    kept: KeptRows,
    answered: Callable[[], None],
) -> dict[str, Answered]:
    """The answer to each prompt by its key, or why there is none; raises where there is none to any."""
    left = [prompt for key, prompt in {one.key: one for one in prompts}.items() if key not in kept.answers]
    most = asyncio.Semaphore(project.profile.at_once)
    failed: list[GearshiftError] = []

    async def one(prompt: Prompt) -> None:
        async with most:
            if failed:
                return
            try:
                answer = await _answer(endpoint, project, prompt)
                kept.keep(msgspec.structs.replace(answer, at_once=project.profile.at_once))
            except GearshiftError as error:  # answers that were asked for are still kept
                failed.append(error)
            answered()

    async with asyncio.TaskGroup() as group:
        for prompt in left:
            group.create_task(one(prompt))
    if failed:
        raise failed[0]
    found = {prompt.key: kept.answers[prompt.key] for prompt in prompts}
    refused = next((row.refused for row in found.values() if row.refused), "")
    require(
        any(not row.refused for row in found.values()),
        f"model {endpoint.name!r} answered no prompt: {refused}",
        remedy="mend its settings, or the prompts",
    )
    return found


async def _answer(endpoint: Endpoint, project: LanguageProject, prompt: Prompt) -> Answered:
    most_tokens = project.most_tokens if prompt.max_tokens is None else prompt.max_tokens
    most_tokens = min(most_tokens, endpoint.settings.context_tokens)
    try:
        try:
            heard = await endpoint.ask_patiently(prompt, most_tokens=most_tokens, temperature=project.temperature)
        except Refused as error:
            shorter = min(most_tokens // 2, endpoint.settings.context_tokens - prompt.size_bytes - 64)
            if error.status not in OF_PROMPT or shorter < 1:
                raise
            # Some engines refuse a prompt that fits, where the longest possible answer would not fit beside it.
            heard = await endpoint.ask_patiently(prompt, most_tokens=shorter, temperature=project.temperature)
    except Refused as error:
        if error.status not in OF_PROMPT:
            raise
        return Answered(prompt=prompt.key, refused=str(error))
    except BrokenAnswer as error:
        return Answered(prompt=prompt.key, refused=str(error))
    except NoAnswer as error:
        raise NoAnswer(f"prompt {prompt.id!r}: {error}", sent=error.sent) from error
    require_logprobs(endpoint, heard)
    return answered_row(prompt, heard)


def answered_row(prompt: Prompt, heard: Heard) -> Answered:
    logprobs = [token.logprob for token in heard.tokens]
    seconds = [token.second for token in heard.tokens]
    prompt_tokens = max(1, heard.prompt_tokens)
    of_arguments = heard.of_arguments
    return Answered(
        prompt=prompt.key,
        text=heard.answer,
        prompt_tokens=prompt_tokens,
        output_tokens=max(1, heard.output_tokens),
        features=tuple(recorded_features(DECIDE_AT_TOKENS, logprobs, seconds, prompt_tokens, of_arguments)),
        sums=tuple(recorded_sums(DECIDE_AT_TOKENS, logprobs, of_arguments)),
        took_s=(heard.came_ns[-1] - heard.sent_ns) / 1e9 if heard.came_ns else 0.0,
    )


def prompts_answered(
    models: Sequence[str], prompts: Sequence[Prompt], answers: Sequence[dict[str, Answered]]
) -> tuple[list[int], list[str]]:
    """The numbers of the prompts that all models answered, and a sentence that names those left out."""
    usable, left_out = [], []
    for number, prompt in enumerate(prompts):
        none = [(model, rows[prompt.key].refused) for model, rows in zip(models, answers, strict=True)]
        refused = [(model, why) for model, why in none if why]
        if refused:
            who = "no model" if len(refused) == len(models) else "not " + ", ".join(repr(one) for one, _ in refused)
            left_out.append(f"prompt {prompt.id!r} ({who}: {refused[0][1]})")
        else:
            usable.append(number)
    if not left_out:
        return usable, []
    more = f"; and {len(left_out) - MOST_NAMED} more" if len(left_out) > MOST_NAMED else ""
    return usable, [
        f"{len(left_out)} of {len(prompts)} prompts were left out, as not every model answered them: "
        f"{'; '.join(left_out[:MOST_NAMED])}{more}"
    ]
