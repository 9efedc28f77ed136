"""Measure engines of language models, and record their answers, or import records of them."""

from pathlib import Path
from typing import Any

from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import require_language_replaceable, write_language_profile
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice, Progress
from gearshift.verbs.common.kept import measured_into


def profile(
    project: Path, *, out: PathLike | None, seed: int, progress: Progress, notice: Notice, **_: Any
) -> LanguageProfile:
    """As `gearshift.profile`; answers, times and judgements are kept."""
    from gearshift.measuring.engines.profile_language import profile_language

    return measured_into(
        out,
        lambda folder: profile_language(project, seed=seed, folder=folder, progress=progress, notice=notice),
        require_replaceable=require_language_replaceable,
        write=lambda made, folder: write_language_profile(folder, made),
        notice=notice,
    )


def profile_from_records(
    folder: Path, *, out: PathLike | None, certainty: str | None, operator: str, seed: int, **_: Any
) -> LanguageProfile:
    """As `gearshift.profile_from_records`."""
    from gearshift.measuring.recorded import language

    if out is not None:
        require_language_replaceable(Path(out))
    certainty = certainty or "mean_logprob"
    made = language.language_profile_from_records(folder, operator=operator, certainty=certainty, seed=seed)
    return made if out is None else write_language_profile(out, made)
