"""Prompts are measured by what engines read."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gearshift.models.language_config import PICTURE_TOKENS
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.runtime.engines.requests.asked import CHAT, Asked
from gearshift.runtime.engines.requests.engine_request import EngineRequest
from gearshift.runtime.engines.requests.prompt_sizes import FIRST_GUESS, PromptSizes
from gearshift.runtime.engines.upstream.chunk import Usage
from tests.two_language_models import cascade, language_plan, language_profile

SMALL, LARGE = 0, 1
MOST = 100_000


def asked(prompt_bytes: int, *, media: int = 0, choices: int = 1) -> Asked:
    return Asked(path=CHAT, fields={}, prompt_bytes=prompt_bytes, held_bytes=0, media=media, choices=choices)


def sizes(pictures: float = 500.0, most: int = MOST) -> PromptSizes:
    return PromptSizes([pictures, 2 * pictures], [most, most])


def counted(sizes: PromptSizes, of: Asked, tokens: int, *, cached: Any = 0, model: int = SMALL) -> list[int]:
    """Let the model's engine count the prompt; returns the tokens that are guessed then."""
    request = EngineRequest(0, 0.5, sizes.tokens(of))
    request.model, request.visited = model, 1 << model
    sizes.learn(request, of, Usage(prompt_tokens=tokens, prompt_tokens_details={"cached_tokens": cached}))
    return list(request.prompt_tokens)


def test_text_is_guessed_by_its_bytes_and_then_by_what_each_model_counts() -> None:
    guessed = sizes()
    assert guessed.tokens(asked(400)) == [FIRST_GUESS * 400] * 2
    counted(guessed, asked(400), 200)
    assert guessed.tokens(asked(400)) == [200, 100]
    counted(guessed, asked(400), 100)
    assert guessed.tokens(asked(400)) == [195, 100]


def test_a_picture_counts_as_declared_and_then_as_engines_count() -> None:
    guessed = sizes()
    assert guessed.tokens(asked(400, media=2)) == [1100, 2100]
    counted(guessed, asked(400), 100)
    counted(guessed, asked(400, media=2), 2500)
    assert guessed.tokens(asked(400, media=1)) == [1300, 1100]
    assert guessed.tokens(asked(400)) == [100, 100]


def test_nothing_is_learned_of_pictures_before_something_is_known_of_text() -> None:
    guessed = sizes()
    counted(guessed, asked(400, media=1), 3000)
    assert guessed.tokens(asked(400, media=1)) == [600, 1100]


def test_pictures_never_take_less_than_nothing() -> None:
    guessed = sizes()
    counted(guessed, asked(400), 400)
    counted(guessed, asked(400, media=1), 10)
    assert guessed.tokens(asked(400, media=1))[SMALL] == 400


def test_what_is_cached_is_not_read() -> None:
    guessed = sizes()
    for _ in range(200):
        counted(guessed, asked(4000), 1000, cached=750)
    assert guessed.tokens(asked(4000)) == [pytest.approx(250, abs=2), 1000]
    assert guessed.tokens(asked(0)) == [1, 1]


@pytest.mark.parametrize("cached", [None, -5, "many", 5.5, [], 10**9])
def test_cached_tokens_that_are_none_do_no_harm(cached: Any) -> None:
    guessed = sizes()
    counted(guessed, asked(4000), 1000, cached=cached)
    assert 950 <= guessed.tokens(asked(4000))[SMALL] <= 1000
    assert Usage(prompt_tokens=7, prompt_tokens_details=cached).cached_tokens == 0


def test_a_count_corrects_the_guess_for_the_models_that_may_come_next() -> None:
    guessed = sizes()
    assert counted(guessed, asked(400, media=1), 1200) == [600, 2200]
    request = EngineRequest(0, 0.5, [100, 100])
    request.model, request.visited = SMALL, 0b11  # the other has it, or had it
    guessed.learn(request, asked(400), Usage(prompt_tokens=300))
    assert request.prompt_tokens == [100, 100]


def test_no_prompt_is_larger_than_a_context() -> None:
    guessed = sizes(most=1000)
    assert guessed.tokens(asked(1 << 30, media=1 << 20)) == [1000, 1000]
    assert guessed.tokens(asked(1 << 30, choices=3)) == [3000, 3000]
    counted(guessed, asked(1000), 1 << 60)
    assert guessed.tokens(asked(500)) == [500, 125]


def test_what_is_declared_comes_from_the_profile() -> None:
    profile = language_profile()
    engines = [
        msgspec.structs.replace(one, picture_tokens=300, context_tokens=700) if one.model == "small" else one
        for one in profile.engines
    ]
    tables = engine_tables(language_plan([cascade(-0.5, 4)]), replace(profile, engines=tuple(engines)))
    guessed = PromptSizes.of(tables)
    assert guessed.tokens(asked(0, media=1)) == [300, min(PICTURE_TOKENS, tables.engines[1].held_tokens)]
    assert guessed.tokens(asked(0, media=3))[SMALL] == 700
