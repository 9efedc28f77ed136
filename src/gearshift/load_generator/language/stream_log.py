"""The end of each request to a server of language models, and the figures of a replay."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.objective import Objective
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.result import ServingResult, percentiles, summarise_streams

UNKNOWN = -1
LATE_S = 0.05
"""Requests sent later than this make a replay doubtful."""
MOST_LATE = 0.05
LONGEST_NAME = 200


@dataclass(slots=True)
class StreamedRequest:
    """One request, in seconds since the replay began.

    `first_s` is when its first content came, `ended_s` its last; `model` is that which the server
    names, `discarded` are the tokens of models that did not answer. `problem` is empty for a whole
    answer, and `said` what the server told of it; `status` is 0 without one. `unjudged` is why a judge
    gave it no quality.
    """

    due_s: float
    record: int
    sent_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    ended_s: float = 0.0
    output_tokens: int = 0
    prompt_tokens: int = 0
    model: str = ""
    gear: int = UNKNOWN
    discarded: dict[str, int] = field(default_factory=dict)
    text: str = ""
    status: int = 0
    problem: str = "no answer"
    said: str = ""
    quality: float = float("nan")
    unjudged: str = ""

    @property
    def answered(self) -> bool:
        return not self.problem


class StreamReplay(msgspec.Struct, frozen=True, kw_only=True):
    """`lateness_s` is how late requests were sent: p50, p99, at most. `problems` counts what went wrong, in words.

    `valid` is False where many were sent late, as the figures are then those of the generator, and where
    none was answered. `left_out` requests of the trace were not sent, as no context holds them.
    """

    result: ServingResult
    lateness_s: tuple[float, float, float]
    problems: dict[str, int]
    valid: bool
    answered: int = 0
    left_out: int = 0


def figures_of(
    requests: list[StreamedRequest],
    profile: LanguageProfile,
    objective: Objective,
    *,
    duration_s: float,
    since: Literal["due", "sent"] = "due",
) -> StreamReplay:
    """The figures, judged as simulated ones are; quality is as found, or as recorded for the model that answered.

    Times count from when a request was due, or sent.
    """
    whole = [one for one in requests if one.answered]
    began_s = np.array([one.due_s if since == "due" else one.sent_s for one in whole])
    span_s = np.array([one.last_s - one.first_s for one in whole])
    pairs = np.array([one.output_tokens - 1.0 for one in whole])
    names = [one.model for one in whole]
    discarded: dict[str, int] = {}
    for one in whole:
        for model, tokens in one.discarded.items():
            discarded[model] = discarded.get(model, 0) + tokens
    metric = objective.metric if isinstance(objective.metric, str) else "ttft"
    result = summarise_streams(
        ttft_s=np.array([one.first_s for one in whole]) - began_s,
        per_token_s=np.where(pairs > 0, span_s / np.maximum(pairs, 1), np.nan),
        total_s=np.array([one.ended_s for one in whole]) - began_s,
        metric=metric,
        output_tokens=sum(one.output_tokens for one in whole),
        discarded_tokens=discarded,
        answered_by={name: names.count(name) / len(names) for name in dict.fromkeys(names) if name},
        quality=quality_of(whole, profile),
        requests=len(requests),
        refused=sum(one.status in (429, 503) for one in requests),
        latency_objective_s=objective.latency_s,
        duration_s=duration_s,
        devices=0,
        utilisation={},
        independent_samples=len({one.record for one in whole}),
    )
    late = np.array([one.sent_s - one.due_s for one in requests])
    p50, p99 = percentiles(late, (0.5, 0.99))
    kinds: dict[str, list[StreamedRequest]] = {}
    for one in requests:
        if one.problem:
            kinds.setdefault(one.problem, []).append(one)
    problems = {_told(kind, alike[0].said): len(alike) for kind, alike in kinds.items()}
    if unjudged := [one.unjudged for one in requests if one.unjudged]:
        problems[f"not judged, so with the recorded quality: {unjudged[0]}"] = len(unjudged)
    if unknown := [one.model for one in whole if np.isnan(one.quality) and one.model not in profile.models]:
        problems[_of_unknown(unknown[0], profile.models)] = len(unknown)
    return StreamReplay(
        result=result,
        lateness_s=(p50, p99, float(late.max())),
        problems=problems,
        valid=bool(whole) and float((late > LATE_S).mean()) <= MOST_LATE,
        answered=len(whole),
    )


def _of_unknown(model: str, models: Sequence[str]) -> str:
    named = f"answered by {model[:LONGEST_NAME]!r}, which the profile lacks" if model else "answered by no model's name"
    return f"{named}, so with the quality recorded for {models[-1]!r}; give a project with a judge or references"


def _told(problem: str, said: str) -> str:
    """A problem, with what the server told of the first request that had it."""
    return f"{problem}, such as {said!r}" if said else problem


def quality_of(whole: list[StreamedRequest], profile: LanguageProfile) -> NDArray[np.float64]:
    """Quality (n,): as judged, else as recorded for the answering model, else as the last model's."""
    places = {model: row for row, model in enumerate(profile.models)}
    found = np.array([one.quality for one in whole])
    recorded = np.array(
        [profile.answers.quality[places.get(one.model, len(places) - 1), one.record] for one in whole], dtype=np.float64
    )
    return np.where(np.isnan(found), recorded, found)
