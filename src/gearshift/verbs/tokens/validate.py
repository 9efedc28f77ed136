"""Serve a plan of language models, send a trace, simulate the same, and compare what is measured with it."""

import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput, NotReady, require
from gearshift.gear import GearPlan
from gearshift.language_workload import LanguageWorkload
from gearshift.load_generator.language.open_loop import Outgoing, Sent, send_all
from gearshift.load_generator.language.stream_log import StreamReplay, figures_of
from gearshift.models.config import project_file
from gearshift.models.language_config import read_language_project
from gearshift.profiles.engines.engine_tables import EngineTables, engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.result import ServingResult, percentile
from gearshift.runtime.backends.local import cores_beside_engines
from gearshift.support.event_loop import much_load
from gearshift.support.files import PathLike
from gearshift.support.processors import pinned
from gearshift.traces.read import read_trace
from gearshift.verbs.tokens.inputs import plan_and_language_profile
from gearshift.verbs.tokens.replay import (
    LONGEST_S,
    Asking,
    asking_of,
    judged,
    outgoing,
    require_judge,
    workload_to_send,
)
from gearshift.workload import Trace

PROBES = 5
"""Requests sent alone before and after, by which engines that changed are told apart."""
LONGEST_START_S = 600.0


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """Lone requests before and after the replay: their median total time as a multiple of the predicted one."""

    before: float
    after: float


class LanguageValidation(msgspec.Struct, frozen=True, kw_only=True):
    """The same requests, simulated and served at the times at which they were sent.

    `errors` are relative to what was measured, positive where too much was predicted; those of
    shares and of quality are differences. `doubts` say what makes both differ from the start.
    """

    predicted: ServingResult
    measured: ServingResult
    errors: dict[str, float]
    drift: Drift
    replay: StreamReplay
    doubts: tuple[str, ...] = ()


def validate_language(
    plan: PathLike,
    trace: Trace | PathLike,
    *,
    url: str | None = None,
    profile: LanguageProfile | PathLike | None = None,
    project: PathLike | None = None,
    emulated: bool = False,
    key: str | None = None,
    longest_s: float = LONGEST_S,
    seed: int | None = None,
    progress: Sent | None = None,
) -> LanguageValidation:
    """Serve a plan file in another process, or take the server at `url`; send a trace, and simulate the same.

    `key` is one of the server at `url`. With `emulated`, engines take the profile's times. Lone
    requests before and after tell whether engines are as profiled, and whether they changed meanwhile.
    Requests longer than every context of the plan's engines are neither sent nor simulated, but counted
    in `left_out` of the replay. Raises `InvalidInput`, before any is sent, where an engine's memory could
    not hold one of the others.
    """
    from gearshift.simulator.engines.simulate_language import simulate_language

    made, measured = plan_and_language_profile(plan, profile)
    asking = Asking() if emulated else asking_of(Path(project or _project_of(Path(plan), made, measured)), measured)
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    tables = engine_tables(made, measured)
    workload = workload_to_send(measured, arrivals, asking, tables.engines, seed=seed)
    simulate_language(tables, measured, workload)  # refuses what could not be predicted in the end
    asked = Asked(made, measured, tables, workload, asking, longest_s)
    if url is not None:
        with much_load():
            run = _validated(url.rstrip("/"), asked._replace(key=key), progress)
    else:
        cores = None if emulated else _cores_beside(made, Path(project or _project_of(Path(plan), made, measured)))
        with served(Path(plan), emulated=emulated, profile=profile, project=project) as at, pinned(cores), much_load():
            run = _validated(at, asked, progress)
    return msgspec.structs.replace(
        run,
        doubts=doubts_about_turns(tables) if emulated else (),
        replay=msgspec.structs.replace(run.replay, left_out=len(arrivals) - len(workload)),
    )


def doubts_about_turns(tables: EngineTables) -> tuple[str, ...]:
    """Emulated engines part the time of devices on which simulated ones take turns, as they were not timed together."""
    return tuple(
        f"{' and '.join(np.array(tables.replicas)[tables.device == group])} share {' and '.join(devices)} and were not "
        "timed beside each other: simulated they take turns in steps, and emulated they have an equal part of the time "
        "each, which is part of the errors"
        for group, devices in enumerate(tables.device_groups)
        if tables.in_turn[group]
    )


class Asked(NamedTuple):
    plan: GearPlan
    profile: LanguageProfile
    tables: EngineTables
    workload: LanguageWorkload
    asking: Asking
    longest_s: float
    key: str | None = None


def _cores_beside(plan: GearPlan, project: Path) -> frozenset[int] | None:
    from gearshift.serving.openai.language_task import started_on

    known = read_language_project(project_file(project))
    return cores_beside_engines(plan.hardware, started_on(plan, known))


