"""Send a trace to a server of language models, and measure."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.errors import require
from gearshift.language_workload import LanguageWorkload, number_of_id
from gearshift.load_generator.language.open_loop import Outgoing, Sent, send_all
from gearshift.load_generator.language.stream_log import StreamedRequest, StreamReplay, figures_of
from gearshift.measuring.engines.judging import judge_of, quality_of
from gearshift.models.config import project_file
from gearshift.models.language_config import read_language_project
from gearshift.objective import Objective
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.prompts import Prompt, read_prompts
from gearshift.support.files import PathLike
from gearshift.traces.read import read_trace
from gearshift.verbs.language.inputs import language_profile, language_workload
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

    Prompts are asked as they were profiled, with `temperature` and for `most_tokens`.
    """

    prompts: tuple[Prompt, ...] | None = None
    judge: Judge | None = None
    temperature: float = 0.0
    most_tokens: int = 1


def replay_language(
    url: str,
    trace: Trace | PathLike,
    profile: LanguageProfile | PathLike,
    *,
    project: PathLike | None = None,
    model: str | None = None,
    objective: Objective | None = None,
    key: str | None = None,
    longest_s: float = LONGEST_S,
    seed: int | None = None,
    progress: Sent | None = None,
) -> StreamReplay:
    """Send the trace to the OpenAI-compatible server at `url` (up to `/v1`), in an open loop.

    Prompts and the judge are those of `project`, asked as they were profiled; tokens of the trace
    then do not count. Without it prompts name their record, as emulated engines read it, and
    quality is that recorded of the model that the server names; where the trace has tokens, prompts
    are filled to their length, and answers are as long as there (`ignore_eos`). `model` is the name
    at the server, by default the profile's operator. Raises `NoAnswer` where no server answers.
    """
    measured = language_profile(profile)
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    asking = Asking() if project is None else asking_of(Path(project))
    workload = workload_to_send(measured, arrivals, asking, seed=seed)
    sent = outgoing(workload, measured, asking, model or measured.operator)
    log = send_all(url.rstrip("/"), sent, key=key, longest_s=longest_s, progress=progress)
    judged(log, asking)
    return figures_of(log, measured, objective or Objective(metric="ttft"), duration_s=workload.duration_s)


def asking_of(project: Path) -> Asking:
    """Prompts and judge of a project file, or of the one in a folder."""
    path = project_file(project)
    known = read_language_project(path)
    prompts = read_prompts(path.parent / known.prompts)
    judge = judge_of(known, path.parent)
    if judge is None and any(prompt.reference is None for prompt in prompts):
        return Asking(prompts, None, known.temperature, known.most_tokens)

    def of_answer(record: int, text: str) -> float:
        return float(quality_of(known, judge, [prompts[record]], [[text]])[0][0, 0])

    return Asking(prompts, of_answer, known.temperature, known.most_tokens)


def workload_to_send(
    profile: LanguageProfile, trace: Trace, asking: Asking, *, seed: int | None = None
) -> LanguageWorkload:
    """The requests as they are sent, which is as they must be simulated.

    Prompts of a project have tokens of their own, made-up ones those of the trace. Requests that
    are split by their id are split by that which is sent.
    """
    drawn = language_workload(profile, trace, seed=seed)
    ids = [id_of(i) for i in range(len(drawn))]
    own = asking.prompts is not None
    prompt_tokens = None if own or drawn.prompt_tokens is None else np.maximum(drawn.prompt_tokens, LEAST_PROMPT_TOKENS)
    return replace(
        drawn,
        by_id=np.array([number_of_id(one) for one in ids]),
        prompt_tokens=prompt_tokens,
        output_tokens=None if own else drawn.output_tokens,
    )


def id_of(request: int) -> str:
    return f"replayed-{request}"


def judged(log: list[StreamedRequest], asking: Asking) -> None:
    for one in log:
        one.quality = asking.judge(one.record, one.text) if asking.judge is not None and one.answered else math.nan


def outgoing(workload: LanguageWorkload, profile: LanguageProfile, asking: Asking, model: str) -> list[Outgoing]:
    """The workload's requests; raises `InvalidInput` for other prompts than those of the profile."""
    count, prompts = len(profile.answers.part), asking.prompts
    require(
        prompts is None or len(prompts) == count,
        f"there are {0 if prompts is None else len(prompts)} prompts, and the profile has answers to {count}",
        remedy="give the file that was profiled, without the prompts that `profile` says it left out",
    )
    asked = []
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
