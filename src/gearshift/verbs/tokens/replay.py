"""Send a trace to a server of language models, and measure."""

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.errors import GearshiftError, require
from gearshift.language_workload import LanguageWorkload, number_of_id
from gearshift.load_generator.language.open_loop import Outgoing, send_all
from gearshift.load_generator.language.stream_log import StreamedRequest, StreamReplay, figures_of
from gearshift.measuring.engines.judging import judge_of, quality_of
from gearshift.models.config import project_file
from gearshift.models.language_config import read_language_project
from gearshift.objective import Objective
from gearshift.profiles.engines.contexts import answerable
from gearshift.profiles.engines.engine_profile import EngineProfile
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.prompts import Prompt, read_prompts
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice, noted, trace_for
from gearshift.verbs.common.sending import Sent, Traces
from gearshift.verbs.tokens.inputs import language_profile, language_workload
from gearshift.workload import Trace

LONGEST_S = 600.0
FILLER = " word"
"""About one token in most tokenizers, of which prompts are made to length."""
LEAST_PROMPT_TOKENS = 2
"""The id of a made-up prompt, which names its record."""

Judge = Callable[[int, str], float]
"""The quality of an answer to a recorded prompt."""


class Asking(NamedTuple):
    """The requests to send, and the judge of answers: recorded quality where there is none.

    `prompts` has one for each record of the profile. They are asked as they were profiled, with
    `temperature` and for `most_tokens`.
    """

    prompts: tuple[Prompt, ...] | None = None
    judge: Judge | None = None
    temperature: float = 0.0
    most_tokens: int = 1


class Asked(NamedTuple):
    """Where requests are sent, and how."""

    url: str
    asking: Asking
    key: str | None = None
    longest_s: float = LONGEST_S

    def send(self, requests: Sequence[Outgoing], progress: Sent | None = None) -> list[StreamedRequest]:
        """Send all at their times. A judge is tried before on one more answer to the first; raises its error."""
        judge = self.asking.judge
        if judge is not None and requests and (one := self.alone(requests[0])).answered:
            judge(one.record, one.text)
        return send_all(self.url, requests, key=self.key, longest_s=self.longest_s, progress=progress)

    def judge(self, log: Sequence[StreamedRequest]) -> None:
        """Judge the answers; where the judge fails, what was measured is kept, and the recorded quality counts."""
        judge = self.asking.judge
        for one in log:
            if judge is not None and one.answered:
                try:
                    one.quality = judge(one.record, one.text)
                except GearshiftError as error:
                    one.quality, one.unjudged = math.nan, str(error)

    def alone(self, request: Outgoing) -> StreamedRequest:
        now = msgspec.structs.replace(request, due_s=0.0)
        return send_all(self.url, [now], key=self.key, longest_s=self.longest_s)[0]


def replay(
    target: PathLike,
    traces: Traces,
    *,
    profile: LanguageProfile | PathLike | None = None,
    project: PathLike | None = None,
    model: str | None = None,
    objective: Objective | None = None,
    api_key: str | None = None,
    longest_s: float = LONGEST_S,
    seed: int | None = None,
    progress: Sent | None = None,
    notice: Notice = noted,
    **_: Any,
) -> dict[str, StreamReplay]:
    """As `gearshift.replay`, for the only pipeline."""
    url = str(target).rstrip("/")
    require(
        url.startswith(("http://", "https://")),
        f"{url} is no URL",
        remedy="serve the plan, and name the server's URL up to /v1; or compare both with `gearshift validate`",
    )
    require(len(traces) == 1, f"{len(traces)} traces are given, and language models take one", remedy="give one")
    ((name, trace),) = traces.items()
    measured = language_profile("profile" if profile is None else profile)
    arrivals = trace_for(None, url, trace, seed=seed, notice=notice)
    asking = Asking() if project is None else asking_of(Path(project), measured)
    workload = workload_to_send(measured, arrivals, asking, measured.engines, seed=seed, notice=notice)
    asked = Asked(url, asking, api_key, longest_s)
    log = asked.send(outgoing(workload, asking, model or measured.operator), progress)
    asked.judge(log)
    run = figures_of(log, measured, objective or Objective(metric="ttft"), duration_s=workload.duration_s)
    return {name: msgspec.structs.replace(run, left_out=len(arrivals) - len(workload))}


