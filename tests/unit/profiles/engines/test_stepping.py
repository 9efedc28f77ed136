"""Steps of an engine with continuous batching, worked out by hand, and what holds for all requests."""

import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.shared.engine_runs import run_by_steps, run_engine
from gearshift.errors import InvalidInput
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve
from gearshift.profiles.engines.stepping import Engine, Generation
from tests.often import often

MS = 1_000_000
PROFILE = EngineProfile(
    model="small",
    device_kind="gpu",
    prefill=StepCurve(tokens=(1, 100), step_s=(0.010, 0.020)),
    decode=StepCurve(tokens=(1, 100), step_s=(0.001, 0.002)),
    block_tokens=4,
    kv_blocks=100,
    largest_batched_tokens=8,
    largest_running=4,
)


def run(profile: EngineProfile, arrivals_ms: list[int], prompts: list[int], outputs: list[int]):
    return run_engine(profile, np.array(arrivals_ms, dtype=np.int64) * MS, prompts, outputs)


def works(made) -> list[tuple[int, int]]:
    return [(step.prompt_tokens, step.decoding) for step in made.steps]


def test_a_prompt_is_split_into_chunks_and_the_last_gives_the_first_token():
    made = run(PROFILE, [0], [18], [3])
    assert works(made) == [(8, 0), (8, 0), (2, 0), (0, 1), (0, 1)]
    assert made.first_step.tolist() == [2]
    assert made.last_step.tolist() == [4]
    assert [step.attention_pairs for step in made.steps] == [36, 8 * 8 + 36, 2 * 16 + 3, 0, 0]
    assert [step.kv_tokens for step in made.steps] == [0, 0, 0, 19, 20]


def test_where_the_prompt_gives_no_token_the_step_after_it_does():
    made = run(msgspec.structs.replace(PROFILE, prefill_gives_token=False), [0], [8], [2])
    assert works(made) == [(8, 0), (0, 1), (0, 1)]
    assert (made.first_step.tolist(), made.last_step.tolist()) == ([1], [2])


def test_decoding_goes_on_beside_a_prompt_unless_prompts_go_first():
    mixed = run(PROFILE, [0, 1], [4, 10], [4, 1])
    assert works(mixed) == [(4, 0), (7, 1), (3, 1), (0, 1)]
    first = run(msgspec.structs.replace(PROFILE, scheduler="prefill_first"), [0, 1], [4, 10], [4, 1])
    assert works(first) == [(4, 0), (8, 0), (2, 0), (0, 1), (0, 1), (0, 1)]


def test_an_engine_at_rest_begins_when_a_request_comes():
    made = run(PROFILE, [5, 500], [4, 4], [1, 1])
    assert made.began_ns.tolist() == [5 * MS, 500 * MS]


def test_where_blocks_run_out_the_newest_gives_up_its_own_and_computes_all_again():
    tight = msgspec.structs.replace(PROFILE, kv_blocks=4)
    made = run(tight, [0, 0], [4, 4], [9, 5])
    assert made.preempted.tolist() == [0, 1]
    assert made.finished_ns[0] < made.finished_ns[1]
    again = made.steps[made.first_step[0] + 5 :]
    assert max(step.prompt_tokens for step in again) > 4  # the prompt, and the tokens that were there


def test_a_request_that_can_never_be_held_is_refused():
    with pytest.raises(InvalidInput, match="takes 101 blocks, and the engine of 'small' has 100"):
        run(PROFILE, [0], [400], [4])


def test_steps_longer_than_measured_are_refused():
    with pytest.raises(InvalidInput, match="measured with up to 100 tokens, and it batches 512"):
        msgspec.structs.replace(PROFILE, largest_batched_tokens=512)


def test_a_request_that_is_cancelled_frees_its_blocks():
    engine = Engine(PROFILE)
    kept, gone, waits = Generation(4, 9), Generation(4, 9), Generation(4, 9)
    for one in (kept, gone):
        engine.add(one)
    engine.end_step(engine.begin_step())
    engine.add(waits)
    engine.cancel(gone)
    engine.cancel(waits)
    engine.cancel(gone)
    while (step := engine.begin_step()) is not None:
        engine.end_step(step)
    assert [one.given for one in (kept, gone, waits)] == [9, 1, 0]
    assert engine.free_blocks == PROFILE.kv_blocks


REQUESTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=12).map(
    sorted
)


@settings(max_examples=often(100))
@given(
    REQUESTS,
    st.sampled_from(["mixed", "prefill_first"]),
    st.booleans(),
    st.integers(12, 30),
    st.integers(1, 5),
)
def test_each_request_gets_its_tokens_and_no_step_is_too_large(requests, scheduler, gives, blocks, running):
    profile = msgspec.structs.replace(
        PROFILE,
        scheduler=scheduler,
        prefill_gives_token=gives,
        kv_blocks=blocks,
        watermark_blocks=1,
        largest_running=running,
    )
    arrivals, prompts, outputs = map(list, zip(*requests, strict=True))
    made = run(profile, arrivals, prompts, outputs)
    assert all(0 < step.batched_tokens <= 8 for step in made.steps)
    assert all(step.decoding + step.prompts <= running for step in made.steps)
    assert (made.first_token_ns > np.array(arrivals) * MS).all()
    assert (made.finished_ns >= made.first_token_ns).all()
    alone = made.preempted.sum() == 0
    computed = sum(step.prompt_tokens for step in made.steps)
    assert computed == sum(prompts) if alone else computed > sum(prompts)
    given_by_decoding = sum(step.decoding for step in made.steps)
    by_prompts = len(requests) if gives else 0
    assert given_by_decoding == sum(outputs) - by_prompts or not alone


def test_arrivals_by_step_are_arrivals_when_these_begin():
    by_steps = run_by_steps(PROFILE, np.array([0, 2]), [8, 8], [4, 2])
    by_time = run_engine(PROFILE, by_steps.began_ns[[0, 2]], [8, 8], [4, 2])
    for field in dataclasses.fields(by_steps):
        assert np.array_equal(getattr(by_steps, field.name), getattr(by_time, field.name)), field.name


def test_more_requests_than_a_step_decodes_are_refused():
    with pytest.raises(InvalidInput, match="runs 9 requests at a time, and steps of up to 8 decoding requests"):
        msgspec.structs.replace(PROFILE, largest_running=9)


def test_without_requests_there_is_no_step():
    assert run(PROFILE, [], [], []).steps == ()
