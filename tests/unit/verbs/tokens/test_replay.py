"""What is sent to a server of language models, and simulated beside it, is one workload."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.profiles.engines.engine_profile import EngineProfile
from gearshift.profiles.engines.prompts import Prompt
from gearshift.runtime.engines.requests.asked import CHAT, Asked
from gearshift.verbs.tokens.inputs import language_workload
from gearshift.verbs.tokens.replay import Asking, outgoing, recorded_prompts, trace_to_send, workload_to_send
from gearshift.workload import Trace
from tests.two_language_models import language_profile

PROFILE = language_profile()
COUNT = 6
TOKENS = {"prompt_tokens": np.array([1, 2, 3, 40, 5, 6]), "output_tokens": np.array([9, 1, 7, 5, 3, 30])}
WITH_TOKENS = Trace(np.arange(COUNT) * 10**9, float(COUNT), **TOKENS)
PROMPTS = tuple(
    Prompt(id=i, prompt=f"question {i}", max_tokens=None if i % 2 else 7, body={"top_p": 0.5}) for i in range(64)
)


def test_made_up_prompts_and_their_answers_are_as_long_as_on_the_trace() -> None:
    workload = workload_to_send(PROFILE, WITH_TOKENS, Asking(), PROFILE.engines)
    sent = outgoing(workload, Asking(), "chat")
    words = [len(one.body["messages"][0]["content"].split()) for one in sent]
    assert words == workload.prompt_tokens.tolist() == [2, 2, 3, 40, 5, 6]  # type: ignore[union-attr]
    assert [one.body["max_tokens"] for one in sent] == workload.output_tokens.tolist()  # type: ignore[union-attr]
    assert all(one.body["ignore_eos"] for one in sent)


def test_prompts_of_a_project_have_their_own_tokens_and_are_asked_as_they_were_profiled() -> None:
    asking = Asking(PROMPTS, None, temperature=0.25, most_tokens=11)
    workload = workload_to_send(PROFILE, WITH_TOKENS, asking, PROFILE.engines)
    assert (workload.prompt_tokens, workload.output_tokens) == (None, None)
    for one in outgoing(workload, asking, "chat"):
        of = {"temperature": 0.25, "top_p": 0.5, "max_tokens": 11 if one.record % 2 else 7}
        assert one.body | of | {"prompt": f"question {one.record}"} == one.body
        assert "ignore_eos" not in one.body


def test_requests_are_split_by_the_id_that_is_sent() -> None:
    workload = workload_to_send(PROFILE, WITH_TOKENS, Asking(), PROFILE.engines)
    sent = outgoing(workload, Asking(), "chat")
    by_server = [Asked(path=CHAT, fields={}, prompt_bytes=1, held_bytes=1, id=one.id).by_id for one in sent]
    assert workload.by_id.tolist() == by_server
    assert len(set(by_server)) == COUNT


@pytest.mark.parametrize("asking", [Asking(), Asking(PROMPTS)])
def test_prompts_and_times_are_those_that_simulate_has(asking: Asking) -> None:
    sent = workload_to_send(PROFILE, WITH_TOKENS, asking, PROFILE.engines)
    simulated = language_workload(PROFILE, WITH_TOKENS)
    assert sent.record.tolist() == simulated.record.tolist()
    assert sent.arrivals_ns.tolist() == simulated.arrivals_ns.tolist()


def with_contexts(*tokens: int) -> list[EngineProfile]:
    return [
        msgspec.structs.replace(engine, context_tokens=most)
        for engine, most in zip(PROFILE.engines, tokens, strict=True)
    ]


def test_requests_that_no_context_holds_are_neither_sent_nor_simulated() -> None:
    workload = workload_to_send(PROFILE, WITH_TOKENS, Asking(), with_contexts(9, 12))
    sent = outgoing(workload, Asking(), "chat")
    assert [one.due_s for one in sent] == [0, 1, 2, 4]
    assert [one.body["max_tokens"] for one in sent] == [9, 1, 7, 3]
    _, (told, _) = trace_to_send(WITH_TOKENS, with_contexts(9, 12), own_prompts=False)
    assert told.startswith("2 of 6 requests have more than the 12 tokens of the longest context, and are left out")


def test_a_made_up_prompt_counts_with_the_tokens_that_its_name_takes() -> None:
    trace = Trace(np.arange(2), 1.0, prompt_tokens=np.array([1, 1]), output_tokens=np.array([9, 8]))
    assert trace_to_send(trace, with_contexts(10, 10), own_prompts=False)[0].arrivals_ns.tolist() == [1]


@pytest.mark.parametrize("trace", [WITH_TOKENS, replace(WITH_TOKENS, prompt_tokens=None)])
def test_prompts_of_a_project_are_all_sent_whatever_tokens_the_trace_has(trace: Trace) -> None:
    sent, (told,) = trace_to_send(trace, with_contexts(9, 12), own_prompts=True)
    assert (len(sent), "of the trace its times alone count" in told) == (COUNT, True)


def test_prompts_are_found_by_their_key_whatever_was_left_out_or_moved() -> None:
    keys = tuple(prompt.key for prompt in PROMPTS)
    profile = replace(PROFILE, prompt_keys=keys)
    twice = msgspec.structs.replace(PROMPTS[3], id="again")
    others = (Prompt(id="new", prompt="another"), *reversed(PROMPTS), twice)
    assert recorded_prompts(profile, others) == PROMPTS
    with pytest.raises(InvalidInput, match="of 64 prompts that were profiled, 1 are missing or were changed"):
        recorded_prompts(profile, PROMPTS[1:])


def test_prompts_of_a_profile_without_keys_go_by_their_place() -> None:
    assert recorded_prompts(PROFILE, PROMPTS) == PROMPTS
    with pytest.raises(InvalidInput, match="there are 63 prompts, and the profile has answers to 64"):
        recorded_prompts(PROFILE, PROMPTS[1:])