def asking_of(project: Path, profile: LanguageProfile) -> Asking:
    """Prompts and judge of a project file, or of the one in a folder; raises `InvalidInput` as `recorded_prompts`."""
    path = project_file(project)
    known = read_language_project(path)
    prompts = recorded_prompts(
        profile, read_prompts(path.parent / known.prompts), where=str(path.parent / known.prompts)
    )
    judge = judge_of(known, path.parent)
    if judge is None and any(prompt.reference is None for prompt in prompts):
        return Asking(prompts, None, known.temperature, known.most_tokens)

    def of_answer(record: int, text: str) -> float:
        return float(quality_of(known, judge, [prompts[record]], [[text]])[0][0, 0])

    return Asking(prompts, of_answer, known.temperature, known.most_tokens)


def recorded_prompts(profile: LanguageProfile, prompts: Sequence[Prompt], *, where: str = "") -> tuple[Prompt, ...]:
    """The prompt of each record, by its key; others are left out. A profile without keys has as many, in order.

    Raises `InvalidInput` where a record's prompt is missing.
    """
    count, keys = len(profile.answers.part), profile.prompt_keys
    if not keys:
        require(
            len(prompts) == count,
            f"there are {len(prompts)} prompts, and the profile has answers to {count}",
            where=where,
            remedy="give the file that was profiled, without the prompts that `profile` says it left out",
        )
        return tuple(prompts)
    found: dict[str, deque[Prompt]] = {}
    for prompt in prompts:
        found.setdefault(prompt.key, deque()).append(prompt)
    lacking = sum(count > len(found.get(key, ())) for key, count in Counter(keys).items())
    require(
        not lacking,
        f"of {count} prompts that were profiled, {lacking} are missing or were changed",
        where=where,
        remedy="give the file that was profiled, or profile anew",
    )
    return tuple(found[key].popleft() for key in keys)


def trace_to_send(trace: Trace, engines: Sequence[EngineProfile], *, own_prompts: bool) -> tuple[Trace, list[str]]:
    """The requests of a trace that are sent, with the tokens that they have, and sentences on what is not as there.

    Prompts of a project have tokens of their own, made-up ones those of the trace. Of the latter,
    requests that no engine's context holds are left out. Raises `InvalidInput` where that leaves none.
    """
    prompts = trace.prompt_tokens
    if own_prompts:
        ignored = "the project's prompts have tokens of their own: of the trace its times alone count"
        has_tokens = prompts is not None or trace.output_tokens is not None
        return replace(trace, prompt_tokens=None, output_tokens=None), [ignored] if has_tokens else []
    if prompts is not None:
        trace = replace(trace, prompt_tokens=np.maximum(prompts, LEAST_PROMPT_TOKENS))
    return answerable(trace, engines)


def workload_to_send(
    profile: LanguageProfile,
    trace: Trace,
    asking: Asking,
    engines: Sequence[EngineProfile],
    *,
    seed: int | None = None,
    notice: Notice = noted,
) -> LanguageWorkload:
    """The requests of `trace_to_send`, which are those to be simulated; split by the ids that are sent."""
    sent, not_as_there = trace_to_send(trace, engines, own_prompts=asking.prompts is not None)
    for sentence in not_as_there:
        notice(sentence)
    drawn = language_workload(profile, sent, seed=seed)
    return replace(drawn, by_id=np.array([number_of_id(id_of(i)) for i in range(len(drawn))]))


def id_of(request: int) -> str:
    return f"replayed-{request}"


def outgoing(workload: LanguageWorkload, asking: Asking, model: str) -> list[Outgoing]:
    """The workload's requests."""
    prompts, asked = asking.prompts, []
    for i, record in enumerate(workload.record.tolist()):
        body: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
        if prompts is not None:
            body |= {"temperature": asking.temperature, **prompts[record].asked}
            body["max_tokens"] = prompts[record].max_tokens or asking.most_tokens
        else:
            words = f"record {record}"
            if workload.prompt_tokens is not None:
                words += FILLER * (int(workload.prompt_tokens[i]) - LEAST_PROMPT_TOKENS)
            body["messages"] = [{"role": "user", "content": words}]
        if workload.output_tokens is not None:
            body |= {"max_tokens": int(workload.output_tokens[i]), "ignore_eos": True}
        due_s = float(workload.arrivals_ns[i]) / NS_PER_S
        asked.append(Outgoing(id=id_of(i), due_s=due_s, record=record, body=body))
    return asked
