"""Measure models, or import records of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from gearshift.errors import require
from gearshift.models.config import PROJECT_FILE, ProfileSettings, project_file
from gearshift.models.language_config import is_language_project
from gearshift.profiles.pipelines.profile_folder import Profiles, require_folder_replaceable, write_profiles
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import require_replaceable, write_profile
from gearshift.support.files import PathLike
from gearshift.verbs.inputs import Notice, Progress, silent
from gearshift.verbs.options import Option

Seed = Annotated[int, Option("Seed of the split into parts A and B.", least=0)]


def _ignore(text: str) -> None:
    pass


def profile(
    project: PathLike = PROJECT_FILE,
    *,
    out: PathLike | None = None,
    cores: Annotated[Sequence[int], Option("Measure on each of these numbers of cores, such as 1,2,4.")] = (1,),
    core_share: Annotated[float, Option("The share of a processor that a core is, held by a quota.")] = 1.0,
    seed: Seed = 0,
    progress: Progress = silent,
    notice: Notice = _ignore,
    timed: Callable[[], None] = lambda: None,
) -> Profile:
    """Measure a project's models on the real serving path; write the profile to `out` if given.

    `project` is a `gearshift.toml` or its folder. With several counts of `cores`, run times are
    fitted by batch size and cores (`Profile.performance`). Each core is `core_share` of a
    processor, held by a quota below 1.

    Answers of remote endpoints are kept in a folder named like `out` with `.partial` added until
    the profile is written, so that the same call can resume after an error; `notice` reports this.
    `timed` is called when nothing is left to be timed, and the models only predict.
    Raises `InvalidInput` before measuring where `out` holds anything but a profile.
    """
    from gearshift.measuring.front_end_time import front_end_beside
    from gearshift.measuring.profile_project import profile_project

    folder, path = None if out is None else Path(out), project_file(Path(project))
    require(not is_language_project(path), "is of language models", where=str(path), remedy="call `profile_language`")
    if folder is not None:
        require_replaceable(folder)
    with _answers_kept(folder, notice):
        made = profile_project(
            path,
            progress=progress,
            seed=seed,
            folder=folder,
            front_end=front_end_beside,
            cores=cores,
            core_share=core_share,
            notice=notice,
            timed=timed,
        )
        return made if folder is None else write_profile(made, folder)


def profile_lightly(
    project: PathLike,
    how: ProfileSettings,
    *,
    out: Path,
    most_samples: int,
    progress: Progress = silent,
) -> Profile:
    """As `profile`, with batch sizes, repeats and times of `how` in place of the project's, on some of its samples."""
    from gearshift.measuring.front_end_time import front_end_beside
    from gearshift.measuring.profile_project import profile_project

    require_replaceable(out)
    made = profile_project(
        project_file(Path(project)),
        progress=progress,
        folder=out,
        front_end=front_end_beside,
        how=how,
        most_samples=most_samples,
    )
    return write_profile(made, out)


def profile_pipelines(
    project: PathLike = PROJECT_FILE,
    *,
    out: PathLike | None = None,
    cores: Sequence[int] = (1,),
    core_share: float = 1.0,
    seed: int = 0,
    progress: Progress = silent,
    notice: Notice = _ignore,
) -> Profiles:
    """Measure all operators of a project, and record its pipelines; arguments as of `profile`.

    The labelled requests of each pipeline's `samples` go through all of its nodes, as if every
    edge were live. `out` is a folder with a profile folder for each operator, and `tuples.csv` for
    each pipeline.
    """
    from gearshift.measuring.front_end_time import front_end_beside
    from gearshift.measuring.profile_pipelines import profile_pipelines

    folder = None if out is None else Path(out)
    if folder is not None:
        require_folder_replaceable(folder)
    with _answers_kept(folder, notice):
        made = profile_pipelines(
            project_file(Path(project)),
            progress=progress,
            seed=seed,
            folder=folder,
            front_end=front_end_beside,
            cores=cores,
            core_share=core_share,
            notice=notice,
        )
        return made if folder is None else write_profiles(made, folder)


@contextmanager
def _answers_kept(folder: Path | None, notice: Notice) -> Iterator[None]:
    """Delete the answers of endpoints kept next to `folder`, or after an error say that they are kept."""
    from gearshift.measuring.partial import forget, kept_files, partial_folder

    try:
        yield
    except BaseException:
        if folder is not None and kept_files(folder):
            where = partial_folder(folder)
            notice(f"the answers of endpoints are kept in {where}; the same command continues from there")
        raise
    if folder is not None:
        forget(folder)


def profile_from_records(
    folder: PathLike,
    *,
    out: PathLike | None = None,
    operator: Annotated[str, Option("The operator's name, with --from-records.")] = "default",
    seed: Seed = 0,
    raw_run_times: Annotated[
        bool,
        Option(
            "With --from-records: each row of runtimes is one batch; median and p95 are computed for each batch size."
        ),
    ] = False,
) -> Profile:
    """Import recorded predictions and run times instead of measuring.

    `folder` holds `predictions` and `runtimes`, as CSV or Parquet. With `raw_run_times` each row
    of `runtimes` is one batch; median and p95 are computed per batch size.
    """
    from gearshift.measuring.recorded.language import has_language_records
    from gearshift.profiles import records

    require(
        not has_language_records(Path(folder)),
        "holds answers of language models (.jsonl)",
        where=str(folder),
        remedy="call `language_profile_from_records`",
    )
    if out is not None:
        require_replaceable(Path(out))
    made = records.profile_from_records(Path(folder), operator=operator, seed=seed, raw_run_times=raw_run_times)
    return made if out is None else write_profile(made, Path(out))
