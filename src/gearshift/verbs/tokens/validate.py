"""Serve a plan of language models, send a trace, simulate the same, and compare what is measured with it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from gearshift.clock import NS_PER_S
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.language_workload import LanguageWorkload
from gearshift.load_generator.language.open_loop import Outgoing
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
from gearshift.verbs.common.inputs import Notice, noted, traces_of
from gearshift.verbs.common.options import Backend
from gearshift.verbs.common.sending import Sent, Traces
from gearshift.verbs.common.served_apart import served_apart
from gearshift.verbs.tokens.inputs import plan_and_language_profile
from gearshift.verbs.tokens.replay import LONGEST_S, Asked, Asking, asking_of, outgoing, workload_to_send

PROBES = 5
"""Requests sent alone before and after, by which engines that changed are told apart."""


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

    def broken(self, *, within: float | None, within_points: float | None) -> list[str]:
        """Describe the bounds that do not hold: `within` on the p95 of the time to the first token, and on shares."""
        ttft, shares = self.errors["ttft_p95"], ("quality", "share_late")
        broken = []
        if within is not None and abs(ttft) > within:
            broken.append(f"p95 of the time to the first token is off by {100 * ttft:+.1f} %")
        far = [name for name in shares if within_points is not None and abs(self.errors[name]) > within_points]
        return [*broken, *(f"{name.replace('_', ' ')} is off by {100 * self.errors[name]:.1f} %" for name in far)]

    def as_json(self) -> dict[str, object]:
        return msgspec.structs.asdict(self)


def validate(
    plan: PathLike,
    traces: Traces,
    *,
    url: str | None = None,
    backend: Backend = "local",
    profile: LanguageProfile | PathLike | None = None,
    project: PathLike | None = None,
    api_key: str | None = None,
    longest_s: float = LONGEST_S,
    seed: int | None = None,
    progress: Sent | None = None,
    notice: Notice = noted,
    **_: Any,
) -> dict[str, LanguageValidation]:
    """As `gearshift.validate`, for the only pipeline."""
    from gearshift.simulator.engines.simulate_language import simulate_language

    require(backend != "ray", "language models run in engines", remedy="leave out --backend ray")
    path, emulated = Path(plan), backend == "emulated"
    made, measured = plan_and_language_profile(path, profile)
    place = None if emulated else Path(project or _project_of(path, made, measured))
    asking = Asking() if place is None else asking_of(place, measured)
    arrivals = traces_of(made, path, traces, seed=seed, notice=notice)[made.name]
    tables = engine_tables(made, measured)
    workload = workload_to_send(measured, arrivals, asking, tables.engines, seed=seed, notice=notice)
    simulate_language(tables, measured, workload)  # refuses what could not be predicted in the end

    def validated(at: str) -> LanguageValidation:
        asked = Asked(at.rstrip("/"), asking, api_key, longest_s)
        return _validated(asked, made, measured, tables, workload, progress)

    if url is not None:
        with much_load():
            run = validated(url)
    else:
        cores = None if place is None else _cores_beside(made, place)
        folder = None if isinstance(profile, LanguageProfile) else profile
        server = served_apart(path, backend=backend, profile=folder, project=None if emulated else project)
        with server, pinned(cores), much_load():
            run = validated(server.url)
    found = msgspec.structs.replace(
        run,
        doubts=doubts_about_turns(tables) if emulated else (),
        replay=msgspec.structs.replace(run.replay, left_out=len(arrivals) - len(workload)),
    )
    return {made.name: found}


def doubts_about_turns(tables: EngineTables) -> tuple[str, ...]:
    """Emulated engines part the time of devices on which simulated ones take turns, as they were not timed together."""
    return tuple(
        f"{' and '.join(np.array(tables.replicas)[tables.device == group])} share {' and '.join(devices)} and were not "
        "timed beside each other: simulated they take turns in steps, and emulated they have an equal part of the time "
        "each, which is part of the errors"
        for group, devices in enumerate(tables.device_groups)
        if tables.in_turn[group]
    )


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


def _validated(
    asked: Asked,
    plan: GearPlan,
    profile: LanguageProfile,
    tables: EngineTables,
    workload: LanguageWorkload,
    progress: Sent | None,
) -> LanguageValidation:
    from gearshift.simulator.engines.simulate_language import simulate_language

    sent = outgoing(workload, asked.asking, plan.name)
    before = _alone_s(asked, sent)
    log = asked.send(sent, progress)
    after = _alone_s(asked, sent)
    asked.judge(log)
    as_sent = replace(workload, arrivals_ns=_rising_ns([one.sent_s for one in log]))
    run = simulate_language(tables, profile, as_sent)
    alone = _spaced(workload, asked.longest_s)
    predicted_alone = percentile(simulate_language(tables, profile, alone).total_ns / NS_PER_S, 0.5)
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


def _alone_s(asked: Asked, sent: Sequence[Outgoing]) -> float:
    """The median total time of the first few requests, each alone."""
    times = []
    for answer in map(asked.alone, sent[:PROBES]):
        require(answer.answered, f"a lone request had {answer.problem}", where=asked.url, remedy="see the server's log")
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
