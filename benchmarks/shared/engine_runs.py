"""Requests through one engine, from their arrival to their last token."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import to_ns
from gearshift.errors import require
from gearshift.profiles.engines.engine_profile import EngineProfile, StepWork
from gearshift.profiles.engines.stepping import Engine, Generation

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineRun:
    """Per request (n,): when its first and its last token came, and how often it was preempted.

    Per step: its work, and when it began; `first_step` and `last_step` (n,) are those in which the
    tokens came, `came_in` the first that could have taken it.
    """

    first_token_ns: Ints
    finished_ns: Ints
    preempted: Ints
    steps: tuple[StepWork, ...]
    began_ns: Ints
    came_in: Ints
    first_step: Ints
    last_step: Ints


def run_engine(
    profile: EngineProfile, arrivals_ns: Ints, prompt_tokens: Sequence[int], output_tokens: Sequence[int]
) -> EngineRun:
    """Serve requests that arrive at `arrivals_ns` (n,), rising, each to its last token."""
    return _run(profile, arrivals_ns, None, prompt_tokens, output_tokens)


def run_by_steps(
    profile: EngineProfile, arrives_in: Ints, prompt_tokens: Sequence[int], output_tokens: Sequence[int]
) -> EngineRun:
    """As `run_engine`, where request i arrives as step `arrives_in[i]` begins, whenever that is."""
    return _run(profile, None, arrives_in, prompt_tokens, output_tokens)


def _run(
    profile: EngineProfile,
    arrivals_ns: Ints | None,
    arrives_in: Ints | None,
    prompt_tokens: Sequence[int],
    output_tokens: Sequence[int],
) -> EngineRun:
    n = len(prompt_tokens)
    order = arrives_in if arrivals_ns is None else arrivals_ns
    assert order is not None
    require(n == len(output_tokens) == len(order), "requests, their tokens and their arrivals differ in number")
    require(bool((np.diff(order) >= 0).all()), "arrivals do not rise", remedy="sort the requests by arrival")
    require(
        all(tokens > 0 for tokens in (*prompt_tokens, *output_tokens)),
        "a request has no token",
        remedy="give each at least one",
    )
    engine = Engine(profile)
    requests = [Generation(p, o) for p, o in zip(prompt_tokens, output_tokens, strict=True)]
    number = {id(request): i for i, request in enumerate(requests)}
    times = {name: np.zeros(n, dtype=np.int64) for name in ("first_token_ns", "finished_ns")}
    places = {name: np.zeros(n, dtype=np.int64) for name in ("came_in", "first_step", "last_step")}
    steps: list[StepWork] = []
    began: list[int] = []
    now_ns = arrived = ended = 0
    while ended < n:
        while arrived < n and order[arrived] <= (len(steps) if arrivals_ns is None else now_ns):
            places["came_in"][arrived] = len(steps)
            engine.add(requests[arrived])
            arrived += 1
        step = engine.begin_step()
        if step is None:
            require(arrived < n and arrivals_ns is not None, "the engine stands still, and requests wait in it")
            assert arrivals_ns is not None
            now_ns = int(arrivals_ns[arrived])
            continue
        began.append(now_ns)
        now_ns += to_ns(profile.step_s(step.work))
        for request in engine.end_step(step):
            i = number[id(request)]
            if request.given == 1:
                times["first_token_ns"][i], places["first_step"][i] = now_ns, len(steps)
            if request.given == request.output_tokens:
                times["finished_ns"][i], places["last_step"][i] = now_ns, len(steps)
                ended += 1
        steps.append(step.work)
    return EngineRun(
        **times,
        **places,
        preempted=np.array([request.preempted for request in requests]),
        steps=tuple(steps),
        began_ns=np.array(began),
    )