def _project_of(path: Path, plan: GearPlan, profile: LanguageProfile) -> Path:
    require(
        profile.project is not None,
        "the profile names no project, whose prompts could be sent",
        where=str(path),
        remedy="name one with --project, or validate with --backend emulated",
    )
    return path.parent / plan.profile.path / str(profile.project)


def _validated(url: str, asked: Asked, progress: Sent | None) -> LanguageValidation:
    from gearshift.simulator.engines.simulate_language import simulate_language

    plan, profile, tables, workload, asking, longest_s, key = asked
    sent = outgoing(workload, asking, plan.name)
    require_judge(url, sent, asking, key=key, longest_s=longest_s)
    before = _alone_s(url, sent, longest_s, key)
    log = send_all(url, sent, key=key, longest_s=longest_s, progress=progress)
    after = _alone_s(url, sent, longest_s, key)
    as_sent = replace(workload, arrivals_ns=_rising_ns([one.sent_s for one in log]))
    run = simulate_language(tables, profile, as_sent)
    alone = _spaced(workload, longest_s)
    predicted_alone = percentile(simulate_language(tables, profile, alone).total_ns / NS_PER_S, 0.5)
    judged(log, asking)
    objective = plan.pipeline.objective
    replay = figures_of(log, profile, objective, duration_s=workload.duration_s, since="sent")
    predicted = run.result(profile, objective)
    return LanguageValidation(
        predicted=predicted,
        measured=replay.result,
        errors=errors_of(predicted, replay.result),
        drift=Drift(before=before / predicted_alone, after=after / predicted_alone),
        replay=replay,
    )


def errors_of(predicted: ServingResult, measured: ServingResult) -> dict[str, float]:
    found = {
        "quality": predicted.accuracy - measured.accuracy,
        "share_late": predicted.share_late - measured.share_late,
    }
    if predicted.tokens is not UNSET and measured.tokens is not UNSET:
        for name in ("ttft_s", "per_token_s", "total_s"):
            mine, theirs = getattr(predicted.tokens, name), getattr(measured.tokens, name)
            for at in ("p50", "p95"):
                real = getattr(theirs, at)
                found[f"{name.removesuffix('_s')}_{at}"] = getattr(mine, at) / real - 1 if real > 0 else math.nan
    return found


def _alone_s(url: str, sent: list[Outgoing], longest_s: float, key: str | None) -> float:
    """The median total time of the first few requests, each alone."""
    times = []
    for one in sent[:PROBES]:
        (answer,) = send_all(url, [msgspec.structs.replace(one, due_s=0.0)], key=key, longest_s=longest_s)
        require(answer.answered, f"a lone request had {answer.problem}", where=url, remedy="see the server's log")
        times.append(answer.ended_s - answer.sent_s)
    return percentile(np.array(times), 0.5)


def _spaced(workload: LanguageWorkload, gap_s: float) -> LanguageWorkload:
    """The first few requests, each alone."""
    probes = slice(0, PROBES)
    tokens = {
        name: None if of is None else of[probes]
        for name, of in (("prompt_tokens", workload.prompt_tokens), ("output_tokens", workload.output_tokens))
    }
    record = workload.record[probes]
    return LanguageWorkload(
        arrivals_ns=np.arange(len(record), dtype=np.int64) * round(gap_s * NS_PER_S),
        record=record,
        by_id=workload.by_id[probes],
        duration_s=gap_s * len(record),
        **tokens,
    )


def _rising_ns(seconds: list[float]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    return np.maximum.accumulate((np.array(seconds) * NS_PER_S).astype(np.int64))


@contextmanager
def served(plan: Path, *, emulated: bool, profile: object = None, project: object = None) -> Iterator[str]:
    """A server of the plan in a process of its own, and the URL of its API."""
    command = [sys.executable, "-P", "-m", "gearshift", "serve", str(plan), "--port", "0"]
    command += ["--backend", "emulated"] if emulated else []
    if isinstance(profile, (str, Path)):
        command += ["--profile", str(profile)]
    if project is not None and not emulated:
        command += ["--project", str(project)]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        try:
            yield _url_of(process, said)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _url_of(process: "subprocess.Popen[bytes]", said: Any) -> str:
    due_s = time.monotonic() + LONGEST_START_S
    while time.monotonic() < due_s:
        said.seek(0)
        text = said.read()
        if found := re.search(r"(http://[\w.:\[\]]+/v1)", text):
            return found[1]
        if process.poll() is not None:
            raise InvalidInput(f"the server ended: {text.strip()[-500:]}", remedy="mend what it says")
        time.sleep(0.05)
    raise NotReady(f"the server did not start within {LONGEST_START_S:g} s")
