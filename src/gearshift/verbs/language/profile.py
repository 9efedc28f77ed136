"""Measure engines of language models, and record their answers."""

from collections.abc import Callable
from pathlib import Path

from gearshift.models.config import PROJECT_FILE, project_file
from gearshift.planner.space.request import Progress, silent
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import require_language_replaceable, write_language_profile
from gearshift.support.files import PathLike


def _ignore(text: str) -> None:
    pass


def profile_language(
    project: PathLike = PROJECT_FILE,
    *,
    out: PathLike | None = None,
    seed: int = 0,
    progress: Progress = silent,
    notice: Callable[[str], None] = _ignore,
) -> LanguageProfile:
    """Measure a project of language models from outside; write the profile to `out` if given.

    `project` is a `gearshift.toml` or its folder. Calls, tokens and time are announced by `notice`
    before they are spent. Answers, times and judgements are kept in a folder named like `out` with
    `.partial` added until the profile is written, so that the same call can go on after an error or Ctrl-C.
    Raises `InvalidInput` before the first call where `out` holds anything but such a profile, or
    the project's `most_calls` would be exceeded.
    """
    from gearshift.measuring.engines import profile_language as measuring
    from gearshift.measuring.partial import forget, kept_files, partial_folder

    folder = None if out is None else Path(out)
    if folder is not None:
        require_language_replaceable(folder)
    try:
        made = measuring.profile_language(
            project_file(Path(project)), seed=seed, folder=folder, progress=progress, notice=notice
        )
    except BaseException:
        if folder is not None and kept_files(folder):
            notice(f"what was answered is kept in {partial_folder(folder)}; the same command goes on from there")
        raise
    if folder is None:
        return made
    written = write_language_profile(folder, made)
    forget(folder)
    return written


def language_profile_from_records(
    folder: PathLike,
    *,
    out: PathLike | None = None,
    operator: str = "default",
    certainty: str = "mean_logprob",
    seed: int = 0,
) -> LanguageProfile:
    """Import answers and times that others recorded; write the profile to `out` if given.

    `folder` has for each model `MODEL.jsonl` (rows with id, score, logprobs, prompt_tokens, or the
    sample log of lm-evaluation-harness), and `MODEL.engine.json`, results of vLLM's benchmark as
    `MODEL.bench-*.json`, or `MODEL.steps.csv` (batch_size, runtime_ms) with `MODEL.steps.json`
    (weights_bytes, kv_bytes_per_token, memory_bytes, bandwidth_bytes_per_s), whose assumptions are
    among the profile's warnings. Those on two devices are `MODEL.tp2.engine.json` and
    `MODEL.tp2.steps.csv`. Raises `InvalidInput` for files that do not fit.
    """
    from gearshift.measuring.recorded import language

    if out is not None:
        require_language_replaceable(Path(out))
    made = language.language_profile_from_records(Path(folder), operator=operator, certainty=certainty, seed=seed)
    return made if out is None else write_language_profile(out, made)
