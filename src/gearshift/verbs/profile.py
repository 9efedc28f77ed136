"""Measure models, or import records of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from gearshift.models.config import PROJECT_FILE, project_file
from gearshift.models.language_config import TextCertainty
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.pipelines.profile_folder import Profiles
from gearshift.profiles.profile import Profile
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice, Progress, silent
from gearshift.verbs.common.options import Option
from gearshift.verbs.kinds.registry import kind_of_project, kind_of_records

Seed = Annotated[int, Option("Seed of the split into parts A and B.", least=0)]
ONE_CORE = (1,)


def _ignore(text: str) -> None:
    pass


def profile(
    project: PathLike = PROJECT_FILE,
    *,
    out: PathLike | None = None,
    cores: Annotated[Sequence[int], Option("Measure on each of these numbers of cores, such as 1,2,4.")] = ONE_CORE,
    core_share: Annotated[float, Option("The share of a processor that a core is, held by a quota.")] = 1.0,
    seed: Seed = 0,
    progress: Progress = silent,
    notice: Notice = _ignore,
    timed: Callable[[], None] = lambda: None,
) -> Profile | Profiles | LanguageProfile:
    """Measure a project's models on the real serving path; write the profile to `out` if given.

    `project` is a `gearshift.toml` or its folder. With several counts of `cores`, run times are
    fitted by batch size and cores (`Profile.performance`). Each core is `core_share` of a
    processor, held by a quota below 1.

    Of several operators, or of pipelines, all operators are measured, and the labelled requests of
    each pipeline's `samples` go through all of its nodes, as if every edge were live. `out` is then a
    folder with a profile folder for each operator, and `tuples.csv` for each pipeline.

    Engines of language models are measured from outside; calls, tokens and time are announced by
    `notice` before they are spent. Raises `InvalidInput` before the first call where the project's
    `most_calls` would be exceeded.

    Answers of remote endpoints and engines are kept in a folder named like `out` with `.partial` added
    until the profile is written, so that the same call can go on after an error or Ctrl-C; `notice`
    reports this. `timed` is called when nothing is left to be timed, and the models only predict.
    Raises `InvalidInput` before measuring where `out` holds anything but such a profile.
    """
    path = project_file(Path(project))
    kind, of_rows = kind_of_project(path), {"cores": cores, "core_share": core_share}
    given = {name: value for name, value in of_rows.items() if value not in (ONE_CORE, 1.0)}
    kind.require_supported("profile", "one", given)
    made: Profile | Profiles | LanguageProfile
    made = kind.profile(path, out=out, seed=seed, progress=progress, notice=notice, timed=timed, **of_rows)
    return made


def profile_from_records(
    folder: PathLike,
    *,
    out: PathLike | None = None,
    certainty: Annotated[
        TextCertainty | None,
        Option(
            "With --from-records of language models: how certainty is made of log-probabilities "
            "[default: mean_logprob]."
        ),
    ] = None,
    operator: Annotated[str, Option("The operator's name, with --from-records.")] = "default",
    seed: Seed = 0,
    raw_run_times: Annotated[
        bool,
        Option(
            "With --from-records: each row of runtimes is one batch; median and p95 are computed for each batch size."
        ),
    ] = False,
) -> Profile | LanguageProfile:
    """Import what others recorded instead of measuring; write the profile to `out` if given.

    `folder` holds `predictions` and `runtimes`, as CSV or Parquet. With `raw_run_times` each row
    of `runtimes` is one batch; median and p95 are computed per batch size.

    Of language models it has for each model `MODEL.jsonl` (rows with id, score, logprobs, prompt_tokens,
    or the sample log of lm-evaluation-harness), and `MODEL.engine.json`, results of vLLM's benchmark as
    `MODEL.bench-*.json`, or `MODEL.steps.csv` (batch_size, runtime_ms) with `MODEL.steps.json`
    (weights_bytes, kv_bytes_per_token, memory_bytes, bandwidth_bytes_per_s), whose assumptions are
    among the profile's warnings. Those on two devices are `MODEL.tp2.engine.json` and
    `MODEL.tp2.steps.csv`. `certainty` says how it is made of log-probabilities, by default as
    `mean_logprob`. Raises `InvalidInput` for files that do not fit.
    """
    kind = kind_of_records(Path(folder))
    of_kind: dict[str, Any] = {"certainty": certainty, "raw_run_times": raw_run_times}
    kind.require_supported("profile_from_records", "one", of_kind)
    made: Profile | LanguageProfile = kind.profile_from_records(
        Path(folder), out=out, operator=operator, seed=seed, **of_kind
    )
    return made
